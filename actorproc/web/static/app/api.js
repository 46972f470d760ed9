// Requests to the server of this page. Every address is relative to <base>, so that a prefix needs no setting.

export class Refused extends Error {
  /** @param {number} status @param {any} body */
  constructor(status, body) {
    super(body?.says || `the server answered ${status}`);
    this.status = status;
    this.body = body || {};
    this.code = body?.code || "internal";
    this.do = body?.do || "";
  }
}

export const address = (/** @type {string} */ path) => new URL(path, document.baseURI).href;

/** @param {Record<string, any>} fields Values that are empty are left out; lists repeat. */
export function query(fields) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "" && item !== false) found.append(name, item === true ? "1" : String(item));
    }
  }
  const text = found.toString();
  return text ? "?" + text : "";
}

async function answered(/** @type {Response} */ response) {
  if (response.ok) return response;
  let body = null;
  try {
    body = await response.json();
  } catch {
    // A proxy answered, or the server ended in the middle.
  }
  throw new Refused(response.status, body);
}

/** An object of the API. @param {string} path @param {AbortSignal} [signal] */
export async function get(path, signal) {
  return (await answered(await fetch(address("api/v1/" + path), { signal, headers: { Accept: "application/json" } }))).json();
}

function sent(/** @type {string} */ method, /** @type {string} */ path, /** @type {any} */ body, /** @type {AbortSignal=} */ signal) {
  const headers = { "Content-Type": "application/json", "X-Actorproc": "1" };
  return fetch(address(path), { method, headers, body: JSON.stringify(body), signal }).then(answered);
}

/** @param {string} path @param {any} body */
export const post = async (path, body) => (await sent("POST", "api/v1/" + path, body)).json();

export const logIn = async (/** @type {string} */ token) => (await sent("POST", "session", { token })).json();
export const logOut = () => sent("DELETE", "session", {});

/** Objects of an answer that comes line by line. @param {string} path @param {any} body @param {AbortSignal} signal */
export async function* postLines(path, body, signal) {
  const response = await sent("POST", "api/v1/" + path, body, signal);
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop() || "";
    for (const line of lines) if (line.trim()) yield JSON.parse(line);
    if (done) {
      if (rest.trim()) yield JSON.parse(rest);
      return;
    }
  }
}

export const procedure = (/** @type {string} */ id, rest = "") => `procedures/${encodeURIComponent(id)}${rest}`;
