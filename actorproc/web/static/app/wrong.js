// Pages in place of what cannot be shown: each says why, and what to do.
import { clock } from "./format.js";
import { html, nothing } from "./html.js";

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
  const heads = { "unknown-procedure": "No such procedure", "no-page": "No such page", "no-store": "No store", damaged: "Damaged", "other-format": "A store of another version", "no-manager": "No manager", "manager-hung": "The manager hangs", forbidden: "Not allowed" };
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
