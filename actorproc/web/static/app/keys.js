// The keyboard: single keys act while no text is being typed; Ctrl-K opens the palette.
import { get, query } from "./api.js";
import { rows } from "./focus.js";
import { html, nothing } from "./html.js";
import { standing, shortType } from "./format.js";
import { openDialog } from "./shell.js";
import { askVerb, fitting, may, wordsOf } from "./verbs.js";

const HELP = [
  ["?", "this list"],
  ["/", "the filter"],
  ["g then o p l w a t", "overview, procedures, locks, workers, activity, types"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["a", "act: verbs for the row or the procedure"],
  ["w t s", "why, tree and stack of the procedure"],
  ["[ ]", "record before and after, of the state"],
  ["p", "pause or resume live updates"],
  ["Ctrl-K", "search ids and types, and all commands"],
  ["Esc", "close, or clear the selection"],
];
const GO = { o: "", p: "procedures", l: "locks", w: "workers", a: "activity", t: "types" };
let isGoing = 0;

const isTyping = (/** @type {any} */ target) => target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select, dialog");
const handle = (/** @type {HTMLElement} */ row) => /** @type {HTMLElement | null} */ (row.matches("a,button") ? row : row.querySelector("a, button, input"));
const current = () => /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-row]") ?? null);

function move(/** @type {number} */ by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(/** @type {any} */ (current()));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  const target = /** @type {HTMLElement | null} */ (next.querySelector("a") ?? handle(next));
  target?.focus();
  next.scrollIntoView({ block: "nearest" });
}

/** The procedure that a key is about: of the row with the focus, else of the page. @param {any} app */
const subject = (app) => current()?.dataset.id ?? (app.name === "procedure" ? app.params[0] : null);

/** @param {any} app @param {KeyboardEvent} event */
export function pressed(app, event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return app.dialog ? undefined : palette(app);
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  if (event.key === "Escape" && !app.dialog) {
    if (!isTyping(event.target)) return app.page?.escaped?.(app);
    event.preventDefault(); // a search field would empty itself
    return /** @type {HTMLElement} */ (event.target).blur();
  }
  if (app.dialog || isTyping(event.target)) return undefined;
  const since = Date.now() - isGoing;
  isGoing = 0;
  if (since < 1500 && event.key in GO) return app.go(GO[/** @type {keyof typeof GO} */ (event.key)]);
  const id = subject(app);
  switch (event.key) {
    case "?":
      return help(app);
    case "/": {
      event.preventDefault();
      const field = /** @type {HTMLInputElement | null} */ (document.querySelector("main input[type=search]"));
      return field ? field.focus() : app.go("procedures").then(() => /** @type {any} */ (document.querySelector("main input[type=search]"))?.focus());
    }
    case "g":
      isGoing = Date.now();
      return undefined;
    case "j":
      return move(1);
    case "k":
      return move(-1);
    case "x":
      return /** @type {HTMLElement | null | undefined} */ (current()?.querySelector("input[type=checkbox]"))?.click();
    case "p":
      return import("./live.js").then(({ link, pause }) => pause(!link.isPaused));
    case "a":
      return app.page?.act?.(app) || (id ? actions(app, id) : undefined);
    case "w":
      return id ? app.go(`procedures/${encodeURIComponent(id)}`) : undefined;
    case "t":
    case "s":
      return id ? app.go(`procedures/${encodeURIComponent(id)}/${event.key === "t" ? "tree" : "stack"}`) : undefined;
    default:
      return app.page?.pressed?.(app, event.key);
  }
}

