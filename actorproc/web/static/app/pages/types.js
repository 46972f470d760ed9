// Types: how many there are of each; of one its steps with their times, failures in groups, and what runs and waits.
import { get, query } from "../api.js";
import { count, duration, procedureLink, shortType, standing, stepOf, whyOf } from "../format.js";
import { html, keyed, nothing } from "../html.js";
import { empty } from "../trouble.js";
import { failureTable } from "./overview.js";

export const title = (/** @type {any} */ app) => (app.params[0] ? shortType(app.params[0]) : "Types");
export const topics = () => ["procedures"];
export const heard = (/** @type {any} */ _app, /** @type {string} */ name) => ["dirty", "many"].includes(name);
export const load = (/** @type {any} */ app, /** @type {AbortSignal} */ signal) => get(app.params[0] ? `types/${encodeURIComponent(app.params[0])}` : "types", signal);

/** @param {any} app */
export function view(app) {
  return app.params[0] ? one(app.data) : all(app.data.items);
}

const all = (/** @type {any[]} */ items) => html`<h1 tabindex="-1">Types</h1><p class="muted">Ends are counted since the manager started.</p>
  ${items.length === 0 ? empty("No procedure was submitted yet.") : html`<div class="scroll" tabindex="0" role="region" aria-label="Types, as a table"><table>
  <thead><tr><th>Type</th><th class="number">Unfinished</th><th class="number">Submitted</th><th class="number">Succeeded</th><th class="number">Failed</th><th class="number">Rolled back</th><th>Class</th></tr></thead>
  <tbody>${keyed(items, (type) => type.type_name, (type) => html`<tr data-row><td><a href=${`types/${encodeURIComponent(type.type_name)}`}>${type.type_name}</a></td>
    <td class="number"><a href=${`procedures?type=${encodeURIComponent(type.type_name)}`}>${count(type.unfinished)}</a></td>
    ${["submitted", "succeeded", "failed", "rolledback"].map((name) => html`<td class="number">${type.since_start ? count(type.since_start[name]) : ""}</td>`)}
    <td>${type.registered === false ? html`<span class="badge bad">not registered</span>` : type.registered ? "registered" : html`<span class="muted">not known without a manager</span>`}</td></tr>`)}</tbody></table></div>`}`;

const list = (/** @type {string} */ name, /** @type {any[]} */ items) => html`<section aria-label=${name}><h2>${name}</h2>
  ${items?.length ? html`<ul class="cards">${keyed(items, (info) => info.id, (info) => html`<li data-row data-id=${info.id}>${standing(info)} ${procedureLink(info.id)} <span class="muted">step ${stepOf(info)}</span><div class="clip">${whyOf(info)}</div></li>`)}</ul>` : html`<p class="muted">None.</p>`}</section>`;

/** @param {any} type */
const one = (type) => html`<h1 tabindex="-1">${shortType(type.type_name)}</h1>
  <p class="muted">${type.type_name} · <a href="types">all types</a></p>
  ${type.since_start ? html`<p>Since the manager started: ${[["submitted", ""], ["succeeded", "SUCCESS"], ["failed", "FAILED"], ["rolledback", "ROLLEDBACK"]].map(([name, state]) => html`<a class="chip" href=${"procedures" + query({ type: type.type_name, state })}>${name} <b>${count(type.since_start[name])}</b></a> `)}</p>` : nothing}
  <section aria-labelledby="steps"><h2 id="steps">Steps, since the manager started</h2>
  ${type.steps?.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Steps, as a table"><table><thead><tr><th>Step</th><th class="number">Run</th><th class="number">Failed</th><th class="number">Crashed</th><th class="number">Mean</th><th class="number">Half within</th><th class="number">99 % within</th></tr></thead>
    <tbody>${keyed(type.steps, (/** @type {any} */ step) => step.step, (step) => html`<tr data-row><td>${step.step}</td><td class="number">${count(step.run)}</td><td class="number">${count(step.failed)}</td><td class="number">${count(step.crashed)}</td><td class="number">${duration(step.mean)}</td><td class="number">${duration(step.p50)}</td><td class="number">${duration(step.p99)}</td></tr>`)}</tbody></table></div>` : html`<p class="muted">No step has run since, or no manager runs.</p>`}</section>
  <section aria-labelledby="groups"><h2 id="groups">Failures in groups</h2>${type.failures?.length ? failureTable(type.failures) : html`<p class="muted">None.</p>`}</section>
  ${list("Unfinished", type.unfinished)}`;
