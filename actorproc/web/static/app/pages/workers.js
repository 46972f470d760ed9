// Workers: each with its step, for how long, its share of a core and its memory; the step can be killed from here.
import { get } from "../api.js";
import { endOf, restartsOf } from "../attempts.js";
import { ago, badge, bytes, count, duration, progress, procedureLink } from "../format.js";
import { details, html, keyed, nothing, svg } from "../html.js";
import { empty } from "../trouble.js";
import { askResize, askVerb, may } from "../verbs.js";

const KEPT = 60;
export const title = () => "Workers";
export const topics = () => ["workers"];

/** @param {any} app @param {AbortSignal} signal */
export async function load(app, signal) {
  const [answer, hosts, deaths] = await Promise.all([get("workers", signal), get("hosts", signal), get("deaths?limit=200", signal), details()]);
  remember(app, answer.items);
  return { ...answer, hosts: hosts.items, deaths: deaths.items };
}

/** @param {any} app @param {any[]} items */
function remember(app, items) {
  const before = app.own.seen || new Map();
  app.own.seen = new Map(items.map((worker) => {
    const key = `${worker.host || ""} ${worker.slot}.${worker.incarnation}`;
    const { cpu, rss } = before.get(key) || { cpu: [], rss: [] };
    return [key, { cpu: [...cpu, worker.cpu_percent ?? 0].slice(-KEPT), rss: [...rss, worker.rss ?? 0].slice(-KEPT) }];
  }));
}

export function heard(/** @type {any} */ app, /** @type {string} */ name, /** @type {any} */ data) {
  if (name !== "workers" || !app.data) return false;
  const isOther = restartsOf(data.items) !== restartsOf(app.data.items);
  app.data = { ...app.data, items: data.items, hosts: data.hosts };
  app.at = Date.now();
  remember(app, data.items);
  return isOther; // one has died
}

/** The last death of a slot, in words. @param {any} app @param {any} worker */
function death(app, worker) {
  const one = app.data.deaths.find((/** @type {any} */ other) => other.slot === worker.slot);
  return one ? html`<div class="clip" title=${one.error.message}>${endOf(one)} ${ago(one.ended_at, " ago")}: ${one.error.message}</div>` : nothing;
}

/** @param {any[]} hosts */
const hostTable = (hosts) => html`<section aria-labelledby="hosts"><h2 id="hosts">Hosts</h2><div class="scroll" tabindex="0" role="region" aria-label="Hosts, as a table"><table>
  <thead><tr><th>Host</th><th>Machine</th><th>State</th><th class="number">Busy</th><th>Offers</th><th>Heard</th><th class="number">Round trip</th><th class="number">Not acknowledged</th><th class="number">Resumes</th><th>Joined</th><th>Address</th></tr></thead>
  <tbody>${keyed(hosts, (host) => host.name, (host) => html`<tr data-row><td>${host.name}</td><td>${host.machine} <span class="muted">pid ${host.pid}</span></td><td>${badge(host.state)}</td><td class="number">${count(host.busy)} of ${count(host.workers)}</td>
    <td>${[...host.labels, ...Object.entries(host.resources).map(([name, much]) => `${name} ${much}`)].join(", ")}</td><td>${duration(host.silent_for)} ago</td><td class="number">${host.round_trip === null ? "–" : duration(host.round_trip)}</td>
    <td class="number">${bytes(host.outstanding)}</td><td class="number">${count(host.resumes)}</td><td>${ago(host.joined_at, " ago")}</td><td>${host.address}</td></tr>`)}</tbody></table></div></section>`;

/** A line of the last values; the number stands beside it. @param {number[]} series */
function spark(series) {
  const top = Math.max(...series, 1e-9);
  const points = series.map((value, at) => `${((at / (KEPT - 1)) * 60).toFixed(1)},${(15 - (value / top) * 14).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 60 16" aria-hidden="true">${svg`<polyline points=${points}></polyline>`}</svg>`;
}

/** @param {any} app */
export function view(app) {
  const items = app.data.items;
  const { hosts } = app.data;
  const isSpread = hosts.length > 0;
  const age = (Date.now() - app.at) / 1000;
  const resize = may(app, "resize") ? html` <button @click=${() => askResize(app, app.data.slots)}>Resize …</button>` : nothing;
  return html`<h1 tabindex="-1">Workers</h1>
    ${items.length === 0 ? empty("No worker runs: either no manager is up, or it has started none yet.", resize) : html`<p class="muted">${count(items.filter((/** @type {any} */ w) => w.procedure).length)} of ${count(items.length)} at a step ${resize}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Workers, as a table"><table>
      <thead><tr>${isSpread ? html`<th>Host</th>` : nothing}<th>Slot</th><th>Pid</th><th>State</th><th>Procedure</th><th>Step</th><th class="number">For</th><th class="number">CPU</th><th class="number">Memory</th><th class="number">Restarts</th><th>Last death</th><th>Says</th><th>Act</th></tr></thead>
      <tbody>${keyed(items, (/** @type {any} */ w) => `${w.host || ""} ${w.slot}.${w.incarnation}`, (worker) => {
        const seen = app.own.seen?.get(`${worker.host || ""} ${worker.slot}.${worker.incarnation}`) || { cpu: [], rss: [] };
        return html`<tr data-row data-id=${worker.procedure ?? nothing}>
          ${isSpread ? html`<td>${worker.host}</td>` : nothing}
          <td>${worker.slot}</td><td>${worker.pid}</td><td>${badge(worker.state)}</td>
          <td>${worker.procedure ? procedureLink(worker.procedure) : nothing}</td>
          <td>${worker.step === null ? "" : `${worker.step} ${worker.step_name || ""}`}${worker.attempt > 1 ? `, attempt ${worker.attempt}` : ""}</td>
          <td class="number">${worker.step_age === null ? "" : duration(worker.step_age + age)}</td>
          <td class="number">${spark(seen.cpu)} ${worker.cpu_percent === null || worker.cpu_percent === undefined ? "–" : `${Math.round(worker.cpu_percent)} %`}</td>
          <td class="number">${spark(seen.rss)} ${bytes(worker.rss)}</td>
          <td class="number">${worker.restarts}</td><td>${death(app, worker)}</td>
          <td>${progress(worker.progress)} ${worker.message || ""}</td>
          <td>${worker.procedure ? html`<a class="button" href=${`procedures/${encodeURIComponent(worker.procedure)}/stack`}>Stack</a> ${may(app, "kill") ? html`<button class="bad" @click=${() => askVerb(app, "kill", worker.procedure)} aria-label=${`Kill the step of ${worker.procedure}`}>Kill</button>` : nothing}` : nothing}</td></tr>`;
      })}</tbody></table></div>`}
    ${isSpread ? hostTable(hosts) : nothing}`;
}