/** Menu of the verbs for one procedure. @param {any} app @param {string} id */
export async function actions(app, id) {
  let info = /** @type {any} */ (null);
  try {
    info = await get(`procedures/${encodeURIComponent(id)}`);
  } catch (error) {
    return app.note(/** @type {Error} */ (error).message, "bad");
  }
  const verbs = fitting(info).filter((verb) => may(app, verb));
  return openDialog(app, (close) => html`<h2 id="dialog-title">Act on <span class="id">${id}</span></h2>
    <p>${standing(info)}</p>
    ${verbs.length ? nothing : html`<p>${app.session?.read_only ? app.session.why_read_only || "This page is read-only." : "No verb fits."}</p>`}
    <ul class="menu">${verbs.map((verb, place) => html`<li><button ?data-first=${place === 0} @click=${() => (close(), askVerb(app, verb, id))}>${wordsOf(app)[verb].title}</button> <span class="muted">${wordsOf(app)[verb].says}</span></li>`)}</ul>
    <p class="buttons"><button ?data-first=${!verbs.length} @click=${close}>Cancel</button></p>`);
}

/** @param {any} app */
export const help = (app) =>
  openDialog(app, (close) => html`<h2 id="dialog-title">Keys</h2>
    <dl class="keys">${HELP.map(([key, says]) => html`<dt>${key.split(" ").map((one) => (one === "then" ? " then " : html`<kbd>${one}</kbd> `))}</dt><dd>${says}</dd>`)}</dl>
    <p class="buttons"><button data-first @click=${close}>Close</button></p>`);

/** @param {any} app */
export function palette(app) {
  const id = subject(app);
  const state = { text: "", found: /** @type {any[]} */ ([]), at: 0, asked: 0 };
  const commands = [
    ...Object.entries(GO).map(([key, path]) => ({ name: `Go to ${path || "overview"}`, key: "g " + key, act: () => app.go(path) })),
    ...(id ? [{ name: `Act on ${id}`, key: "a", act: () => actions(app, id) }] : []),
    ...["stuck", "locked-out", "retrying", "parked"].map((phase) => ({ name: `Show what is ${phase}`, key: "", act: () => app.go(`procedures?phase=${phase}`) })),
    { name: "Show what failed", key: "", act: () => app.go("procedures?state=FAILED") },
    ...["pause", "resume"].filter((verb) => may(app, verb)).map((verb) => ({ name: `${verb} the manager`, key: "", act: () => import("./asking.js").then((dialogs) => dialogs.askManager(app, /** @type {any} */ (verb))) })),
    { name: "Keys", key: "?", act: () => help(app) },
  ];
  const shown = () => {
    const wanted = state.text.toLowerCase();
    return [
      ...state.found.map((info) => ({ name: info.id, says: html`${shortType(info.type_name)} ${standing(info)}`, key: "", act: () => app.go(`procedures/${encodeURIComponent(info.id)}`) })),
      ...commands.filter((one) => one.name.toLowerCase().includes(wanted)),
    ].slice(0, 14);
  };
  const typed = async (/** @type {any} */ event) => {
    Object.assign(state, { text: event.target.value, at: 0 });
    const mine = (state.asked += 1);
    app.render();
    if (!state.text.trim()) return void (state.found = []);
    const answer = await get("procedures" + query({ q: state.text.trim(), limit: 8 })).catch(() => ({ items: [] }));
    if (mine === state.asked) state.found = answer.items;
    app.render();
  };
  openDialog(app, (close) => {
    const all = shown();
    const choose = (/** @type {any} */ one) => (close(), one?.act());
    const key = (/** @type {KeyboardEvent} */ event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (by) state.at = (state.at + by + all.length) % all.length;
      else if (event.key === "Enter") choose(all[state.at]);
      else return;
      event.preventDefault();
      app.render();
    };
    return html`<h2 id="dialog-title" class="sr">Search and commands</h2>
      <input data-first class="palette" role="combobox" aria-expanded="true" aria-controls="found" aria-label="Id, type or command" aria-activedescendant=${"found-" + state.at} autocomplete="off" placeholder="Id, type, tag or command" @input=${typed} @keydown=${key}>
      <ul id="found" role="listbox" aria-label="Found">${all.map((one, place) => html`<li role="option" id=${"found-" + place} aria-selected=${String(place === state.at)} @click=${() => choose(one)}><span>${one.name}</span> ${/** @type {any} */ (one).says ?? nothing} ${one.key ? html`<kbd>${one.key}</kbd>` : nothing}</li>`)}</ul>`;
  });
}
