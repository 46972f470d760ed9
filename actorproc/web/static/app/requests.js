// Requests of operators as a table: of the overview, and of the page of all of them.
import { ago, clock, procedureLink } from "./format.js";
import { html, keyed, nothing } from "./html.js";

/** @param {any[]} rows */
export const activityRows = (rows) => html`<div class="scroll" tabindex="0" role="region" aria-label="Requests, as a table"><table>
  <thead><tr><th>When</th><th>Verb</th><th>Procedure</th><th>By</th><th>Reason</th><th>What came of it</th></tr></thead>
  <tbody>${keyed(rows, (row) => `${row.at} ${row.verb} ${row.id}`, (row) => html`<tr data-row data-id=${row.id || nothing}><td title=${clock(row.at)}>${ago(row.at, " ago")}</td><td><b>${row.verb}</b></td>
    <td>${row.id ? procedureLink(row.id) : html`<span class="muted">the store</span>`}</td><td>${row.by ?? ""}</td><td>${row.reason ?? ""}</td><td>${row.detail}</td></tr>`)}</tbody></table></div>`;
