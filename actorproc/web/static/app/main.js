// Start of the page: token, session, routes, and the loop of load, show and hear.
import { token } from "./token.js";
import { get, logIn, Refused } from "./api.js";
import { focusNow, refocus } from "./focus.js";
import { details, render } from "./html.js";
import { follow, link, listen } from "./live.js";
import { shell } from "./shell.js";

const ROUTES = /** @type {[RegExp, string][]} */ ([
  [/^$/, "overview"],
  [/^procedures$/, "procedures"],
  [/^procedures\/([^/]+)(?:\/([a-z]+)(?:\/([^/]+))?)?$/, "procedure"],
  [/^locks(?:\/([^/]+))?$/, "locks"],
  [/^workers$/, "workers"],
  [/^activity$/, "activity"],
  [/^types(?:\/([^/]+))?$/, "types"],
]);
const RELOAD_EVERY = 1000;
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
const basePath = new URL(document.baseURI).pathname;

/** All that is shown now. */
export const app = {
  session: /** @type {any} */ (null),
  status: /** @type {any} */ (null),
  page: /** @type {any} */ (null),
  name: "",
  path: "",
  params: /** @type {string[]} */ ([]),
  query: new URLSearchParams(),
  data: /** @type {any} */ (null),
  error: /** @type {any} */ (null),
  at: 0,
  own: /** @type {any} */ ({}), // what a page keeps beside its address: selections, histories
  notes: /** @type {any[]} */ ([]),
  dialog: /** @type {any} */ (null),
  render: show,
  reload,
  soon,
  go,
  setQuery,
  note,
};

let loading = /** @type {AbortController | null} */ (null);
let isAgain = false;
let loadedAt = 0;
let timer = 0;
let isDrawn = false;
let wrong = /** @type {any} */ (null);

/** Draw once before the next frame, however often it is asked for. */
function show() {
  if (isDrawn) return;
  isDrawn = true;
  queueMicrotask(() => {
    isDrawn = false;
    document.title = [titleOf(), "actorproc"].filter(Boolean).join(" · ");
    const focus = focusNow();
    const isWrong = app.error && !app.data;
    if (isWrong && !wrong) import("./wrong.js").then((pages) => ((wrong = pages.wrong), show()));
    render(shell(app, isWrong ? wrong?.(app) : app.page && app.data ? app.page.view(app) : null), root);
    refocus(focus);
    root.querySelector("main")?.setAttribute("aria-busy", String(!app.data && !app.error));
    app.page?.drawn?.(app);
  });
}

const titleOf = () => (app.page ? app.page.title(app) : app.error ? "No such page" : "");

export const pathOf = (/** @type {string} */ pathname) => (pathname.startsWith(basePath) ? pathname.slice(basePath.length) : null);

/** @param {boolean} isNew False for the first page and for one of the history: the browser has the focus then. */
async function route(isNew = true) {
  const path = (pathOf(location.pathname) ?? "").replace(/\/$/, "");
  const isOther = path !== app.path || !app.page;
  app.path = path;
  app.query = new URLSearchParams(location.search);
  const found = ROUTES.map(([form, name]) => ({ name, match: form.exec(path) })).find((one) => one.match);
  loading?.abort();
  loading = null;
  clearTimeout(timer);
  if (isOther) {
    app.page?.closed?.(app);
    Object.assign(app, { data: null, error: null, own: {}, page: null, name: found?.name || "" });
  }
  if (!found?.match) {
    app.error = new Refused(404, { code: "no-page", says: `There is no page ${path}.`, do: "" });
    return show();
  }
  app.params = found.match.slice(1).map((part) => (part === undefined ? "" : decodeURIComponent(part)));
  const page = await import(`./pages/${found.name}.js`);
  if (app.path !== path) return; // left meanwhile
  app.page = page;
  follow(page.topics(app));
  await reload();
  if (isOther && isNew) {
    scrollTo(0, 0);
    await Promise.resolve();
    /** @type {HTMLElement | null} */ (root.querySelector("h1"))?.focus({ preventScroll: true });
  }
}

