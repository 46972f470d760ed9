// Why a procedure stands where it stands, what can be done about it, and the facts.
import { get, procedure as at } from "../api.js";
import { ago, badge, bytes, clock, count, duration, keyLink, procedureLink, progress, shortType, typeLink } from "../format.js";
import { html, nothing } from "../html.js";
import { askVerb, may, repairs } from "../verbs.js";
import { table as stepTable } from "./steps.js";
import { tree as valueTree } from "../values.js";

export const load = (/** @type {any} */ app, /** @type {any} */ info, /** @type {AbortSignal} */ signal) => get(at(info.id, "/why"), signal);

/** A cause with those below it. @param {any} cause @param {number} depth @returns {any} */
const chain = (cause, depth) => html`<li><span class="cause ${depth ? "" : "first"}">${procedureLink(cause.procedure)} ${cause.says.startsWith(cause.procedure + " ") ? cause.says.slice(cause.procedure.length + 1) : cause.says}</span>
  ${(cause.causes || cause.because || []).length ? html`<ol class="chain">${(cause.causes || cause.because).map((/** @type {any} */ below) => chain(below, depth + 1))}</ol>` : nothing}</li>`;

/** An error with its crash in words; long texts fold. @param {string} name @param {any} error */
export function errorOf(name, error) {
  const crash = error.crash;
  return html`<section aria-label=${name}><h2>${name}</h2>
    <p class="bad"><b>${shortType(error.type_name)}</b>: ${error.message}</p>
    <p class="muted">${error.kind}${error.step_name || error.step ? ` in step ${[error.step, error.step_name].filter(Boolean).join(" ")}` : ""}${error.procedure ? html` of ${procedureLink(error.procedure)}` : nothing}</p>
    ${crash ? html`<dl class="facts">${[["signal", crash.signal], ["exit code", crash.code], ["ran for", duration(crash.duration)], ["processor time", duration(crash.cpu_time)], ["most memory", bytes(crash.peak_rss)]]
        .filter(([, value]) => value !== null && value !== undefined && value !== "").map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl>
      ${crash.stderr ? html`<details open><summary>Last words on standard error</summary><pre tabindex="0">${crash.stderr}</pre></details>` : nothing}
      ${crash.stack ? html`<details><summary>Stack at the end</summary><pre tabindex="0">${crash.stack}</pre></details>` : nothing}` : nothing}
    ${error.traceback ? html`<details><summary>Traceback</summary><pre tabindex="0">${error.traceback}</pre></details>` : nothing}</section>`;
}

const lock = (/** @type {any} */ found, /** @type {string} */ id) => html`<li>${keyLink(found.path)} <span class="muted">${found.mode}, held by</span> ${procedureLink(found.holder)} <span class="muted">for ${duration(found.age)}</span>
  ${found.waiters.length ? html`<span class="muted">; ${found.waiters.some((/** @type {any} */ w) => w.procedure === id) ? `place ${found.waiters.findIndex((/** @type {any} */ w) => w.procedure === id) + 1} of ${found.waiters.length} in its queue` : `${found.waiters.length} wait`}</span>` : nothing}</li>`;

/** @param {any} app @param {any} info @param {any} why */
export function view(app, info, why) {
  const death = info.error?.crash ? null : (info.failed_attempts || []).findLast((/** @type {any} */ one) => one.error.crash);
  const isWaiting = (info.waits_for || []).length > 0;
  return html`<section class="why-box" aria-labelledby="why"><h2 id="why">Why</h2><ol class="chain">${chain(why, 0)}</ol>${repairs(app, why)}</section>
    ${info.error ? errorOf(info.phase === "done" ? "Error" : "Error of the newest attempt", info.error) : nothing}
    ${info.undo_error ? errorOf("Error of the undo", info.undo_error) : nothing}
    ${death ? errorOf(`Last death of a worker, attempt ${death.attempt}, ${clock(death.ended_at)}`, death.error) : nothing}
    <section aria-labelledby="facts"><h2 id="facts">Facts</h2><dl class="facts">
      ${facts(info).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></section>
    ${info.held?.length || isWaiting ? html`<section aria-labelledby="held"><h2 id="held">Locks</h2>
      ${info.held?.length ? html`<h3>Held</h3><ul>${info.held.map((/** @type {any} */ one) => lock(one, info.id))}</ul>` : nothing}
      ${isWaiting ? html`<h3>Waited for</h3><ul>${info.waits_for.map((/** @type {any} */ one) => lock(one, info.id))}</ul>` : nothing}</section>` : nothing}
    ${Object.keys(info.children || {}).length ? html`<section aria-labelledby="children"><h2 id="children">Children</h2><ul class="chips">${Object.entries(info.children).filter(([, n]) => n).map(([state, n]) => html`<li><a class="chip" href=${`procedures/${encodeURIComponent(info.id)}/tree?state=${state}`}>${badge(state)} <b>${count(/** @type {number} */ (n))}</b></a></li>`)}</ul></section>` : nothing}
    ${value("Output", info.output)} ${value("Fields", info.fields)} ${value("Input", info.input)}
    <section aria-labelledby="last"><h2 id="last">Last steps</h2>${info.last_steps?.length ? stepTable(info.last_steps, info.id) : html`<p class="muted">No step has ended yet.</p>`}</section>
    ${info.phase === "done" && may(app, "retry") && info.state === "FAILED" ? html`<p><button @click=${() => askVerb(app, "retry", info.id)}>Retry</button></p>` : nothing}`;
}

const value = (/** @type {string} */ name, /** @type {any} */ found) =>
  found === null || found === undefined || (typeof found === "object" && !Object.keys(found).length) ? nothing : html`<section aria-label=${name}><h2>${name}</h2>${valueTree(found)}</section>`;

/** @param {any} info @returns {[string, any][]} */
function facts(info) {
  const found = /** @type {[string, any][]} */ ([
    ["type", html`${typeLink(info.type_name)} <span class="muted">version ${info.version}</span>`],
    ["state", html`${info.state}, ${info.phase}${info.reason ? `: ${info.reason}` : ""}`],
    ["tries", `attempt ${info.attempt}, ${info.errors} errors, ${info.crashes} crashes${info.run > 1 ? `, run ${info.run}` : ""}${info.generation > 1 ? `, generation ${info.generation}` : ""}`],
    ["created", html`${clock(info.created_at)} (${ago(info.created_at, " ago")})`],
    ["changed", html`${clock(info.updated_at)} (${ago(info.updated_at, " ago")})`],
  ]);
  if (info.finished_at) found.push(["finished", html`${clock(info.finished_at)}, after ${duration((Date.parse(info.finished_at) - Date.parse(info.created_at)) / 1000)}`]);
  if (info.due_at) found.push(["due", ago(info.due_at)]);
  if (info.deadline) found.push(["deadline", ago(info.deadline)]);
  if (info.progress !== null) found.push(["progress", html`${progress(info.progress)} ${info.message || ""}`]);
  if (info.owner) found.push(["owner", html`<a href=${`procedures?owner=${encodeURIComponent(info.owner)}`}>${info.owner}</a>`]);
  if (info.tags.length) found.push(["tags", info.tags.map((/** @type {string} */ tag) => html`<a href=${`procedures?tag=${encodeURIComponent(tag)}`}>${tag}</a> `)]);
  if (info.priority) found.push(["priority", info.priority]);
  if (info.locks.length) found.push(["locks wanted", info.locks.map((/** @type {any} */ key) => html`${keyLink(key.path)} <span class="muted">${key.mode}</span> `)]);
  if (info.event) found.push(["event", info.event]);
  if (info.paused !== null) found.push(["paused", info.paused || "no reason given"]);
  if (info.aborting) found.push(["abort", "asked for; it has not agreed yet"]);
  if (info.bypassed) found.push(["bypassed", "an operator ended it as if it had succeeded"]);
  for (const left of info.leftovers) found.push(["left behind", `${left.procedure}: ${left.unit}: ${left.reason}`]);
  for (const [name, shown] of Object.entries(info.exposed || {})) found.push([name, valueTree(shown)]);
  return found;
}
