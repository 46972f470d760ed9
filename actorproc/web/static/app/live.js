// Live events of this page, from the stream that all pages of the browser share.
import { address } from "./api.js";

const base = address("");
const hearers = new Set();
let topics = /** @type {string[]} */ ([]);
let port = /** @type {any} */ (null);

export const link = { state: "closed", says: "", do: "", isPaused: false, since: Date.now() };

/** @param {string} name @param {any} data */
function tell(name, data) {
  if (name === "stream") {
    if (link.state !== data.state) link.since = Date.now();
    Object.assign(link, { state: data.state, says: data.says || "", do: data.do || "" });
  }
  for (const hear of hearers) hear(name, data);
}

function inPage() {
  let stream = /** @type {any} */ (null);
  let wanted = /** @type {string[]} */ ([]);
  const ready = import("./stream.js").then(({ Stream }) => {
    stream = new Stream(base, tell);
    stream.follow(wanted);
  });
  return {
    postMessage: (/** @type {any} */ message) => {
      wanted = message.bye ? [] : message.topics ?? wanted;
      ready.then(() => {
        stream.follow(wanted);
        if (message.again && !stream.source) stream.retry();
      });
    },
  };
}

function connect() {
  if (port) return;
  try {
    const worker = new SharedWorker(address("static/app/stream.js"), { type: "module", name: base });
    worker.onerror = () => {
      port = inPage();
      send({});
    };
    port = worker.port;
    port.onmessage = (/** @type {MessageEvent} */ event) => tell(event.data.name, event.data.data);
    port.start();
  } catch {
    port = inPage();
  }
}

const send = (/** @type {any} */ more) => port?.postMessage({ base, topics: document.hidden || link.isPaused ? [] : topics, ...more });

/** @param {string[]} wanted Topics of the page that is shown. */
export function follow(wanted) {
  topics = ["status", ...wanted];
  connect();
  send({});
}

/** @param {(name: string, data: any) => void} hear */
export const listen = (hear) => {
  hearers.add(hear);
  return () => hearers.delete(hear);
};

export const again = () => send({ again: true });

export function pause(/** @type {boolean} */ isPaused) {
  link.isPaused = isPaused;
  send({});
  tell("paused", { isPaused });
  if (!isPaused) tell("reset", { says: "" });
}

setInterval(() => port && send({}), 30000);
document.addEventListener("visibilitychange", () => {
  if (!port) return;
  send({});
  if (!document.hidden && !link.isPaused) tell("reset", { says: "" });
});
addEventListener("pagehide", () => port?.postMessage({ bye: true }));
addEventListener("pageshow", (event) => event.persisted && port && (send({}), tell("reset", { says: "" })));
addEventListener("online", again);
