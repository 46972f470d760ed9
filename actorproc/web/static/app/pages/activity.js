// Activity: who asked for what, why, and what came of it; and workers that died.
import { get, query } from "../api.js";
import { attemptTable, restartsOf } from "../attempts.js";
import { plural } from "../format.js";
import { html, nothing, text } from "../html.js";
import { activityRows } from "../requests.js";
import { empty } from "../trouble.js";

export const title = () => "Activity";
export const topics = () => ["activity", "workers"];

export function heard(/** @type {any} */ app, /** @type {string} */ name, /** @type {any} */ data) {
  if (name !== "workers") return name === "activity";
  const before = app.own.restarts;
  app.own.restarts = restartsOf(data.items);
  return before !== undefined && before !== app.own.restarts; // one has died
}
const FIELDS = ["verb", "by", "since", "until"];

export async function load(/** @type {any} */ app, /** @type {AbortSignal} */ signal) {
  const asked = get("activity" + query({ ...Object.fromEntries(FIELDS.map((name) => [name, app.query.get(name)])), limit: 100, after: app.query.get("after") }), signal);
  const [answer, deaths] = await Promise.all([asked, get("deaths", signal)]);
  return { ...answer, deaths: deaths.items, causes: Object.entries(deaths.by_cause) };
}

/** @param {any} app */
export function view(app) {
  const { items, next, deaths, causes } = app.data;
  const set = (/** @type {any} */ event) => app.setQuery({ [event.target.name]: event.target.value.trim(), after: null });
  return html`<h1 tabindex="-1">Activity</h1>
    <div class="filters">${FIELDS.map((name) => html`<label>${name} <input type=${name === "verb" ? "search" : "text"} name=${name} ${text(app.query.get(name) || "")} placeholder=${name === "since" || name === "until" ? "2026-01-31T12:00" : ""} @change=${set}></label>`)}</div>
    ${items.length ? activityRows(items) : empty(app.query.size ? "No request matches. Drop a filter." : "No operator asked for anything yet.")}
    <p class="pages">${app.query.get("after") ? html`<a href="activity">Newest</a>` : nothing} ${next ? html`<a href=${"activity" + query({ ...Object.fromEntries(app.query), after: next })}>Older</a>` : nothing}</p>
    <section aria-labelledby="deaths"><h2 id="deaths">Worker deaths</h2>
      ${causes.length ? html`<p class="muted">Since the manager started: ${causes.map(([cause, n]) => `${plural(n, "death")} (${cause})`).join(", ")}.</p>` : nothing}
      ${deaths.length ? attemptTable(deaths, "Worker deaths", true) : html`<p class="muted">No worker died with a step in hand.</p>`}</section>`;
}
