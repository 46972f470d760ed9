// Templates whose every text is made safe to read: control characters and bidirectional marks are shown, not obeyed.
import { html as plain, svg as plainSvg, nothing, render } from "../vendor/lit-html/lit-html.js";
import { directive, Directive } from "../vendor/lit-html/directive.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { live } from "../vendor/lit-html/directives/live.js";

// Lines and tabs stay: HTML shows them as spaces, and <pre> as they are.
const HARMFUL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** @param {string} text */
export function safe(text) {
  return text.replace(HARMFUL, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x100 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
  });
}

const made = (/** @type {unknown[]} */ values) => values.map((value) => (typeof value === "string" ? safe(value) : value));

/** @param {TemplateStringsArray} strings @param {...any} values */
export const html = (strings, ...values) => plain(strings, ...made(values));
/** @param {TemplateStringsArray} strings @param {...any} values */
export const svg = (strings, ...values) => plainSvg(strings, ...made(values));

/** Properties of an element's style, set one by one: a strict policy refuses the attribute `style`. */
export const css = directive(
  class extends Directive {
    update(part, [properties]) {
      for (const [name, value] of Object.entries(properties)) {
        if (part.element.style[name] !== value) part.element.style[name] = value;
      }
    }
  },
);

/** The text of a field, set when it is another than before: what is being typed stays when the page is drawn meanwhile. */
export const text = directive(
  class extends Directive {
    was = /** @type {string | null} */ (null);

    update(/** @type {any} */ { element }, /** @type {[string]} */ [value]) {
      if (this.was === null) element.addEventListener("change", () => (this.was = element.value));
      if (value !== this.was) element.value = this.was = value;
    }
  },
);

let detail = /** @type {Promise<unknown> | null} */ (null);

/** Styles of what most pages do not have, loaded when the first one is opened that has. */
export function details() {
  detail ??= new Promise((found) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("static/app/detail.css", document.baseURI).href });
    sheet.onload = sheet.onerror = found;
    document.head.append(sheet);
  });
  return detail;
}

/** Rows whose elements stay with what they show, so that the focus does. @template T @param {T[]} items @param {(one: T) => any} key @param {(one: T) => any} view */
export function keyed(items, key, view) {
  const seen = /** @type {Record<string, number>} */ ({});
  const named = items.map((one) => [`${key(one)} ${(seen[key(one)] = (seen[key(one)] ?? 0) + 1)}`, one]);
  return repeat(named, ([name]) => name, ([, one]) => view(/** @type {T} */ (one)));
}

export { nothing, render, repeat, live };
