// Dialogs of the verbs: each says the id and what it does, and asks for a reason; several at once need an agreed count.
import { procedure as at, post, postLines, Refused } from "./api.js";
import { count, plural } from "./format.js";
import { html, nothing } from "./html.js";
import { openDialog } from "./shell.js";
import { toneOf, wordsOf } from "./verbs.js";

const flagsOf = (/** @type {any} */ state) => Object.fromEntries(Object.entries(state.flags).filter(([, value]) => value));

/** The dialog of one request. @param {any} app @param {{title: any, says: any, flags?: Record<string, string>, set?: any, tone?: string, button: string, act: (state: any) => Promise<string>, fields?: (state: any) => any, isAudited?: boolean}} wish */
export function ask(app, wish) {
  const state = { reason: "", flags: { ...wish.set }, error: null, isBusy: false };
  openDialog(app, (close) => {
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      if (state.isBusy) return;
      Object.assign(state, { isBusy: true, error: null });
      app.render();
      try {
        const text = await wish.act(state);
        close();
        app.note(text);
        app.soon();
      } catch (error) {
        state.error = error;
      }
      state.isBusy = false;
      app.render();
    };
    return html`<form @submit=${submit}>
      <h2 id="dialog-title">${wish.title}</h2>
      <p>${wish.says}</p>
      ${wish.fields ? wish.fields(state) : nothing}
      ${Object.entries(wish.flags || {}).map(([name, says]) => html`<label class="check"><input type="checkbox" name=${name} .checked=${Boolean(state.flags[name])} @change=${(/** @type {any} */ e) => (state.flags[name] = e.target.checked)}> ${name}: ${says}</label>`)}
      ${wish.isAudited === false ? nothing : html`<label>Reason, for the audit <input data-first name="reason" maxlength="500" autocomplete="off" @input=${(/** @type {any} */ e) => (state.reason = e.target.value)}></label>`}
      ${state.error ? html`<p class="banner bad" role="alert">${state.error.message} ${state.error.do ? html`<code class="command">${state.error.do}</code>` : nothing}</p>` : nothing}
      <p class="buttons"><button type="submit" class=${wish.tone || "good"} ?disabled=${state.isBusy}>${state.isBusy ? "Asking …" : wish.button}</button>
      <button type="button" @click=${close}>Cancel</button></p>
    </form>`;
  });
}

/** @param {any} app @param {string} verb @param {string} id @param {any} [set] Flags to begin with. */
export function askVerb(app, verb, id, set = {}) {
  const known = wordsOf(app)[verb];
  ask(app, {
    title: html`${known.title}: <span class="id">${id}</span>`,
    says: known.says,
    flags: known.flags,
    set,
    tone: toneOf(known),
    button: known.title,
    act: async (state) => {
      const outcome = await post(at(id, "/" + verb), { reason: state.reason || undefined, ...flagsOf(state) });
      return `${verb} ${id}: ${outcomeWords(outcome)}`;
    },
  });
}

/** @param {any} outcome */
export function outcomeWords(outcome) {
  const result = outcome.ok === false ? outcome.error || "refused" : typeof outcome.result === "string" ? outcome.result : "done";
  return result + (outcome.applied_to === "stopped store" ? " (taken by the stopped store)" : "");
}

/** @param {any} app @param {"pause" | "resume"} verb */
export function askManager(app, verb) {
  const { title, says } = wordsOf(app)[`manager/${verb}`];
  ask(app, { title, says, button: title, act: async (state) => `${verb}: ${outcomeWords(await post(`manager/${verb}`, { reason: state.reason || undefined }))}` });
}

/** The number is not stored, so no audit has it. @param {any} app @param {number} workers The number now. */
export function askResize(app, workers) {
  let wanted = workers;
  ask(app, {
    title: "Number of workers",
    says: "New workers boot at once; one that goes ends its step first. Another manager begins with its own number.",
    button: "Resize",
    isAudited: false,
    fields: () => html`<label>Workers <input data-first type="number" name="workers" min="1" max="999" required .value=${String(wanted)} @input=${(/** @type {any} */ e) => (wanted = e.target.valueAsNumber)}></label>`,
    act: async () => `resize: ${outcomeWords(await post("manager/resize", { workers: wanted }))}`,
  });
}

/** @param {any} app @param {string} key */
export const askClear = (app, key) =>
  ask(app, {
    title: html`Clear the key <span class="key">${key}</span>`,
    says: "Procedures may take this key again. Do so when what the failed one left behind it has been put in order.",
    button: "Clear",
    act: async (state) => outcomeWords(await post("poisons/clear", { key, reason: state.reason || undefined })),
  });

