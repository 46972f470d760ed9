// Activity: who asked for what, why, and what came of it.
import { get, query } from "../api.js";
import { clock, ago, procedureLink } from "../format.js";
import { html, keyed, nothing, text } from "../html.js";
import { empty } from "../trouble.js";

export const title = () => "Activity";
export const topics = () => ["activity"];
export const heard = (/** @type {any} */ _app, /** @type {string} */ name) => name === "activity";
const FIELDS = ["verb", "by", "since", "until"];

export const load = (/** @type {any} */ app, /** @type {AbortSignal} */ signal) =>
  get("activity" + query({ ...Object.fromEntries(FIELDS.map((name) => [name, app.query.get(name)])), limit: 100, after: app.query.get("after") }), signal);

/** @param {any[]} rows */
export const activityRows = (rows) => html`<div class="scroll" tabindex="0" role="region" aria-label="Requests, as a table"><table>
  <thead><tr><th>When</th><th>Verb</th><th>Procedure</th><th>By</th><th>Reason</th><th>What came of it</th></tr></thead>
  <tbody>${keyed(rows, (row) => `${row.at} ${row.verb} ${row.id}`, (row) => html`<tr data-row data-id=${row.id || nothing}><td title=${clock(row.at)}>${ago(row.at, " ago")}</td><td><b>${row.verb}</b></td>
    <td>${row.id ? procedureLink(row.id) : html`<span class="muted">the store</span>`}</td><td>${row.by ?? ""}</td><td>${row.reason ?? ""}</td><td>${row.detail}</td></tr>`)}</tbody></table></div>`;

/** @param {any} app */
export function view(app) {
  const { items, next } = app.data;
  const set = (/** @type {any} */ event) => app.setQuery({ [event.target.name]: event.target.value.trim(), after: null });
  return html`<h1 tabindex="-1">Activity</h1>
    <div class="filters">${FIELDS.map((name) => html`<label>${name} <input type=${name === "verb" ? "search" : "text"} name=${name} ${text(app.query.get(name) || "")} placeholder=${name === "since" || name === "until" ? "2026-01-31T12:00" : ""} @change=${set}></label>`)}</div>
    ${items.length ? activityRows(items) : empty(app.query.size ? "No request matches. Drop a filter." : "No operator asked for anything yet.")}
    <p class="pages">${app.query.get("after") ? html`<a href="activity">Newest</a>` : nothing} ${next ? html`<a href=${"activity" + query({ ...Object.fromEntries(app.query), after: next })}>Older</a>` : nothing}</p>`;
}
