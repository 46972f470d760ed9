// Steps that ended, and attempts that failed.
import { get, procedure as at } from "../api.js";
import { attemptTable } from "../attempts.js";
import { ago, badge, bytes, clock, duration, shortType } from "../format.js";
import { html, keyed, nothing } from "../html.js";
import { empty } from "../trouble.js";
import { record } from "./state.js";

/** @param {any} app @param {any} info @param {AbortSignal} signal */
export async function load(app, info, signal) {
  const number = app.params[2];
  if (number) return { record: await get(at(info.id, `/steps/${encodeURIComponent(number)}`), signal), attempts: (await get(at(info.id, "/attempts"), signal)).items };
  const [steps, attempts] = await Promise.all([get(at(info.id, "/steps?limit=200" + (app.query.get("after") ? `&after=${encodeURIComponent(app.query.get("after"))}` : "")), signal), get(at(info.id, "/attempts"), signal)]);
  return { steps: steps.items, next: steps.next, attempts: attempts.items };
}

/** @param {any[]} steps @param {string} id */
export const table = (steps, id) => html`<div class="scroll" tabindex="0" role="region" aria-label="Steps, as a table"><table>
  <thead><tr><th class="number">Record</th><th>Step</th><th>Outcome</th><th class="number">Took</th><th class="number">Attempts</th><th class="number wide">Worker</th><th class="number wide">State</th><th>When</th><th>Error</th></tr></thead>
  <tbody>${keyed(steps, (step) => step.number, (step) => html`<tr data-row>
    <td class="number"><a href=${`procedures/${encodeURIComponent(id)}/steps/${step.number}`}>${step.number}</a></td>
    <td>${step.kind === "rollback" ? "undo " : ""}${step.step_name || step.label || ""}${step.kind === "commit" ? html` <span class="muted">commit</span>` : nothing}</td>
    <td>${badge(step.outcome)}${step.awaits ? ` for ${step.awaits}` : ""}${step.next_name ? html` <span class="muted">then ${step.next_name}</span>` : nothing}</td>
    <td class="number">${duration(step.elapsed)}</td><td class="number">${step.attempts || ""}</td>
    <td class="number wide">${step.slot >= 0 ? `${step.slot}${step.pid ? ` (${step.pid})` : ""}` : ""}</td><td class="number wide">${bytes(step.state_bytes + step.output_bytes)}</td>
    <td title=${clock(step.at)}>${ago(step.at, " ago")}</td>
    <td>${step.error ? html`<div class="clip bad">${shortType(step.error.type_name)}: ${step.error.message}</div>` : nothing}</td></tr>`)}</tbody></table></div>`;

/** @param {any} app @param {any} info @param {any} part */
export function view(app, info, part) {
  if (part.record) {
    const { record: shown } = part;
    const attempts = part.attempts.filter((/** @type {any} */ one) => one.step === shown.number - 1);
    return html`<section aria-label="Record"><h2>Record ${shown.number}</h2>
      <p>${shown.previous !== null && shown.previous !== undefined ? html`<a href=${`procedures/${encodeURIComponent(info.id)}/steps/${shown.previous}`}>Record ${shown.previous}</a> · ` : nothing}<a href=${`procedures/${encodeURIComponent(info.id)}/state?n=${shown.number}`}>States over time</a> · <a href=${`procedures/${encodeURIComponent(info.id)}/steps`}>All steps</a></p>
      <p>Run it again under a debugger: <code class="command">${`${app.session?.command || "actorproc"} replay ${info.id} --step ${Math.max(0, shown.number - 1)}`}</code></p>
      ${record(shown)}${attempts.length ? html`<h3>Failed attempts</h3>${attemptTable(attempts, "Failed attempts")}` : nothing}</section>`;
  }
  return html`<section aria-labelledby="ended"><h2 id="ended">Steps</h2>${part.steps.length ? table(part.steps, info.id) : empty("No step has ended yet.")}
    ${part.next ? html`<p><a href=${`procedures/${encodeURIComponent(info.id)}/steps?after=${encodeURIComponent(part.next)}`}>More steps</a></p>` : nothing}</section>
    <section aria-labelledby="tries"><h2 id="tries">Failed attempts</h2>${part.attempts.length ? attemptTable(part.attempts, "Failed attempts") : html`<p class="muted">None is kept.</p>`}</section>`;
}
