// Timeline: a row for each step, a bar for each attempt, waits between them; bands of counts when there are too many.
import { get, procedure as at } from "../api.js";
import { clock, duration, seconds } from "../format.js";
import { css, html, nothing } from "../html.js";
import { empty } from "../trouble.js";

const KINDS = ["done", "failed", "crashed", "killed", "undone", "running", "waiting"];
/** Words of the waits, which are bars of half the height. @type {Record<string, string>} */
const WAITS = { lock: "waits for a lock", queue: "waits for a lock or a worker", worker: "waits for a worker", retry: "waits for the next attempt", children: "waits for children", event: "waits for an event", timer: "sleeps", paused: "is paused", parked: "is parked" };
const CUT = 0.05;
const LEFT = 0.012;

export const load = (/** @type {any} */ _app, /** @type {any} */ info, /** @type {AbortSignal} */ signal) => get(at(info.id, "/timeline"), signal);

/** From a moment to its share of the width: by time, or with idle times cut out. @param {any} part @param {boolean} isSqueezed @param {number} end */
function axis(part, isSqueezed, end) {
  const start = seconds(part.start) ?? 0;
  const whole = Math.max(end - start, 1e-6);
  const straight = (/** @type {any} */ moment) => (Math.min(end, Math.max(start, seconds(moment) ?? start)) - start) / whole;
  if (!isSqueezed) return straight;
  const busy = part.rows.flatMap((/** @type {any} */ row) => row.bars).filter((/** @type {any} */ bar) => bar.kind !== "waiting")
    .map((/** @type {any} */ bar) => [straight(bar.start), bar.kind === "running" ? 1 : straight(bar.end)]).sort((/** @type {number[]} */ a, /** @type {number[]} */ b) => a[0] - b[0]);
  const points = [[0, 0]];
  let place = 0;
  let moment = 0;
  const pass = (/** @type {number} */ until, /** @type {boolean} */ isIdle) => {
    place += isIdle && until - moment > CUT ? LEFT : until - moment;
    moment = until;
    points.push([moment, place]);
  };
  for (const [from, to] of busy) {
    if (from > moment) pass(from, true);
    if (to > moment) pass(to, false);
  }
  if (moment < 1) pass(1, true);
  return (/** @type {any} */ at) => {
    const x = straight(at);
    const after = points.findIndex(([time]) => time >= x);
    if (after <= 0) return 0;
    const [t0, p0] = points[after - 1];
    const [t1, p1] = points[after];
    return (p0 + ((x - t0) / Math.max(t1 - t0, 1e-9)) * (p1 - p0)) / Math.max(place, 1e-9);
  };
}

/** @param {any} app @param {any} info @param {any} part */
export function view(app, info, part) {
  if (!part.rows?.length && !part.bands?.length) return empty("Nothing has run yet.");
  const end = info.phase === "done" ? seconds(part.end) ?? 0 : Math.max(seconds(part.end) ?? 0, Date.now() / 1000);
  const isSqueezed = app.query.get("x") === "squeezed";
  const head = html`<p><span class="muted">${clock(part.start)} to ${clock(end)}, ${duration(end - (seconds(part.start) ?? 0))}</span>
      ${part.rows?.length ? html`<label class="check"><input type="checkbox" .checked=${isSqueezed} @change=${(/** @type {any} */ e) => app.setQuery({ x: e.target.checked ? "squeezed" : null }, true)}> cut idle times</label>` : nothing}</p>
    <ul class="legend">${legend(part)}</ul>`;
  if (!part.rows?.length) {
    app.own.bands = part.bands;
    return html`${head}<canvas class="bands" role="img" aria-label="Attempts over time, by how they ended; the numbers are in the table below"></canvas>
      <details><summary>As a table</summary>${bandTable(part.bands)}</details>`;
  }
  const place = axis(part, isSqueezed, end);
  const bar = (/** @type {any} */ one) => {
    const from = place(one.start);
    const to = one.kind === "running" || one.kind === "waiting" ? (info.phase === "done" ? place(one.end) : 1) : place(one.end);
    const says = one.attempt ? `${WAITS[one.cause] || one.kind}, attempt ${one.attempt}, ${took(one)}${one.words ? ": " + one.words : ""}` : `${WAITS[one.cause]}, ${took(one)}`;
    return html`<span class="bar ${one.kind || "waiting"} ${one.cause || ""}" title=${says} ${css({ left: `${from * 100}%`, width: `max(3px, ${(to - from) * 100}%)` })}></span>`;
  };
  return html`${head}<div class="timeline" role="img" aria-label="Steps over time; the numbers are in the table below">${part.rows.map((/** @type {any} */ row) => html`<div class="line ${row.is_undone ? "undone" : ""}"><span class="label clip" title=${row.name}>${row.number} ${row.name}${row.is_undone ? html` <span class="muted">◂ undone</span>` : nothing}</span><span class="track">${row.waits.map(bar)}${row.bars.map(bar)}</span></div>`)}</div>
    <details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Timeline as a table"><table><thead><tr><th>Step</th><th class="number">Attempt</th><th>End</th><th>Began</th><th class="number">Took</th><th>Words</th></tr></thead>
    <tbody>${part.rows.flatMap((/** @type {any} */ row) => [...row.waits, ...row.bars].sort((one, other) => (seconds(one.start) ?? 0) - (seconds(other.start) ?? 0)).map((one) => html`<tr><td>${row.number} ${row.name}</td><td class="number">${one.attempt ?? ""}</td><td>${WAITS[one.cause] || one.kind}${one.kind === "done" && row.is_undone ? ", undone later" : ""}</td><td>${clock(one.start)}</td><td class="number">${took(one)}</td><td>${one.words ?? ""}</td></tr>`))}</tbody></table></div></details>`;
}