/** @param {any} app @param {string} id */
export function askSignal(app, id) {
  let payload = "";
  ask(app, {
    title: html`Send a signal to <span class="id">${id}</span>`,
    says: "The procedure is woken with this value.",
    button: "Send",
    fields: () => html`<label>Value, as JSON (empty: null) <textarea rows="3" @input=${(/** @type {any} */ e) => (payload = e.target.value)}></textarea></label>`,
    act: async (state) => {
      let value = null;
      try {
        value = payload.trim() ? JSON.parse(payload) : null;
      } catch (error) {
        throw new Refused(422, { says: `This is no JSON: ${/** @type {Error} */ (error).message}`, do: 'Write text in quotes: "yes"' });
      }
      return `signal ${id}: ${outcomeWords(await post(at(id, "/signal"), { payload: value, reason: state.reason || undefined }))}`;
    },
  });
}

/** One verb for many: first the count is agreed on, then the answers come one by one, and may be stopped.
 * @param {any} app @param {string} verb @param {{filter?: any, ids?: string[]}} which */
export async function askMany(app, verb, which) {
  const known = wordsOf(app)[verb];
  const state = { count: -1, ids: /** @type {string[]} */ ([]), reason: "", flags: /** @type {any} */ ({}), error: /** @type {any} */ (null), rows: /** @type {any[]} */ ([]), done: 0, failed: 0, run: /** @type {AbortController | null} */ (null), end: "" };
  const look = async () => {
    try {
      const found = await post("bulk", { verb, ...which, flags: flagsOf(state), dry_run: true });
      Object.assign(state, { count: found.count, ids: found.ids || [] });
    } catch (error) {
      state.error = error;
    }
    app.render();
  };
  const act = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (state.run || state.count < 1) return;
    state.run = new AbortController();
    Object.assign(state, { error: null, rows: [], done: 0, failed: 0 });
    app.render();
    try {
      for await (const row of postLines("bulk", { verb, ...which, flags: flagsOf(state), reason: state.reason || undefined, expect: state.count }, state.run.signal)) {
        if (row.object === "bulk") state.end = "finished";
        else {
          state.done += 1;
          state.failed += row.ok ? 0 : 1;
          if (!row.ok && state.rows.length < 50) state.rows.push(row);
        }
        app.render();
      }
      state.end ||= "the connection ended before all were asked";
    } catch (error) {
      if (state.run.signal.aborted) state.end = "stopped; what was done stays done";
      else if (error instanceof Refused && error.code === "count-changed") {
        state.error = new Refused(409, { says: `Meanwhile there are ${count(error.body.count)} instead of ${count(state.count)}. Look again, and agree to the new count.`, do: "" });
        await look();
      } else state.error = error;
    }
    state.run = null;
    app.render();
    app.soon();
  };
  openDialog(app, (close) => html`<form @submit=${act}>
    <h2 id="dialog-title">${known.title}: ${state.count < 0 ? "counting …" : plural(state.count, "procedure")}</h2>
    <p>${known.says}</p>
    <p class="ids">${state.ids.slice(0, 10).map((id) => html`<span class="id">${id}</span> `)}${state.count > 10 ? html`and ${count(state.count - Math.min(10, state.ids.length))} more` : nothing}</p>
    ${Object.entries(known.flags || {}).map(([name, says]) => html`<label class="check"><input type="checkbox" @change=${(/** @type {any} */ e) => (state.flags[name] = e.target.checked)}> ${name}: ${says}</label>`)}
    <label>Reason, for the audit <input data-first name="reason" maxlength="500" autocomplete="off" @input=${(/** @type {any} */ e) => (state.reason = e.target.value)}></label>
    ${state.error ? html`<p class="banner warn" role="alert">${state.error.message} ${state.error.do ? html`<code class="command">${state.error.do}</code>` : nothing}</p>` : nothing}
    ${state.run || state.end ? html`<p role="status">${count(state.done)} of ${count(state.count)} asked, ${count(state.failed)} refused${state.end ? "; " + state.end : ""}.</p>` : nothing}
    ${state.rows.length ? html`<ul class="refused">${state.rows.map((row) => html`<li><span class="id">${row.id}</span> ${row.error}</li>`)}</ul>` : nothing}
    <p class="buttons">
      ${state.end ? nothing : html`<button type="submit" class=${toneOf(known) || "good"} ?disabled=${state.run !== null || state.count < 1}>${known.title}${state.count > 0 ? `: ${count(state.count)}` : ""}</button>`}
      ${state.run ? html`<button type="button" @click=${() => state.run?.abort()}>Stop</button>` : html`<button type="button" @click=${close}>${state.end ? "Close" : "Cancel"}</button>`}
    </p></form>`);
  await look();
}
