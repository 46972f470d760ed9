// Values as a tree that folds, and changes between two of them.
import { html, nothing } from "./html.js";

const OPEN = 2;

/** @param {any} value @param {Set<string>} [changed] Names of fields to mark. @returns {any} */
export function tree(value, changed = new Set(), depth = 0) {
  if (value === null || typeof value !== "object") return leaf(value);
  // Types that JSON does not know stand under "$type", and what was left out is counted under "$omitted".
  const { $type: kind, $omitted: omitted, ...fields } = Array.isArray(value) ? /** @type {any} */ ({}) : value;
  if (kind && Object.keys(fields).join() === "text") return html`${leaf(fields.text)} <span class="muted">${kind}</span>`;
  const held = Array.isArray(value) ? value : kind && Array.isArray(fields.items) ? fields.items : null;
  const items = held ? held.map((/** @type {any} */ item, /** @type {number} */ at) => [String(at), item]) : Object.entries(fields);
  if (omitted) items.push(["…", `${omitted} more`]);
  if (!items.length) return html`<span class="value">${held ? "[ ]" : "{ }"}</span> <span class="muted">${kind ?? nothing}</span>`;
  const rows = html`<dl class="value-tree">${items.map(([name, item]) => html`<dt class=${depth === 0 && changed.has(name) ? "changed" : ""}>${name}${depth === 0 && changed.has(name) ? html`<span class="sr"> (changed)</span>` : nothing}</dt><dd>${tree(item, changed, depth + 1)}</dd>`)}</dl>`;
  if (depth === 0) return rows;
  return html`<details ?open=${depth < OPEN && items.length <= 20}><summary>${kind ? kind + ", " : ""}${held ? `${items.length} items` : `${items.length} fields`}</summary>${rows}</details>`;
}

function leaf(/** @type {any} */ value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (text.length > 300 || text.includes("\n")) return html`<pre class="value" tabindex="0">${text}</pre>`;
  return html`<span class="value ${typeof value}">${text === "" ? html`<span class="muted">empty text</span>` : text}</span>`;
}

/** @param {{path: string, before: string | null, after: string | null}[]} changes */
export const changeTable = (changes) => html`<div class="scroll" tabindex="0" role="region" aria-label="Changes, as a table"><table>
  <thead><tr><th>Field</th><th>Before</th><th>After</th></tr></thead>
  <tbody>${changes.map((change) => html`<tr data-row><td>${change.path}</td><td class="before">${change.before ?? html`<span class="muted">not there</span>`}</td><td class="after">${change.after ?? html`<span class="muted">not there</span>`}</td></tr>`)}</tbody></table></div>`;