const took = (/** @type {any} */ one) => duration((seconds(one.end) ?? 0) - (seconds(one.start) ?? 0));

/** Marks of what is shown, in words. @param {any} part */
function legend(part) {
  const shown = part.rows?.length ? part.rows.flatMap((/** @type {any} */ row) => [...row.bars, ...row.waits]) : KINDS.map((kind) => ({ kind }));
  const waits = Object.entries(WAITS).filter(([cause]) => shown.some((/** @type {any} */ one) => one.cause === cause));
  const kinds = KINDS.filter((kind) => shown.some((/** @type {any} */ one) => one.kind === kind && !one.cause));
  return [...kinds.map((kind) => [kind, kind]), ...waits.map(([cause, words]) => [`waiting ${cause}`, words])].map(([mark, words]) => html`<li><span class="bar-mark ${mark}"></span> ${words}</li>`);
}

const bandTable = (/** @type {any[]} */ bands) => html`<div class="scroll" tabindex="0" role="region" aria-label="Bands as a table"><table><thead><tr><th>From</th>${KINDS.map((kind) => html`<th class="number">${kind}</th>`)}</tr></thead>
  <tbody>${bands.filter((band) => Object.keys(band.counts).length).map((band) => html`<tr><td>${clock(band.start)}</td>${KINDS.map((kind) => html`<td class="number">${band.counts[kind] || ""}</td>`)}</tr>`)}</tbody></table></div>`;

/** Draw the bands, one column each, kinds upon each other. @param {any} app */
export function drawn(app) {
  const canvas = /** @type {HTMLCanvasElement | null} */ (document.querySelector("canvas.bands"));
  if (!canvas || app.own.drawnBands === app.own.bands) return;
  app.own.drawnBands = app.own.bands;
  const scale = devicePixelRatio || 1;
  const width = (canvas.width = Math.round(canvas.clientWidth * scale));
  const height = (canvas.height = Math.round(canvas.clientHeight * scale));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const ink = getComputedStyle(document.body);
  const bands = app.own.bands;
  const sums = bands.map((/** @type {any} */ band) => Object.values(band.counts).reduce((/** @type {number} */ sum, /** @type {any} */ n) => sum + n, 0));
  const most = Math.max(1, ...sums);
  bands.forEach((/** @type {any} */ band, /** @type {number} */ at) => {
    let top = height;
    for (const kind of KINDS) {
      const tall = ((band.counts[kind] || 0) / most) * height;
      pen.fillStyle = ink.getPropertyValue(`--bar-${kind}`).trim();
      pen.fillRect((at / bands.length) * width, top - tall, width / bands.length - scale, tall);
      top -= tall;
    }
  });
}
