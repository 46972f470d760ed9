// Overview: health in words, problems, counts, rates, failures in groups, and what happened last.
import { get } from "../api.js";
import { rates } from "../chart.js";
import { ago, badge, bytes, count, duration, keyLink, plural, procedureLink, shortType, standing, stepOf, typeLink, whyOf } from "../format.js";
import { html, keyed, nothing } from "../html.js";
import { activityRows } from "../requests.js";
import { healthOf } from "../shell.js";
import { empty } from "../trouble.js";
import { askClear, may } from "../verbs.js";

export const title = () => "Overview";
export const topics = () => ["procedures", "activity"];

/** @param {any} app @param {AbortSignal} signal */
export async function load(app, signal) {
  const part = (/** @type {string} */ path) => get(path, signal);
  const status = await part("status");
  app.status = { ...app.status, ...status };
  const rest = Promise.all([
    part("failures"),
    part("procedures?troubled=1&limit=8"),
    part("procedures?phase=locked-out&limit=4"),
    part("poisons"),
    part("activity?limit=8"),
  ]);
  const whole = rest.then(([failures, troubled, locked, poisons, activity]) => ({
    status, failures: failures.items, troubled: [...troubled.items, ...locked.items], poisons: poisons.items, activity: activity.items,
  }));
  if (app.data) return whole;
  // At first the numbers are shown at once, and the lists when they are there.
  const { page } = app;
  whole.then((data) => app.page === page && (Object.assign(app, { data }), app.render()), () => !signal.aborted && app.soon());
  return { status, failures: [], troubled: null, poisons: [], activity: [] };
}

export const heard = (/** @type {any} */ _app, /** @type {string} */ name) => ["dirty", "many", "activity"].includes(name);

const tile = (/** @type {any} */ name, /** @type {any} */ value, /** @type {any} */ more = nothing) =>
  html`<div class="tile"><dt>${name}</dt><dd>${value}</dd>${more === nothing ? nothing : html`<dd class="muted">${more}</dd>`}</div>`;

const counts = (/** @type {string} */ field, /** @type {Record<string, number>} */ found) =>
  html`<ul class="chips">${Object.entries(found || {}).filter(([, n]) => n).map(([word, n]) => html`<li><a class="chip" href=${`procedures?${field}=${encodeURIComponent(word)}`}>${badge(word)} <b>${count(n)}</b></a></li>`)}</ul>`;

const firstProgram = `from actorproc import ProcedureManager, Saga, step

class Hello(Saga):
    name: str

    @step
    def greet(self):
        print("hello", self.name)

with ProcedureManager("state") as manager:
    manager.register(Hello)
    manager.run(Hello("world"))`;

/** @param {any} app */
export function view(app) {
  const { failures, troubled, poisons, activity } = app.data;
  const status = { ...app.data.status, ...app.status };
  if (!status.procedures && !Object.values(status.states || {}).some(Boolean)) {
    return html`<h1 tabindex="-1">Overview</h1>${empty("The store is empty. A first program:", html`<pre tabindex="0">${firstProgram}</pre>`)}`;
  }
  const health = healthOf(status);
  const speed = status.rates || {};
  return html`<h1 tabindex="-1">Overview</h1>
    <dl class="tiles">
      ${tile("Health", badge(health), status.pid ? `pid ${status.pid}${status.uptime ? `, up ${duration(status.uptime)}` : ""}` : nothing)}
      ${tile("Workers busy", status.workers === undefined ? "–" : `${count(status.busy)} of ${count(status.workers)}`, html`<a href="workers">${plural(status.queued || 0, "step")} queued</a>`)}
      ${tile("Ended a second", (speed.ended ?? 0).toFixed(1), `${(speed.steps ?? 0).toFixed(1)} steps, ${(speed.commits ?? 0).toFixed(1)} commits`)}
      ${tile("Waiting for locks", html`<a href="locks">${count(status.lock_waiting)}</a>`, `${plural(status.locks || 0, "lock")} held`)}
      ${tile("Oldest unfinished", status.oldest?.id ? procedureLink(status.oldest.id) : "–", status.oldest?.created_at ? ago(status.oldest.created_at, " old") : nothing)}
      ${tile("Store", bytes(status.used_bytes), plural(status.procedures || 0, "procedure"))}
    </dl>
    <section aria-labelledby="troubled"><h2 id="troubled">In trouble</h2>
      ${troubled === null ? html`<p class="loading">Loading …</p>` : troubled.length === 0 ? empty("Nothing is stuck, parked, locked out or failed.") : html`<ul class="cards">${keyed(troubled, (/** @type {any} */ info) => info.id, (info) => html`<li data-row data-id=${info.id}>
        ${standing(info)} ${procedureLink(info.id)} <span class="muted">${shortType(info.type_name)}, step ${stepOf(info)}, ${ago(info.updated_at)}</span><div class="clip">${whyOf(info)}</div></li>`)}</ul>
        <p><a href="procedures?troubled=1">All in trouble</a> · <a href="procedures?phase=locked-out">All that wait for locks</a></p>`}
    </section>
    ${poisons.length ? html`<section aria-labelledby="poisons"><h2 id="poisons">Poisoned keys</h2><ul class="cards">${keyed(poisons, (/** @type {any} */ poison) => poison.path, (poison) => html`<li data-row>
      ${keyLink(poison.path)} by ${procedureLink(poison.by)} <span class="muted">${ago(poison.at, " ago")}</span><div class="clip">${poison.reason}</div>
      ${may(app, "clear-poison") ? html`<button @click=${() => askClear(app, poison.path)}>Clear</button>` : nothing}</li>`)}</ul></section>` : nothing}
    ${failures.length ? html`<section aria-labelledby="failures"><h2 id="failures">Failures in groups</h2>${failureTable(failures)}</section>` : nothing}
    <section aria-labelledby="counts"><h2 id="counts">Procedures</h2>
      ${counts("state", status.states)} ${counts("phase", status.phases)}
      <ul class="chips">${Object.entries(status.types || {}).map(([name, n]) => html`<li class="chip">${typeLink(name)} <b>${count(/** @type {number} */ (n))}</b></li>`)}</ul>
    </section>
    <section aria-labelledby="rates"><h2 id="rates">Rates</h2>${rates(speed)}</section>
    <section aria-labelledby="recent"><h2 id="recent">Last requests</h2>${activity.length ? activityRows(activity) : empty("No operator asked for anything yet.")}
      <p><a href="activity">All activity</a></p></section>`;
}

/** @param {any[]} failures */
export const failureTable = (failures) => html`<div class="scroll" tabindex="0" role="region" aria-label="Failures in groups, as a table"><table>
  <thead><tr><th class="number">Count</th><th>Type</th><th>Step</th><th>Error</th><th>Newest</th><th>Message</th></tr></thead>
  <tbody>${keyed(failures, (group) => `${group.type_name} ${group.step} ${group.error}`, (group) => html`<tr data-row>
    <td class="number">${count(group.count)}</td>
    <td><a href=${`procedures?type=${encodeURIComponent(group.type_name)}&troubled=1`}>${shortType(group.type_name)}</a></td>
    <td>${group.step}</td><td class="bad">${group.error}</td>
    <td>${ago(group.newest_at, " ago")}</td>
    <td><div class="clip">${group.message}</div>${group.ids.map((/** @type {string} */ id) => html`${procedureLink(id)} `)}</td></tr>`)}</tbody></table></div>`;
