// Children as a tree of rows: only what is seen is in the document, and only what is seen is asked for.
import { get, procedure as at, query, Refused } from "../api.js";
import { ago, badge, count, procedureLink, progress, shortType, standing, stepOf, whyOf } from "../format.js";
import { css, html, nothing, repeat } from "../html.js";
import { empty } from "../trouble.js";

const ROW = 30;
const PAGE = 100;
const SPARE = 10;

class Node {
  /** @param {any} info @param {Node | null} parent @param {number} place */
  constructor(info, parent, place) {
    this.info = info;
    this.parent = parent;
    this.place = place;
    this.level = parent ? parent.level + 1 : 1;
    this.isOpen = false;
    this.total = Object.values(info.children || {}).reduce((/** @type {number} */ sum, /** @type {any} */ n) => sum + n, 0);
    this.children = /** @type {Map<number, Node>} */ (new Map());
    this.asked = /** @type {Set<number>} */ (new Set());
  }

  /** Rows below this one. @returns {number} */
  get height() {
    if (!this.isOpen) return 0;
    let rows = this.total;
    for (const child of this.children.values()) if (child.isOpen) rows += child.height;
    return rows;
  }

  /** The row at so many rows below: a node, or the place of a child that is not loaded. @param {number} row @returns {{node?: Node, parent: Node | null, place: number}} */
  find(row) {
    if (row === 0) return { node: this, parent: this.parent, place: this.place };
    let left = row - 1;
    let from = 0;
    for (const child of [...this.children.values()].filter((one) => one.isOpen).sort((a, b) => a.place - b.place)) {
      const before = child.place - from;
      if (left < before) break;
      left -= before;
      if (left <= child.height) return child.find(left);
      left -= child.height + 1;
      from = child.place + 1;
    }
    const place = from + left;
    return { node: this.children.get(place), parent: this, place };
  }

  /** Its row in the whole tree. @returns {number} */
  get row() {
    if (!this.parent) return 0;
    let rows = this.parent.row + 1 + this.place;
    for (const other of this.parent.children.values()) if (other.isOpen && other.place < this.place) rows += other.height;
    return rows;
  }
}

/** @param {any} app @param {any} info @param {AbortSignal} signal */
export async function load(app, info, signal) {
  const state = app.query.get("state") || "";
  const own = (app.own.tree ??= { root: null, active: 0, top: 0, seen: 600, state });
  if (!own.root || own.state !== state) {
    Object.assign(own, { root: new Node(info, null, 0), active: 0, top: 0, state });
    own.root.isOpen = own.root.total > 0;
    if (own.root.isOpen) await page(own, own.root, 0, signal);
    return own;
  }
  own.root.info = info;
  if (!state) own.root.total = new Node(info, null, 0).total;
  // What is seen is asked for again, and stays shown until the answer is there.
  const pages = new Map();
  for (const { parent, place } of seen(own)) if (parent) pages.set(parent, (pages.get(parent) ?? new Set()).add(Math.floor(place / PAGE)));
  await Promise.all([...pages].flatMap(([parent, places]) => [...places].map((/** @type {number} */ place) => page(own, parent, place, signal))));
  return own;
}

/** One page of children. @param {any} own @param {Node} parent @param {number} place @param {AbortSignal} [signal] */
async function page(own, parent, place, signal) {
  parent.asked.add(place);
  try {
    const answer = await get(at(parent.info.id, "/children" + query({ offset: place * PAGE || "0", limit: PAGE, state: parent.parent ? "" : own.state })), signal);
    if (typeof answer.total === "number") parent.total = answer.total;
    answer.items.forEach((/** @type {any} */ info, /** @type {number} */ index) => {
      const mine = place * PAGE + index;
      const known = parent.children.get(mine);
      if (known && known.info.id === info.id) {
        known.info = info;
        known.total = known.isOpen ? known.total : new Node(info, parent, mine).total;
      } else parent.children.set(mine, new Node(info, parent, mine));
    });
    for (const known of parent.children.keys()) if (known >= parent.total) parent.children.delete(known);
  } catch (error) {
    parent.asked.delete(place);
    if (!(error instanceof Refused) && !signal?.aborted) throw error;
  }
}

/** Rows in the window, with some before and after, and the one that has the focus wherever it is. @param {any} own */
function seen(own) {
  const rows = own.root.height + 1;
  own.active = Math.min(own.active, rows - 1);
  const first = Math.max(0, Math.floor(own.top / ROW) - SPARE);
  const last = Math.min(rows, Math.ceil((own.top + own.seen) / ROW) + SPARE);
  const found = [];
  for (let row = first; row < last; row += 1) found.push({ row, ...own.root.find(row) });
  if (own.active < first || own.active >= last) found.push({ row: own.active, ...own.root.find(own.active) });
  return found;
}

/** @param {any} app @param {any} own @param {Node} node */
async function toggle(app, own, node, isOpen = !node.isOpen) {
  if (!node.total || node.isOpen === isOpen) return;
  node.isOpen = isOpen;
  app.render();
  if (isOpen && !node.children.size) {
    await page(own, node, 0);
    app.render();
  }
}

