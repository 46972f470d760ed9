// One procedure: why it stands where it stands, and its steps, tree, times, states, logs, stack and audit, each a page of its own.
import { get, procedure as at } from "../api.js";
import { plural, standing, stepOf, typeLink, procedureLink } from "../format.js";
import { details, html, nothing } from "../html.js";
import { askVerb, fitting, may, toneOf, wordsOf } from "../verbs.js";

const TABS = [["", "Why"], ["steps", "Steps"], ["tree", "Tree"], ["timeline", "Timeline"], ["state", "State"], ["logs", "Logs"], ["stack", "Stack"], ["audit", "Audit"]];
const FILES = { "": "why", steps: "steps", tree: "tree", timeline: "timeline", state: "state", logs: "logs", stack: "stack", audit: "audit" };
let tab = /** @type {any} */ (null);

export const title = (/** @type {any} */ app) => [app.params[0], app.params[1]].filter(Boolean).join(" ");
export const topics = (/** @type {any} */ app) => [`procedure:${app.params[0]}`, ...(app.params[1] === "logs" ? [`log:${app.params[0]}`] : [])];

/** @param {any} app @param {AbortSignal} signal */
export async function load(app, signal) {
  const [id, name = ""] = app.params;
  const file = FILES[/** @type {keyof typeof FILES} */ (name)];
  if (!file) throw Object.assign(new Error(`There is no page ${name} of a procedure.`), { status: 404, code: "no-page", do: "", body: {} });
  const [info, module] = await Promise.all([get(at(id), signal), import(`../tabs/${file}.js`), details()]);
  const part = await module.load(app, info, signal);
  tab = module;
  return { info, part, file };
}

/** @param {any} app @param {string} name @param {any} data */
export function heard(app, name, data) {
  const id = app.params[0];
  if (tab?.heard?.(app, name, data)) return true;
  if (name === "many") return true;
  if (name !== "dirty") return false;
  return (data.removed || []).includes(id) || data.rows.some((/** @type {any} */ row) => row.id === id || row.root === id || row.root === app.data?.info.root_id);
}

/** @param {any} app */
export function view(app) {
  const { info } = app.data;
  const id = info.id;
  const verbs = fitting(info).filter((verb) => may(app, verb));
  return html`<h1 tabindex="-1" class="id">${id}</h1>
    <p class="under">${standing(info)} <span>${typeLink(info.type_name)}, step ${stepOf(info)}${info.attempt > 1 ? `, attempt ${info.attempt}` : ""}</span>
      ${info.parent_id ? html`<span class="muted">below ${procedureLink(info.parent_id)}${info.root_id !== info.parent_id ? html` of ${procedureLink(info.root_id)}` : nothing}</span>` : nothing}
      ${Object.keys(info.children || {}).length ? html`<a href=${`procedures/${encodeURIComponent(id)}/tree`}>${plural(Object.values(info.children).reduce((/** @type {number} */ sum, /** @type {any} */ n) => sum + n, 0), "child", "children")}</a>` : nothing}
      <span class="verbs">${verbs.slice(0, 3).map((verb) => html`<button class=${toneOf(wordsOf(app)[verb])} @click=${() => askVerb(app, verb, id)}>${wordsOf(app)[verb].title}</button>`)}
      ${verbs.length > 3 ? html`<button @click=${() => import("../keys.js").then(({ actions }) => actions(app, id))}>More …</button>` : nothing}</span></p>
    <nav class="tabs" aria-label=${`Pages of ${id}`}>${TABS.map(([name, label]) => {
      const href = `procedures/${encodeURIComponent(id)}${name ? "/" + name : ""}`;
      return app.params[1] === name ? html`<a href=${href} aria-current="page">${label}</a>` : html`<a href=${href}>${label}</a>`;
    })}</nav>
    ${tab.view(app, info, app.data.part)}`;
}

export const drawn = (/** @type {any} */ app) => app.data && tab?.drawn?.(app, app.data.part);
export const pressed = (/** @type {any} */ app, /** @type {string} */ key) => tab?.pressed?.(app, key);
export const closed = (/** @type {any} */ app) => tab?.closed?.(app);
