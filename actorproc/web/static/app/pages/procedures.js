// Procedures: a list with its filters in the address, and verbs for the chosen ones or for all that match.
import { get, query } from "../api.js";
import { ago, count, PHASES, plural, procedureLink, progress, standing, STATES, stepOf, typeLink, whyOf } from "../format.js";
import { html, keyed, live, nothing, text as value } from "../html.js";
import { empty } from "../trouble.js";

export const title = () => "Procedures";
export const topics = () => ["procedures"];
const TEXTS = ["q", "type", "tag", "where", "owner", "since", "until"];
const FILTERS = [...TEXTS, "root", "parent", "prefix", "changed_since", "changed_until"];
const LIMIT = 50;

/** What the list asks for; names are those of the command line. @param {URLSearchParams} from */
export function filterOf(from) {
  const found = /** @type {Record<string, any>} */ ({});
  for (const name of FILTERS) if (from.get(name)) found[name] = from.get(name);
  for (const name of ["state", "phase"]) if (from.getAll(name).length) found[name] = from.getAll(name).flatMap((text) => text.split(","));
  for (const name of ["roots", "troubled"]) if (from.get(name)) found[name] = 1;
  return found;
}

/** @param {any} app @param {AbortSignal} signal */
export async function load(app, signal) {
  const answer = await get("procedures" + query({ ...filterOf(app.query), order: app.query.get("order"), after: app.query.get("after"), limit: LIMIT }), signal);
  app.own.chosen ??= new Set(app.query.getAll("sel"));
  return answer;
}

/** Rows change at once from what is told; the list is asked again for reasons, order and new ones. */
export function heard(/** @type {any} */ app, /** @type {string} */ name, /** @type {any} */ data) {
  if (name === "dirty" && app.data) {
    const told = new Map(data.rows.map((/** @type {any} */ row) => [row.id, row]));
    const gone = new Set(data.removed || []);
    app.data = { ...app.data, items: app.data.items.filter((/** @type {any} */ info) => !gone.has(info.id)).map((/** @type {any} */ info) => (told.has(info.id) ? { ...info, ...told.get(info.id) } : info)) };
  }
  return ["dirty", "many"].includes(name);
}

const words = (/** @type {Record<string, any>} */ filter) => Object.entries(filter).map(([name, value]) => (value === 1 ? name : `${name} ${[].concat(value).join(" or ")}`));

/** @param {any} app */
function filters(app) {
  const { query: now } = app;
  const set = (/** @type {any} */ event) => app.setQuery({ [event.target.name]: event.target.type === "checkbox" ? (event.target.checked ? "1" : null) : event.target.value.trim(), after: null });
  const text = (/** @type {string} */ name, /** @type {string} */ label, hint = "") =>
    html`<label>${label} <input type=${name === "q" ? "search" : "text"} name=${name} ${value(now.get(name) || "")} placeholder=${hint} @change=${set}></label>`;
  const pick = (/** @type {string} */ name, /** @type {string[]} */ all) => html`<label>${name} <select name=${name} @change=${set}>
      <option value="" ?selected=${!now.get(name)}>any</option>${all.map((one) => html`<option value=${one} ?selected=${now.get(name) === one}>${one}</option>`)}
      ${now.getAll(name).length > 1 || (now.get(name) && !all.includes(now.get(name) || "")) ? html`<option value=${now.get(name)} selected>${now.getAll(name).join(", ")}</option>` : nothing}</select></label>`;
  const check = (/** @type {string} */ name, /** @type {string} */ label) => html`<label class="check"><input type="checkbox" name=${name} .checked=${live(Boolean(now.get(name)))} @change=${set}> ${label}</label>`;
  const more = ["tag", "where", "owner", "since", "until", "root", "parent", "prefix"].some((name) => now.get(name));
  return html`<div class="filters" role="search" aria-label="Filter">
    ${text("q", "Search", "id, type, tag, reason, error")} ${pick("state", STATES)} ${pick("phase", PHASES)} ${text("type", "type")}
    ${check("roots", "roots only")} ${check("troubled", "in trouble")} ${pick("order", ["trouble", "newest", "oldest"])}
    <details ?open=${more}><summary>More filters</summary><div class="filters">${text("tag", "tag", "word, or key=value")} ${text("where", "searchable field", "field=value")} ${text("owner", "owner")} ${text("since", "created since", "2026-01-31T12:00")} ${text("until", "created until")} ${text("root", "root")} ${text("parent", "parent")} ${text("prefix", "id begins with")}</div></details>
    ${now.size ? html`<a href="procedures">Drop all filters</a>` : nothing}</div>`;
}

let toolbar = /** @type {any} */ (null);

