// Locks: who waits for whom, as a graph and as a table in queue order, and the poisoned keys.
import { get, query } from "../api.js";
import { ago, count, duration, keyLink, plural, procedureLink } from "../format.js";
import { details, html, keyed, nothing } from "../html.js";
import { empty } from "../trouble.js";
import { askClear, may } from "../verbs.js";

export const title = (/** @type {any} */ app) => (app.params[0] ? `Key ${app.params[0]}` : "Locks");
export const topics = () => ["locks"];
export const heard = (/** @type {any} */ _app, /** @type {string} */ name) => name === "locks";
let graph = /** @type {any} */ (null);

/** @param {any} app @param {AbortSignal} signal */
export async function load(app, signal) {
  const key = app.params[0];
  const [locks, found, poisons] = await Promise.all([
    get("locks" + query({ key, limit: 200, waited: key || app.query.get("all") ? "" : "1", after: app.query.get("after") }), signal),
    get("locks/graph", signal),
    get("poisons", signal),
    details(),
  ]);
  if (found.edges.some((/** @type {any} */ edge) => !edge.held)) graph ??= await import("../graph.js");
  return { locks: locks.items, next: locks.next, graph: found, poisons: poisons.items.filter((/** @type {any} */ one) => !key || one.path === key) };
}

const row = (/** @type {any} */ lock) => html`<tr data-row data-id=${lock.holder}><td>${keyLink(lock.path)}</td><td>${lock.mode}</td><td>${procedureLink(lock.holder)}</td>
  <td class="number">${duration(lock.age)}</td><td class="number">${count(lock.waiters.length)}</td>
  <td>${lock.waiters.length ? html`<ol class="queue">${lock.waiters.slice(0, 12).map((/** @type {any} */ waiter) => html`<li>${procedureLink(waiter.procedure)} <span class="muted">${waiter.mode}</span></li>`)}</ol>${lock.waiters.length > 12 ? html`<span class="muted">and ${count(lock.waiters.length - 12)} more</span>` : nothing}` : nothing} ${lock.reason || ""}</td></tr>`;

/** @param {any} app */
export function view(app) {
  const { locks, next, graph: found, poisons } = app.data;
  const key = app.params[0];
  const isAll = Boolean(key || app.query.get("all"));
  return html`<h1 tabindex="-1">${key ? html`Key <span class="key">${key}</span>` : "Locks"}</h1>
    ${key ? html`<p><a href="locks">All locks</a></p>` : nothing}
    ${found.cycles.map((/** @type {string[]} */ cycle) => html`<p class="banner bad">A circle: ${cycle.map((id) => html`${procedureLink(id)} → `)}${procedureLink(cycle[0])}</p>`)}
    ${found.roots.length && !key ? html`<p>Look first at ${found.roots.slice(0, 5).map((/** @type {string} */ id) => html`${procedureLink(id)} `)}<span class="muted">: ${found.roots.length === 1 ? "it holds" : "they hold"} what others wait for, and ${found.roots.length === 1 ? "waits" : "wait"} for nothing.</span></p>` : nothing}
    ${graph && found.edges.some((/** @type {any} */ edge) => !edge.held) ? graph.draw(found, key) : nothing}
    <section aria-labelledby="table"><h2 id="table">${isAll ? "Locks" : "Locks that are waited for"}</h2>
    ${locks.length === 0 ? empty(key ? "The key is free: it is not held." : isAll ? "No lock is held." : "Nothing waits for a lock.") : html`<div class="scroll" tabindex="0" role="region" aria-label="Locks, as a table"><table>
      <thead><tr><th>Key</th><th>Mode</th><th>Holder</th><th class="number">For</th><th class="number">Wait</th><th>Queue</th></tr></thead><tbody>${keyed(locks, (/** @type {any} */ lock) => `${lock.path} ${lock.holder}`, row)}</tbody></table></div>`}
    <p class="pages">${key ? nothing : isAll ? html`<a href="locks">Only those waited for</a>` : html`<a href="locks?all=1">${plural(found.keys.length, "held key")} in all</a>`}
      ${next ? html`<a href=${"locks" + query({ all: app.query.get("all"), after: next })}>Next</a>` : nothing}</p></section>
    ${poisons.length ? html`<section aria-labelledby="poisons"><h2 id="poisons">${plural(poisons.length, "poisoned key")}</h2><div class="scroll" tabindex="0" role="region" aria-label="Poisoned keys, as a table"><table>
      <thead><tr><th>Key</th><th>By</th><th>Since</th><th>Reason</th><th>Act</th></tr></thead>
      <tbody>${keyed(poisons, (/** @type {any} */ poison) => poison.path, (poison) => html`<tr data-row data-id=${poison.by}><td>${keyLink(poison.path)}</td><td>${procedureLink(poison.by)}</td><td>${ago(poison.at)}</td><td>${poison.reason}${poison.others.length ? html` <span class="muted">also by ${poison.others.join(", ")}</span>` : nothing}</td>
      <td>${may(app, "clear-poison") ? html`<button @click=${() => askClear(app, poison.path)} aria-label=${`Clear ${poison.path}`}>Clear</button>` : nothing}</td></tr>`)}</tbody></table></div></section>` : nothing}`;
}
