// Attempts that failed, or took their worker along, as a table: of one procedure, or of all.
import { ago, clock, duration, procedureLink, shortType } from "./format.js";
import { html, keyed, nothing } from "./html.js";

/** The end in a word. @param {any} one */
export const endOf = (one) => one.error.crash?.signal || one.error.kind;

/** A text that changes when a worker has died. @param {any[]} workers */
export const restartsOf = (workers) => workers.map((worker) => worker.restarts).join();

/** @param {any[]} attempts @param {string} name @param {boolean} [isOfAll] Of several procedures, so each row has a link. */
export const attemptTable = (attempts, name, isOfAll = false) => html`<div class="scroll" tabindex="0" role="region" aria-label=${`${name}, as a table`}><table>
  <thead><tr>${isOfAll ? html`<th>Procedure</th>` : nothing}<th>Step</th><th class="number">Attempt</th><th>End</th><th class="number">Ran for</th><th class="number">Worker</th><th>When</th><th>Words</th></tr></thead>
  <tbody>${keyed(attempts, (one) => `${one.procedure} ${one.mode} ${one.step} ${one.ended_at}`, (one) => html`<tr data-row data-id=${isOfAll ? one.procedure : nothing}>
    ${isOfAll ? html`<td>${procedureLink(one.procedure)}</td>` : nothing}<td>${one.mode === "rollback" ? "undo " : ""}${one.step} ${one.step_name || ""}</td><td class="number">${one.attempt}</td>
    <td><span class="badge ${one.error.kind === "killed" ? "warn" : "bad"}">${endOf(one)}</span></td>
    <td class="number">${duration((Date.parse(one.ended_at) - Date.parse(one.started_at)) / 1000)}</td><td class="number">${one.slot >= 0 ? one.slot : ""}${one.pid ? ` (${one.pid})` : ""}</td>
    <td title=${clock(one.ended_at)}>${ago(one.ended_at, " ago")}</td>
    <td><details><summary class="clip">${shortType(one.error.type_name)}: ${one.error.message}</summary><pre tabindex="0">${[one.error.crash?.stderr, one.error.crash?.stack, one.error.traceback].filter(Boolean).join("\n\n") || one.error.message}</pre></details></td></tr>`)}</tbody></table></div>`;
