// Rates of the last minute as lines, with the numbers of longer times beside them.
import { html, nothing, svg } from "./html.js";
import { duration } from "./format.js";

const WIDE = 600;
const TALL = 120;

/** A line of values, one a second, the newest at the right edge. @param {number[]} series @param {number} length @param {number} top @param {string} name */
const line = (series, length, top, name) =>
  svg`<polyline class=${name} points=${series.map((value, at) => `${(((length - series.length + at) / Math.max(1, length - 1)) * WIDE).toFixed(1)},${(TALL - 2 - (value / top) * (TALL - 4)).toFixed(1)}`).join(" ")}></polyline>`;

const cell = (/** @type {number | null | undefined} */ value) => html`<td class="number">${value === null || value === undefined ? "–" : value.toFixed(1)}</td>`;

/** @param {any} speed */
export function rates(speed) {
  const series = { steps: speed.steps_series || [], ended: speed.ended_series || [] };
  const all = [...series.steps, ...series.ended];
  const spans = /** @type {any[]} */ (speed.spans || []);
  if (!all.length && !spans.length) return html`<p class="muted">No rates yet: they are counted while a manager runs and this page is open.</p>`;
  const top = Math.max(1, ...all);
  const length = Math.max(series.steps.length, series.ended.length);
  return html`<div class="chart" aria-hidden="true"><svg viewBox="0 0 ${WIDE} ${TALL}" preserveAspectRatio="none">${[0, 0.5, 1].map((share) => svg`<line x1="0" x2=${WIDE} y1=${share * (TALL - 2) + 1} y2=${share * (TALL - 2) + 1}></line>`)}
      ${line(series.steps, length, top, "steps")}${line(series.ended, length, top, "ended")}</svg>
      <p class="muted"><span>${top.toFixed(top < 10 ? 1 : 0)} a second at the top line</span><span>${length} s up to now</span></p></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Rates, as a table"><table><thead><tr><th>A second</th><th class="number">now</th>${spans.map((span) => html`<th class="number">${span.name}${span.covers + 1 < span.seconds ? html`<span class="muted"> (${duration(span.covers)})</span>` : nothing}</th>`)}</tr></thead>
    <tbody>${["steps", "ended"].map((name) => html`<tr><th><span class="mark ${name}"></span> ${name}</th>${cell(speed[name] ?? 0)}${spans.map((span) => cell(span[name]))}</tr>`)}</tbody></table></div>`;
}