/** Verbs for the chosen ones; loaded when the first one is chosen. @param {any} app */
function bulk(app) {
  if (!app.own.chosen.size || app.session?.read_only) return nothing;
  if (toolbar) return toolbar(app, filterOf(app.query), () => escaped(app));
  import("../bulk.js").then((found) => ((toolbar = found.toolbar), app.render()));
  return nothing;
}

export function escaped(/** @type {any} */ app) {
  app.own.chosen.clear();
  app.own.isAll = false;
  keep(app);
}

/** The chosen ones stand in the address too. @param {any} app */
const keep = (app) => {
  const some = [...app.own.chosen];
  const next = new URLSearchParams(location.search);
  next.delete("sel");
  if (some.length <= 20) for (const id of some) next.append("sel", id);
  history.replaceState(null, "", new URL(app.path + (next.size ? "?" + next : ""), document.baseURI));
  app.query = next;
  app.render();
};

/** @param {any} app */
export function view(app) {
  const { items, next, total, searched } = app.data;
  const { chosen } = app.own;
  const filter = filterOf(app.query);
  const choose = (/** @type {string} */ id) => (/** @type {any} */ event) => {
    chosen[event.target.checked ? "add" : "delete"](id);
    app.own.isAll = false;
    keep(app);
  };
  const all = (/** @type {any} */ event) => {
    for (const info of items) chosen[event.target.checked ? "add" : "delete"](info.id);
    app.own.isAll = false;
    keep(app);
  };
  const isOperator = !app.session?.read_only;
  return html`<h1 tabindex="-1">Procedures</h1>${filters(app)}
    ${bulk(app)}
    ${items.length === 0 ? nothingFound(app, filter, next) : html`<div class="scroll" tabindex="0" role="region" aria-label="Procedures, as a table"><table class="list">
      <thead><tr>${isOperator ? html`<th><input type="checkbox" aria-label="Choose all shown" .checked=${live(items.every((/** @type {any} */ info) => chosen.has(info.id)))} @change=${all}></th>` : nothing}
        <th>Id</th><th>Phase</th><th>Type</th><th>Step</th><th class="number wide">Attempt</th><th class="wide">Age</th><th>Changed</th><th class="wide">Progress</th><th>Why</th></tr></thead>
      <tbody>${keyed(items, (/** @type {any} */ info) => info.id, (info) => html`<tr data-row data-id=${info.id} class=${chosen.has(info.id) ? "chosen" : ""}>
        ${isOperator ? html`<td><input type="checkbox" aria-label=${`Choose ${info.id}`} .checked=${live(chosen.has(info.id))} @change=${choose(info.id)}></td>` : nothing}
        <td>${procedureLink(info.id)}</td><td>${standing(info)}</td><td>${typeLink(info.type_name)}</td><td>${stepOf(info)}</td>
        <td class="number wide">${info.attempt}</td><td class="wide">${ago(info.created_at)}</td><td>${ago(info.finished_at || info.updated_at)}</td>
        <td class="wide">${progress(info.progress)}</td><td class="why"><div class="clip" title=${whyOf(info)}>${whyOf(info)}</div></td></tr>`)}</tbody></table></div>`}
    <p class="pages">${total !== null && total !== undefined ? html`<span class="muted">${plural(total, "procedure")} in all</span>` : nothing}
      ${searched ? html`<span class="muted">The search looked at ${count(searched)} procedures.</span>` : nothing}
      ${app.query.get("after") ? html`<a href=${"procedures" + query({ ...filter, order: app.query.get("order") })}>First page</a>` : nothing}
      ${next ? html`<a rel="next" href=${"procedures" + query({ ...filter, order: app.query.get("order"), after: next })}>Next ${LIMIT}</a>` : nothing}</p>`;
}

function nothingFound(/** @type {any} */ app, /** @type {any} */ filter, /** @type {any} */ next) {
  const found = words(filter);
  if (!found.length) return empty("There is no procedure in this store yet.", html`<p><a href=".">The overview shows a first program.</a></p>`);
  return empty(html`Nothing ${next ? "of this part " : ""}matches ${found.map((word) => html`<b>${word}</b> `)}.`, html`<p>Drop a filter: ${Object.keys(filter).map((name) => html`<button class="quiet" @click=${() => app.setQuery({ [name]: null, after: null })}>without ${name}</button> `)}</p>`);
}

/** Key a: verbs for the chosen ones, else for the row with the focus. @param {any} app */
export function act(app) {
  if (!app.own.chosen?.size) return null;
  const ids = [...app.own.chosen];
  if (ids.length === 1) return import("../keys.js").then(({ actions }) => actions(app, ids[0]));
  /** @type {HTMLElement | null} */ (document.querySelector(".bulk button"))?.focus();
  return true;
}
