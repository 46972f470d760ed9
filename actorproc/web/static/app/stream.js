// One event stream for all pages of a browser. HTTP/1.1 gives a browser six connections to a host, over all tabs.
// Runs as a SharedWorker; where there is none, in the page itself.

const FIRST_RETRY = 500;
const LAST_RETRY = 30000;
const KINDS = ["hello", "dirty", "many", "reset", "manager", "status", "workers", "locks", "activity", "log", "bye"];

export class Stream {
  /** @param {string} base @param {(name: string, data: any) => void} tell */
  constructor(base, tell) {
    this.base = base;
    this.tell = tell;
    this.topics = "";
    this.last = "";
    this.failed = 0;
    this.source = null;
    this.timer = 0;
    this.state = "closed";
  }

  /** Follow these topics; none closes the stream. @param {Iterable<string>} topics */
  follow(topics) {
    const wanted = [...new Set(topics)].sort().map(encodeURIComponent).join(",");
    if (wanted === this.topics) return;
    this.topics = wanted;
    this.close();
    if (wanted) this.open();
    else this.say("closed");
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  open() {
    this.close();
    const after = this.last ? "&after=" + encodeURIComponent(this.last) : "";
    const source = new EventSource(`${this.base}events?topics=${this.topics}${after}`);
    this.source = source;
    source.onopen = () => {
      this.failed = 0;
      this.say("open");
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (this.source !== source) return;
        if (event.lastEventId) this.last = event.lastEventId;
        this.tell(kind, JSON.parse(event.data || "{}"));
      });
    }
    source.onerror = () => {
      if (this.source === source) this.lost();
    };
  }

  // The browser tries again only after a lost connection: an answer other than 200 ends an EventSource for good, in silence.
  // So each loss is handled here: ask whether the session still stands, and open again later and later.
  async lost() {
    this.close();
    this.say("lost");
    this.failed += 1;
    const wait = Math.min(LAST_RETRY, FIRST_RETRY * 1.6 ** (this.failed - 1)) * (0.5 + Math.random() / 2);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.retry(), wait);
  }

  async retry() {
    if (!this.topics) return;
    try {
      const response = await fetch(this.base + "api/v1/session", { headers: { Accept: "application/json" } });
      if (response.status === 401 || response.status === 403) {
        const says = await response.json().catch(() => ({}));
        return this.say("expired", says); // asking again would not help, for ever
      }
      if (!response.ok) return this.lost();
    } catch {
      return this.lost();
    }
    if (this.topics && !this.source) this.open();
  }

  /** @param {string} state @param {any} [more] */
  say(state, more = {}) {
    this.state = state;
    this.tell("stream", { state, ...more });
  }
}

/** Ports of the pages, each with the topics it follows. */
function serve() {
  const ports = new Map();
  let stream = /** @type {Stream | null} */ (null);
  const followAll = () => stream?.follow([...ports.values()].flatMap((page) => page.topics));
  const drop = (/** @type {number} */ after) => {
    const oldest = Date.now() - after;
    for (const [port, page] of ports) if (page.heard < oldest) ports.delete(port);
    followAll();
  };
  setInterval(() => drop(180000), 60000); // pages that ended without a word; timers of hidden ones run once a minute

  globalThis.onconnect = (/** @type {any} */ event) => {
    const port = event.ports[0];
    port.onmessage = (/** @type {MessageEvent} */ { data }) => {
      if (data.bye) {
        ports.delete(port);
        return followAll();
      }
      stream ??= new Stream(data.base, (name, body) => {
        for (const other of ports.keys()) other.postMessage({ name, data: body });
      });
      const known = ports.get(port);
      ports.set(port, { topics: data.topics ?? known?.topics ?? [], heard: Date.now() });
      if (data.again) {
        stream.failed = 0;
        if (!stream.source) {
          clearTimeout(stream.timer);
          stream.retry();
        }
      }
      followAll();
      if (!known) port.postMessage({ name: "stream", data: { state: stream.state } });
    };
    port.start();
  };
}

if (typeof globalThis.SharedWorkerGlobalScope !== "undefined" && globalThis instanceof globalThis.SharedWorkerGlobalScope) serve();
