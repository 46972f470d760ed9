// Verbs for the procedures that were chosen in the list, or for all that match its filters.
import { count } from "./format.js";
import { html, nothing } from "./html.js";
import { askMany, may, toneOf, wordsOf } from "./verbs.js";

/** @param {any} app @param {any} filter @param {() => void} none */
export function toolbar(app, filter, none) {
  const { chosen, isAll } = app.own;
  const which = isAll ? { filter } : { ids: [...chosen] };
  const canBeAll = app.data.next && app.data.items.every((/** @type {any} */ info) => chosen.has(info.id));
  return html`<div class="bulk" role="toolbar" aria-label="Act on the chosen">
    <b>${isAll ? "All that match" : `${count(chosen.size)} chosen`}</b>
    ${canBeAll && !isAll ? html`<button class="quiet" @click=${() => ((app.own.isAll = true), app.render())}>Choose all that match</button>` : nothing}
    ${Object.entries(wordsOf(app)).filter(([verb, known]) => known.many && may(app, verb)).map(([verb, known]) => html`<button class=${toneOf(known)} @click=${() => askMany(app, verb, which)}>${known.title} …</button>`)}
    <button class="quiet" @click=${none}>Choose none</button></div>`;
}
