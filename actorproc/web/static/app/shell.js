// What stands around each page: header, navigation, health, lines of trouble, notes and the open dialog.
import { focusNow, refocus } from "./focus.js";
import { html, nothing } from "./html.js";
import { toneOf } from "./format.js";
import { link, pause } from "./live.js";
import { banners } from "./trouble.js";

const PAGES = [
  ["", "Overview", "overview"],
  ["procedures", "Procedures", "procedures"],
  ["locks", "Locks", "locks"],
  ["workers", "Workers", "workers"],
  ["activity", "Activity", "activity"],
  ["types", "Types", "types"],
];
const LIVE = { open: "live", lost: "reconnecting", expired: "expired", closed: "not live" };

function skip(/** @type {Event} */ event) {
  event.preventDefault();
  const main = /** @type {HTMLElement} */ (document.querySelector("main h1") ?? document.querySelector("main"));
  main.focus();
  main.scrollIntoView();
}

/** Health in a word. @param {any} status */
export function healthOf(status) {
  if (!status) return "";
  if (status.manager && status.manager !== "up") return status.manager;
  if (status.paused !== null && status.paused !== undefined) return "paused";
  return status.status || "up";
}

/** @param {any} app @param {any} content */
export function shell(app, content) {
  const health = healthOf(app.status);
  const isLive = link.isPaused ? "paused" : LIVE[/** @type {keyof typeof LIVE} */ (link.state)];
  return html`<a class="skip" href="#main" @click=${skip}>Skip to the content</a>
    <header>
      <a class="brand" href=".">actorproc</a>
      <nav aria-label="Pages">
        ${PAGES.map(([path, name, key]) =>
          app.name === key ? html`<a href=${path || "."} aria-current="page">${name}</a>` : html`<a href=${path || "."}>${name}</a>`,
        )}
      </nav>
      <span class="state">
        ${app.session?.store ? html`<span class="store wide" title="The store">${app.session.store}</span>` : nothing}
        ${app.session?.read_only ? html`<span class="badge calm" title=${app.session.why_read_only || ""}>read-only</span>` : nothing}
        <span role="status" aria-live="polite" aria-label="Health">${health ? html`<span class="badge ${toneOf(health)}">${health}</span>` : nothing}</span>
        <button class="quiet live ${link.state}" title="Pause or resume live updates (p)" aria-pressed=${String(link.isPaused)} @click=${() => pause(!link.isPaused)}>${isLive}</button>
        <button class="quiet" title="Search and commands (Ctrl-K)" aria-label="Search and commands" @click=${() => import("./keys.js").then(({ palette }) => palette(app))}>⌕</button>
        <button class="quiet" title="Keys (?)" aria-label="Keys" @click=${() => import("./keys.js").then(({ help }) => help(app))}>?</button>
      </span>
    </header>
    <div class="banners">${banners(app)}</div>
    <main id="main" tabindex="-1" class=${(link.state === "lost" || link.state === "expired") && app.data ? "stale" : ""}>${content ?? html`<p class="loading">Loading …</p>`}</main>
    <div class="notes" role="log" aria-label="Answers">${app.notes.map((/** @type {any} */ one) => html`<p class="note ${one.tone}">${one.text}</p>`)}</div>
    ${app.dialog ? app.dialog.view() : nothing}`;
}

/** Open a dialog: `view` makes its content, and the keyboard stays in it until it closes. @param {any} app @param {(close: () => void) => any} view */
export function openDialog(app, view) {
  const before = focusNow();
  const close = () => {
    /** @type {HTMLDialogElement | null} */ (document.querySelector("dialog"))?.close();
    app.dialog = null;
    app.render();
    refocus(before);
  };
  app.dialog = {
    close,
    view: () => html`<dialog aria-labelledby="dialog-title" @cancel=${(/** @type {Event} */ e) => (e.preventDefault(), close())}>${view(close)}</dialog>`,
  };
  app.render();
  queueMicrotask(() => queueMicrotask(() => {
    const dialog = /** @type {HTMLDialogElement | null} */ (document.querySelector("dialog"));
    if (dialog && !dialog.open) dialog.showModal();
    /** @type {HTMLElement | null | undefined} */ (dialog?.querySelector("[data-first]"))?.focus();
  }));
}