/** Ask again for what is shown. One request is under way at a time. */
async function reload() {
  if (!app.page) return;
  if (loading) {
    isAgain = true;
    return;
  }
  const mine = new AbortController();
  loading = mine;
  const { page, path } = app;
  try {
    const data = await page.load(app, mine.signal);
    if (mine.signal.aborted || path !== app.path) return;
    Object.assign(app, { data, error: null, at: Date.now() });
  } catch (error) {
    if (mine.signal.aborted) return;
    app.error = error;
    if (error instanceof Refused && [404, 410].includes(error.status)) app.data = null;
    else if (error instanceof Refused && error.status === 401) Object.assign(link, { state: "expired", do: error.do });
    else if (!(error instanceof Refused)) setTimeout(soon, 2000);
    if (!(error instanceof Refused || error instanceof TypeError)) console.error(error);
  } finally {
    if (loading === mine) {
      loading = null;
      loadedAt = Date.now();
      if (isAgain) {
        isAgain = false;
        soon();
      }
    }
  }
  show();
}

/** Ask again at once, but at most once a second. */
function soon() {
  if (loading) {
    isAgain = true;
    return;
  }
  clearTimeout(timer);
  timer = setTimeout(reload, Math.max(0, loadedAt + RELOAD_EVERY - Date.now()));
}

/** @param {string} path Relative to the prefix, with its query. */
function go(path, isReplaced = false) {
  const url = new URL(path, document.baseURI).href;
  if (url !== location.href) history[isReplaced ? "replaceState" : "pushState"](null, "", url);
  return route();
}

/** Change parts of the query; null removes one. @param {Record<string, any>} changes */
function setQuery(changes, isReplaced = false) {
  const next = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const item of Array.isArray(value) ? value : [value]) if (item !== null && item !== undefined && item !== "") next.append(name, item);
  }
  const text = next.toString();
  return go(app.path + (text ? "?" + text : ""), isReplaced);
}

/** Tell what came of a request. @param {string} text @param {string} tone */
function note(text, tone = "good") {
  const one = { text, tone };
  app.notes = [...app.notes.slice(-3), one];
  setTimeout(() => {
    app.notes = app.notes.filter((other) => other !== one);
    show();
  }, 12000);
  show();
}

async function loadStatus() {
  try {
    app.status = await get("status");
  } catch (error) {
    if (!(error instanceof Refused)) return;
    app.status = app.status || { manager: "down", says: error.message, do: error.do };
  }
  show();
}

function hear(/** @type {string} */ name, /** @type {any} */ data) {
  if (name === "paused" && data.isPaused) {
    clearTimeout(timer); // what events before it asked for
    isAgain = false;
  }
  if (name === "status") app.status = { ...app.status, ...data };
  if (name === "manager" || name === "hello") app.status = { ...app.status, ...data };
  if (name === "reset" || name === "manager" || (name === "hello" && app.error)) {
    loadStatus();
    soon();
  } else if (name === "stream" && data.state === "open" && app.error) soon();
  else if (app.page?.heard?.(app, name, data)) soon();
  show();
}

/** True if the browser follows this link by itself. @param {MouseEvent} event @param {HTMLAnchorElement} anchor */
const isForBrowser = (event, anchor) =>
  event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || anchor.target || anchor.hasAttribute("download");

document.addEventListener("click", (event) => {
  const anchor = /** @type {Element} */ (event.target).closest?.("a[href]");
  if (!anchor || isForBrowser(event, /** @type {any} */ (anchor))) return;
  const url = new URL(/** @type {string} */ (anchor.getAttribute("href")), document.baseURI);
  const path = pathOf(url.pathname);
  if (url.origin !== location.origin || path === null || /^(api|static)\//.test(path)) return;
  event.preventDefault();
  go(path + url.search);
});
addEventListener("popstate", () => route(false));
document.addEventListener("keydown", (event) => {
  if (keys) keys.pressed(app, event);
  else early.push(event); // they count as soon as they can
});

async function start() {
  show(); // the header is seen before the first answer
  const found = ROUTES.find(([form]) => form.test((pathOf(location.pathname) ?? "-").replace(/\/$/, "")));
  if (found) import(`./pages/${found[1]}.js`).catch(() => null); // on its way while the session is asked for
  try {
    app.session = token === null ? await get("session") : (await logIn(token), await get("session"));
  } catch (error) {
    if (error instanceof Refused && [401, 403].includes(error.status)) {
      app.error = error;
      return show();
    }
    app.error = error;
    show();
    return setTimeout(start, 2000 + 1000 * Math.random());
  }
  listen(hear);
  loadStatus();
  setInterval(show, 1000); // ages grow
  await route(false);
}

let keys = /** @type {any} */ (null);
const early = /** @type {KeyboardEvent[]} */ ([]);
start().then(async () => {
  keys = await import("./keys.js"); // after the first page is seen
  for (const event of early) keys.pressed(app, event);
  details();
});
