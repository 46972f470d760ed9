// Pages for what cannot be shown, and lines for what is not as it should be. Each says what to do.
import { html, nothing } from "./html.js";
import { clock } from "./format.js";
import { link } from "./live.js";

const command = (/** @type {string} */ text) => (text ? html`<p><code class="command">${text}</code></p>` : nothing);

/** @param {any} app */
export function wrong(app) {
  const { error } = app;
  const code = error.code || "";
  if (error.status === 401) return expired(error);
  if (error.status === undefined) {
    return html`<h1 tabindex="-1">No answer</h1>
      <p>The server of this page does not answer. It is asked again every few seconds; this page comes back by itself.</p>
      ${command("actorproc web")}`;
  }
  if (error.status === 410) {
    return html`<h1 tabindex="-1">Removed</h1>
      <p>${error.message}</p>
      ${command(error.do)}
      ${(error.body.audit || []).map((/** @type {any} */ row) => html`<p>${clock(row.at)} ${row.verb} ${row.detail} ${row.by ? "by " + row.by : ""} ${row.reason || ""}</p>`)}
      <p><a href="procedures">All procedures</a></p>`;
  }
  const heads = { "unknown-procedure": "No such procedure", "no-page": "No such page", "no-store": "No store", "no-manager": "No manager", "manager-hung": "The manager hangs", forbidden: "Not allowed" };
  return html`<h1 tabindex="-1">${heads[/** @type {keyof typeof heads} */ (code)] || (error.status === 404 ? "Not found" : "This cannot be shown")}</h1>
    <p>${error.message}</p>
    ${command(error.do)}
    <p><a href=".">Overview</a> · <a href="procedures">All procedures</a></p>`;
}

const expired = (/** @type {any} */ error) =>
  html`<h1 tabindex="-1">This link has expired</h1>
    <p>The link has expired, or was never complete: each start of the page's server makes a new one.</p>
    ${command(error.do || "actorproc web")}
    <p>Open the address that it prints.</p>`;

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
  for (const problem of status?.problems || status?.health?.problems || []) found.push(["bad", html`${problem}`]);
  if (link.isPaused) found.push(["calm", html`Live updates are paused (press p). Shown is the look of ${clock(app.at / 1000)}.`]);
  return found.map(([tone, text]) => html`<p class="banner ${tone}">${text}</p>`);
}

/** A sentence in place of rows. @param {any} text @param {any} [more] */
export const empty = (text, more = nothing) => html`<div class="empty"><p>${text}</p>${more}</div>`;
