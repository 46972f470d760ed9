// Words for times, sizes, states and steps, as the command line has them.
import { html, nothing } from "./html.js";

const TONES = {
  bad: "FAILED failed stuck parked broken degraded storage-trouble refused hung no-store crashed silent".split(" "),
  warn: "ROLLEDBACK retrying rolling-back paused locked-out undone gated stopped stopping down killed draining".split(" "),
  good: "SUCCESS running busy up done joined".split(" "),
  calm: "waiting sleeping suspended queued idle".split(" "),
};
const TONE_OF = Object.fromEntries(Object.entries(TONES).flatMap(([tone, words]) => words.map((word) => [word, tone])));
export const STATES = ["INITIALIZING", "RUNNABLE", "WAITING", "WAITING_TIMEOUT", "SUCCESS", "FAILED", "ROLLEDBACK"];
export const PHASES = ["queued", "locked-out", "running", "retrying", "stuck", "suspended", "sleeping", "waiting", "rolling-back", "paused", "parked", "done"];

export const toneOf = (/** @type {string} */ word) => TONE_OF[String(word).split(/[ ,:]/)[0]] || "plain";
export const shortType = (/** @type {string} */ name) => (name || "").split(".").pop() || "";
export const seconds = (/** @type {any} */ at) => (at === null || at === undefined ? null : typeof at === "number" ? at : Date.parse(at) / 1000);
export const now = () => Date.now() / 1000;

/** Seconds as "850 ms", "4.2 s", "3 m 20 s", "5 h 12 m", "3 d 4 h". @param {number | null | undefined} span */
export function duration(span) {
  if (span === null || span === undefined || !Number.isFinite(span)) return "";
  const value = Math.max(0, span);
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} m ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} m`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

/** A moment as its distance from now, with the moment itself beside it for a pointer and for a screen reader. */
export function ago(/** @type {any} */ at, after = "") {
  const moment = seconds(at);
  if (moment === null) return nothing;
  const distance = now() - moment;
  const words = distance >= 0 ? duration(distance) + after : "in " + duration(-distance);
  const exact = new Date(moment * 1000).toISOString();
  return html`<time datetime=${exact} title=${exact}>${words}</time>`;
}

export const clock = (/** @type {any} */ at) => {
  const moment = seconds(at);
  return moment === null ? "" : new Date(moment * 1000).toISOString().replace("T", " ").slice(0, 23);
};

/** @param {number | null | undefined} size */
export function bytes(size) {
  if (size === null || size === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = size;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export const count = (/** @type {number} */ value) => (value ?? 0).toLocaleString("en-US");
export const plural = (/** @type {number} */ value, /** @type {string} */ word, many = word + "s") => `${count(value)} ${value === 1 ? word : many}`;

/** A word with its tone; the tone repeats what the word says. */
export const badge = (/** @type {string} */ word) => html`<span class="badge ${toneOf(word)}">${word}</span>`;
export const standing = (/** @type {any} */ info) => badge(info.phase === "done" ? info.state : info.phase);
export const stepOf = (/** @type {any} */ info) => (info.step_name && info.phase !== "done" ? `${info.step} ${info.step_name}` : String(info.step));

/** The error or the reason, in one line. @param {any} info */
export function whyOf(info) {
  if (info.error && (!info.reason || info.reason === info.error.message)) return `${shortType(info.error.type_name)}: ${info.error.message}`;
  return info.reason || info.message || "";
}

/** Address of a page. @param {...(string | number)} parts */
export const to = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");
export const procedureLink = (/** @type {string} */ id) => html`<a class="id" href=${to("procedures", id)}>${id}</a>`;
export const keyLink = (/** @type {string} */ key) => html`<a class="key" href=${to("locks", key)}>${key}</a>`;
export const typeLink = (/** @type {string} */ name) => html`<a href=${to("types", name)} title=${name}>${shortType(name)}</a>`;
export const progress = (/** @type {number | null} */ share) =>
  share === null || share === undefined ? nothing : html`<progress max="1" .value=${share} aria-label="progress">${Math.round(share * 100)} %</progress> ${Math.round(share * 100)} %`;