/** @param {any} app @param {any} info @param {any} own */
export function view(app, info, own) {
  const states = Object.entries(info.children || {}).filter(([, n]) => n);
  const here = `procedures/${encodeURIComponent(info.id)}/tree`;
  if (!states.length) return empty("It has no children.");
  const rows = own.root.height + 1;
  const missing = new Map();
  const shown = seen(own);
  for (const { node, parent, place } of shown) if (!node && parent) missing.set(`${parent.info.id} ${Math.floor(place / PAGE)}`, [parent, Math.floor(place / PAGE)]);
  for (const [parent, place] of missing.values()) if (!parent.asked.has(place)) page(own, parent, place).then(app.render, app.render);
  const scrolled = (/** @type {any} */ event) => {
    Object.assign(own, { top: event.target.scrollTop, seen: event.target.clientHeight });
    app.render();
  };
  return html`<ul class="chips"><li>${own.state ? html`<a class="chip" href=${here}>all</a>` : html`<b class="chip">all</b>`}</li>
      ${states.map(([state, n]) => html`<li>${own.state === state ? html`<b class="chip">${badge(state)} ${count(/** @type {number} */ (n))}</b>` : html`<a class="chip" href=${`${here}?state=${state}`}>${badge(state)} ${count(/** @type {number} */ (n))}</a>`}</li>`)}</ul>
    <p class="muted">${count(rows - 1)} rows. Arrows move and fold, Enter opens; a browser's own search finds only what is in sight: use the <a href=${`procedures?root=${encodeURIComponent(info.root_id)}`}>list of this tree</a> to filter.</p>
    <div class="treegrid" role="treegrid" tabindex="0" aria-label=${`Children of ${info.id}`} aria-rowcount=${rows} aria-colcount="5" aria-activedescendant=${`row-${own.active}`}
      @scroll=${scrolled} @keydown=${(/** @type {KeyboardEvent} */ e) => key(app, own, e)}>
      <div role="rowgroup" class="rows" ${css({ height: `${rows * ROW}px` })}>${repeat(shown, (one) => one.node?.info.id ?? `${one.parent?.info.id} ${one.place}`, (one) => rowOf(app, own, one))}</div></div>`;
}

/** @param {any} app @param {any} own @param {{row: number, node?: Node, parent: Node | null, place: number}} one */
function rowOf(app, own, { row, node, parent, place }) {
  const info = node?.info;
  const level = (parent?.level ?? 0) + 1;
  const click = () => ((own.active = row), app.render());
  return html`<div role="row" id=${`row-${row}`} class=${row === own.active ? "active" : ""} aria-rowindex=${row + 1} aria-level=${level} aria-setsize=${parent?.total ?? 1} aria-posinset=${place + 1}
      aria-expanded=${node?.total ? String(node.isOpen) : nothing} aria-selected=${String(row === own.active)} data-id=${info?.id ?? nothing} @click=${click} ${css({ top: `${row * ROW}px`, paddingLeft: `${Math.min(level - 1, 12) * 18 + 6}px` })}>
    ${info ? html`<span role="gridcell" class="name"><span class="fold" aria-hidden="true" @click=${() => node && toggle(app, own, node)}>${node?.total ? (node.isOpen ? "▾" : "▸") : ""}</span> <a class="id" tabindex="-1" href=${`procedures/${encodeURIComponent(info.id)}`}>${info.id}</a></span>
      <span role="gridcell">${standing(info)}</span><span role="gridcell" class="wide">${shortType(info.type_name)}, step ${stepOf(info)}</span>
      <span role="gridcell" class="wide">${ago(info.finished_at || info.updated_at)} ${progress(info.progress)}</span><span role="gridcell" class="muted clip">${whyOf(info)}</span>` : html`<span role="gridcell" class="muted">…</span>`}</div>`;
}

/** @param {any} app @param {any} own @param {KeyboardEvent} event */
function key(app, own, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = own.root.height + 1;
  const { node, parent } = own.root.find(own.active);
  const whole = Math.max(1, Math.floor(own.seen / ROW) - 1);
  const by = /** @type {Record<string, number>} */ ({ ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: whole, PageUp: -whole, Home: -rows, End: rows })[event.key];
  if (by !== undefined) own.active = Math.max(0, Math.min(rows - 1, own.active + by));
  else if (event.key === "ArrowRight" && node?.total) node.isOpen ? (own.active += 1) : toggle(app, own, node);
  else if (event.key === "ArrowLeft") node?.isOpen ? toggle(app, own, node) : parent && (own.active = parent.row);
  else if (event.key === "Enter" && node) app.go(`procedures/${encodeURIComponent(node.info.id)}`);
  else return;
  event.preventDefault();
  event.stopPropagation();
  const grid = /** @type {HTMLElement} */ (event.currentTarget);
  const top = own.active * ROW;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + ROW > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + ROW - grid.clientHeight;
  Object.assign(own, { top: grid.scrollTop, seen: grid.clientHeight });
  app.render();
}
