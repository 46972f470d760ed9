// Stack of the step that runs, asked for once a second while the page is seen.
import { get, procedure as at, Refused } from "../api.js";
import { clock } from "../format.js";
import { html } from "../html.js";
import { link } from "../live.js";
import { empty } from "../trouble.js";

let timer = 0;

/** @param {any} app @param {any} info @param {AbortSignal} signal */
export async function load(app, info, signal) {
  clearTimeout(timer);
  const mine = app.path;
  if (info.phase !== "done") timer = setTimeout(() => app.path === mine && again(app), 1000);
  try {
    return { ...(await get(at(info.id, "/stack"), signal)), at: Date.now() / 1000 };
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) return { says: error.message, do: error.do };
    throw error;
  }
}

const again = (/** @type {any} */ app) => (document.hidden || link.isPaused ? (timer = setTimeout(() => again(app), 1000)) : app.soon());

/** @param {any} _app @param {any} info @param {any} part */
export function view(_app, info, part) {
  if (!part.stack) return empty(info.phase === "done" ? "It has ended: there is no stack any more." : part.says || "No step of it runs now. The stack appears when one does.");
  return html`<section aria-labelledby="live"><h2 id="live">Stack</h2><p class="muted">${clock(part.at)}, asked once a second</p><pre tabindex="0" class="stack">${part.stack}</pre></section>`;
}

export const closed = () => clearTimeout(timer);
