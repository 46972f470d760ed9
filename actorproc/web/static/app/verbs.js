// Verbs of an operator, and which of them fit. Their dialogs are loaded when the first one is opened.
import { html, nothing } from "./html.js";

/** Title, effect and flags of each verb, by its path: the words of the command line and of the live screen.
 * @param {any} app @returns {Record<string, {title: string, says: string, flags: Record<string, string>, many: boolean, harmful: boolean}>} */
export const wordsOf = (app) => app.session?.words ?? {};

/** Class of a button. @param {any} known */
export const toneOf = (known) => (known.harmful ? "bad" : "");

/** True if this session may do it. @param {any} app @param {string} verb */
export const may = (app, verb) => !app.session?.read_only && (!app.session?.verbs || app.session.verbs.includes(verb));

/** Verbs that fit what a procedure does now. @param {any} info */
export function fitting(info) {
  if (info.phase === "done") return info.state === "FAILED" ? ["retry", "rollback", "bypass", "restart", "ack", "delete"] : ["restart", "ack", "delete"];
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
  const words = wordsOf(app);
  const found = (why.repairs_to_do || []).map((/** @type {any} */ repair) => {
    const { verb, id, flags = {}, command, says } = repair;
    let button = nothing;
    if (id && verb in LOOKS) button = html`<a class="button" href=${`procedures/${encodeURIComponent(id)}${LOOKS[verb][0]}`}>${LOOKS[verb][1]}</a>`;
    else if (!may(app, verb)) button = nothing;
    else if (verb === "clear-poison") button = html`<button @click=${() => askClear(app, id ?? repair.key)}>Clear the key</button>`;
    else if (verb === "signal") button = html`<button @click=${() => askSignal(app, id)}>Send a signal</button>`;
    else if (words[verb]) button = html`<button class=${toneOf(words[verb])} @click=${() => askVerb(app, verb, id, flags)}>${words[verb].title}${flags.force ? " by force" : ""}</button>`;
    return html`<li>${button} <span>${says || words[verb]?.says || ""}${id && button !== nothing ? html` <span class="id">${id}</span>` : nothing}</span> <code class="command wide">${command}</code></li>`;
  });
  return found.length ? html`<h3>What can be done</h3><ul class="repairs">${found}</ul>` : nothing;
}
