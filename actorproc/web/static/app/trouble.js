// Lines for what is not as it should be. Each says what to do.
import { html, nothing } from "./html.js";
import { clock } from "./format.js";
import { link } from "./live.js";

/** Lines below the header, the worst first. @param {any} app */
export function banners(app) {
  const { status, error } = app;
  const found = [];
  if (link.state === "expired") {
    found.push(["bad", html`This link has expired, and what is shown is from ${clock(app.at / 1000)}. Open the address that the server printed at its start. <code class="command">${link.do || "actorproc web"}</code>`]);
  } else if (link.state === "lost" || (error && app.data)) {
    const says = error && app.data ? error.message : "the connection was lost";
    found.push(["warn", html`Not live: ${says}. Shown is the look of ${clock(app.at / 1000)}; the page comes back by itself.`]);
  }
  const manager = status?.manager;
  if (manager && manager !== "up") {
    const words = { down: "No manager runs on this store: reading goes on, nothing runs.", hung: "The manager hangs.", refused: "The manager refuses this page." };
    found.push([manager === "down" ? "warn" : "bad", html`${status.says || words[/** @type {keyof typeof words} */ (manager)] || manager} ${status.do ? html`<code class="command">${status.do}</code>` : nothing}`]);
  }
  if (status?.paused !== null && status?.paused !== undefined) {
    found.push(["warn", html`The manager is paused: ${status.paused || "no reason given"}. <code class="command">actorproc resume --manager</code>`]);
  }
  if (status?.status === "gated") found.push(["warn", html`The manager was started behind a gate: nothing runs until its program calls <code>open()</code>.`]);
  for (const problem of status?.problems || status?.health?.problems || []) found.push(["bad", html`${problem}`]);
  if (link.isPaused) found.push(["calm", html`Live updates are paused (press p). Shown is the look of ${clock(app.at / 1000)}.`]);
  return found.map(([tone, text]) => html`<p class="banner ${tone}">${text}</p>`);
}

/** A sentence in place of rows. @param {any} text @param {any} [more] */
export const empty = (text, more = nothing) => html`<div class="empty"><p>${text}</p>${more}</div>`;
