// Logs of a procedure: what its steps wrote, live while the page is open.
import { get, procedure as at } from "../api.js";
import { clock } from "../format.js";
import { html, nothing, repeat } from "../html.js";
import { empty } from "../trouble.js";

const MOST = 2000;

/** @param {any} app @param {any} info @param {AbortSignal} signal */
export async function load(app, info, signal) {
  app.own.logs ??= { items: [], next: null, isFollowing: true };
  const logs = app.own.logs;
  const answer = await get(at(info.id, "/logs?limit=200" + (logs.next ? `&after=${encodeURIComponent(logs.next)}` : "")), signal);
  append(logs, answer);
  return logs;
}

function append(/** @type {any} */ logs, /** @type {any} */ answer) {
  logs.items = [...logs.items, ...answer.items].slice(-MOST);
  logs.next = answer.next ?? logs.next;
}

export function heard(/** @type {any} */ app, /** @type {string} */ name, /** @type {any} */ data) {
  return name === "log" && data.id === app.params[0];
}

/** @param {any} app @param {any} _info @param {any} logs */
export function view(app, _info, logs) {
  if (!logs.items.length) return empty("Its steps wrote nothing that is kept. Standard output, standard error and ctx.log come here.");
  const only = app.query.get("stream") || "";
  const shown = logs.items.filter((/** @type {any} */ one) => !only || one.stream === only);
  const streams = [...new Set(logs.items.map((/** @type {any} */ one) => one.stream))];
  return html`<p><label>Only <select @change=${(/** @type {any} */ e) => app.setQuery({ stream: e.target.value || null }, true)}><option value="">all</option>${streams.map((name) => html`<option value=${name} ?selected=${name === only}>${name}</option>`)}</select></label>
      <label class="check"><input type="checkbox" .checked=${logs.isFollowing} @change=${(/** @type {any} */ e) => (logs.isFollowing = e.target.checked)}> follow the end</label></p>
    <div class="log" tabindex="0" role="log" aria-label="Log" aria-live="off">${repeat(shown, (_one, place) => place, (/** @type {any} */ one) => html`<div class=${`${one.stream} ${one.level >= 40 ? "bad" : one.level >= 30 ? "warn" : ""}`}><span class="muted">${clock(one.at)} ${one.step ?? ""}${one.attempt ? `.${one.attempt}` : ""} ${one.step_name || ""} ${one.logger || one.stream}</span> ${one.text}</div>`)}</div>${nothing}`;
}

export function drawn(/** @type {any} */ app, /** @type {any} */ logs) {
  const place = document.querySelector(".log");
  if (place && logs?.isFollowing && app.own.drawnLogs !== logs.items) place.scrollTop = place.scrollHeight;
  app.own.drawnLogs = logs?.items;
}
