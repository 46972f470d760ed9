// Verbs of an operator, and which of them fit. Their dialogs are loaded when the first one is opened.
import { html, nothing } from "./html.js";

/** @type {Record<string, {name: string, says: string, flags?: Record<string, string>, tone?: string, all?: boolean}>} */
export const VERBS = {
  kill: { name: "Kill the step", says: "The step that runs now is killed with SIGKILL. Only this step runs again, as a new attempt.", tone: "bad" },
  retry: { name: "Retry", says: "It goes on from where it failed.", all: true },
  restart: { name: "Restart", says: "It begins again from its first state, as a new generation. What is stored of the one that ended is removed.", all: true },
  abort: { name: "Abort", says: "It stops, and what it has done is undone.", flags: { force: "kill the step that runs" }, tone: "bad", all: true },
  rollback: { name: "Roll back", says: "What it has done is undone.", tone: "bad", all: true },
  pause: { name: "Pause", says: "No step of it begins until it is resumed; the one that runs may end.", all: true },
  resume: { name: "Resume", says: "Its steps begin again.", all: true },
  bypass: { name: "Bypass", says: "It ends at once as if it had succeeded, without running what is left. Its work has to be finished by hand.", flags: { force: "even while a step runs", children: "its children too", ancestors: "those that wait for it too" }, tone: "bad" },
  ack: { name: "Acknowledge", says: "Its end counts as seen, so that it may be removed.", all: true },
  delete: { name: "Delete", says: "It is removed with all that is stored of it. This cannot be undone.", flags: { force: "even if it is kept for a reason" }, tone: "bad", all: true },
};

/** True if this session may do it. @param {any} app @param {string} verb */
export const may = (app, verb) => !app.session?.read_only && (!app.session?.verbs || app.session.verbs.includes(verb));

/** Verbs that fit what a procedure does now. @param {any} info */
export function fitting(info) {
  if (info.phase === "done") return info.state === "FAILED" ? ["retry", "restart", "rollback", "bypass", "ack", "delete"] : ["restart", "ack", "delete"];
  const found = [];
  if (["running", "rolling-back"].includes(info.phase)) found.push("kill");
  found.push(info.paused !== null || info.phase === "paused" ? "resume" : "pause", "abort", "bypass");
  return found;
}

/** Commands that only look, with their pages. @type {Record<string, [string, string]>} */
const LOOKS = { stack: ["/stack", "Stack"], why: ["", "Why"], show: ["", "Show"], steps: ["/steps", "Steps"], tree: ["/tree", "Tree"], logs: ["/logs", "Logs"], state: ["/state", "State"] };

const asking = () => import("./asking.js");
/** @param {any} app @param {string} verb @param {string} id @param {any} [set] Flags to begin with. */
export const askVerb = (app, verb, id, set = {}) => asking().then((dialogs) => dialogs.askVerb(app, verb, id, set));
export const askResize = (/** @type {any} */ app, /** @type {number} */ workers) => asking().then((dialogs) => dialogs.askResize(app, workers));
/** @param {any} app @param {string} key */
export const askClear = (app, key) => asking().then((dialogs) => dialogs.askClear(app, key));
/** @param {any} app @param {string} id */
export const askSignal = (app, id) => asking().then((dialogs) => dialogs.askSignal(app, id));
/** @param {any} app @param {string} verb @param {{filter?: any, ids?: string[]}} which */
export const askMany = (app, verb, which) => asking().then((dialogs) => dialogs.askMany(app, verb, which));

/** Buttons of the repairs of a cause, and its commands to type. @param {any} app @param {any} why */
export function repairs(app, why) {
  const found = (why.repairs_to_do || []).map((/** @type {any} */ repair) => {
    const { verb, id, flags = {}, command, says } = repair;
    let button = nothing;
    if (id && verb in LOOKS) button = html`<a class="button" href=${`procedures/${encodeURIComponent(id)}${LOOKS[verb][0]}`}>${LOOKS[verb][1]}</a>`;
    else if (!may(app, verb)) button = nothing;
    else if (verb === "clear-poison") button = html`<button @click=${() => askClear(app, id ?? repair.key)}>Clear the key</button>`;
    else if (verb === "signal") button = html`<button @click=${() => askSignal(app, id)}>Send a signal</button>`;
    else if (verb in VERBS) button = html`<button class=${VERBS[verb].tone || ""} @click=${() => askVerb(app, verb, id, flags)}>${VERBS[verb].name}${flags.force ? " by force" : ""}</button>`;
    return html`<li>${button} <span>${says || (verb in VERBS ? VERBS[verb].says : "")}${id && button !== nothing ? html` <span class="id">${id}</span>` : nothing}</span> <code class="command wide">${command}</code></li>`;
  });
  return found.length ? html`<h3>What can be done</h3><ul class="repairs">${found}</ul>` : nothing;
}
