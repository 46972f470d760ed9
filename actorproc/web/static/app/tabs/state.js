// States over time: one record after the other, each with what it changed.
import { get, procedure as at, query } from "../api.js";
import { badge, bytes, clock, count } from "../format.js";
import { html, nothing } from "../html.js";
import { empty } from "../trouble.js";
import { changeTable, tree } from "../values.js";

/** @param {any} app @param {any} info @param {AbortSignal} signal */
export async function load(app, info, signal) {
  const states = (await get(at(info.id, "/states?limit=200"), signal)).items;
  const numbers = states.map((/** @type {any} */ one) => one.number);
  const asked = app.query.get("n");
  const number = asked !== null && Number.isFinite(Number(asked)) ? Number(asked) : numbers[numbers.length - 1];
  if (number === undefined) return { states, state: null, changes: [] };
  const place = numbers.indexOf(number);
  const from = app.query.get("from") !== null ? Number(app.query.get("from")) : place > 0 ? numbers[place - 1] : null;
  const [state, diff] = await Promise.all([
    get(at(info.id, "/state" + query({ step: number })), signal),
    from === null || from === number ? null : get(at(info.id, "/diff" + query({ first: from, second: number })), signal),
  ]);
  return { states, numbers, number, from, state, changes: diff?.changes ?? [] };
}

/** @param {any} shown */
export const record = (shown) => html`<dl class="facts"><dt>outcome</dt><dd>${badge(shown.outcome)}</dd>${shown.position ? html`<dt>position</dt><dd>${shown.position}</dd>` : nothing}
    <dt>time</dt><dd>${clock(shown.at)}</dd><dt>stored as</dt><dd>${shown.codec}, ${bytes(shown.size)}, version ${shown.version}</dd>
    ${shown.changed?.length ? html`<dt>changed</dt><dd>${shown.changed.join(", ")}</dd>` : nothing}</dl>
  ${shown.state !== null && shown.state !== undefined ? html`<h3>State</h3>${tree(shown.state, new Set(shown.changed))}` : html`<p class="muted">${shown.missing || "There is no state."}</p>`}
  ${shown.output !== null && shown.output !== undefined ? html`<h3>Output</h3>${tree(shown.output)}` : nothing}
  ${Object.keys(shown.notes || {}).length ? html`<h3>Remembered</h3>${tree(shown.notes)}` : nothing}`;

/** @param {any} app @param {any} info @param {any} part */
export function view(app, info, part) {
  if (!part.state) return empty("No state is stored yet.");
  const last = part.numbers.length - 1;
  const place = part.numbers.indexOf(part.number);
  const set = (/** @type {any} */ event) => app.setQuery({ n: String(part.numbers[event.target.value]), from: null }, true);
  return html`<section aria-labelledby="over"><h2 id="over">States over time</h2>
    <p class="slider"><button ?disabled=${place <= 0} @click=${() => step(app, -1)} aria-label="Record before">[</button>
      <label>Record <input type="range" min="0" max=${last} step="1" .value=${String(Math.max(0, place))} aria-valuetext=${`record ${part.number} of ${part.numbers[last]}`} @input=${set}></label>
      <button ?disabled=${place >= last} @click=${() => step(app, 1)} aria-label="Record after">]</button>
      <b>${part.number}</b> of ${count(part.numbers[last])}</p>
    ${record(part.state)}</section>
    <section aria-labelledby="changes"><h2 id="changes">Changes${part.from === null ? "" : ` from record ${part.from}`}</h2>
      <label>compared with record <select @change=${(/** @type {any} */ e) => app.setQuery({ n: String(part.number), from: e.target.value }, true)}>
        ${part.numbers.filter((/** @type {number} */ n) => n !== part.number).map((/** @type {number} */ n) => html`<option value=${n} ?selected=${n === part.from}>${n}</option>`)}</select></label>
      ${part.changes.length ? changeTable(part.changes) : html`<p class="muted">${part.from === null ? "This is the first record." : "Nothing differs."}</p>`}</section>`;
}

function step(/** @type {any} */ app, /** @type {number} */ by) {
  const { numbers, number } = app.data.part;
  // By the address: it changes at once, and the answer comes later.
  const next = numbers?.[numbers.indexOf(Number(app.query.get("n") ?? number)) + by];
  if (next !== undefined) app.setQuery({ n: String(next), from: null }, true);
}

export const pressed = (/** @type {any} */ app, /** @type {string} */ key) => (key === "[" ? step(app, -1) : key === "]" ? step(app, 1) : undefined);
