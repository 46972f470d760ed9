// The wait-for graph drawn: keys and procedures, held locks as solid lines, waits as dashed ones, circles in red.
import { layout, Graph } from "../vendor/dagre/dagre.esm.js";
import { to } from "./format.js";
import { html, nothing, svg } from "./html.js";

const MOST = 60;
const short = (/** @type {string} */ text) => (text.length > 28 ? text.slice(0, 12) + "…" + text.slice(-15) : text);

/** Edges to draw: those about the chosen key, circles and roots first. @param {any} found @param {string} chosen */
function pick(found, chosen) {
  const waited = new Set(found.edges.filter((/** @type {any} */ edge) => !edge.held).map((/** @type {any} */ edge) => edge.key));
  let edges = found.edges.filter((/** @type {any} */ edge) => waited.has(edge.key));
  if (chosen) {
    const names = new Set(edges.filter((/** @type {any} */ edge) => edge.key === chosen).map((/** @type {any} */ edge) => edge.procedure));
    edges = edges.filter((/** @type {any} */ edge) => edge.key === chosen || names.has(edge.procedure));
  }
  const roots = new Set(found.roots);
  const rank = (/** @type {any} */ edge) => (edge.in_cycle ? 0 : roots.has(edge.procedure) ? 1 : edge.held ? 2 : 2 + edge.place);
  return [...edges].sort((a, b) => rank(a) - rank(b));
}

/** @param {any} found @param {string} chosen */
export function draw(found, chosen) {
  const all = pick(found, chosen);
  const edges = all.slice(0, MOST);
  if (!edges.length) return nothing;
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 60, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const edge of edges) {
    for (const [kind, name] of [["key", edge.key], ["procedure", edge.procedure]]) {
      graph.setNode(`${kind} ${name}`, { kind, name, width: 26 + short(name).length * 7.3, height: 30 });
    }
    // A wait goes from the procedure to the key, a lock from the key to its holder.
    const ends = edge.held ? [`key ${edge.key}`, `procedure ${edge.procedure}`] : [`procedure ${edge.procedure}`, `key ${edge.key}`];
    graph.setEdge(ends[0], ends[1], { ...edge, width: 20, height: 14, labelpos: "c" }, `${edge.held}`);
  }
  layout(graph);
  const { width = 0, height = 0 } = graph.graph();
  const roots = new Set(found.roots);
  const path = (/** @type {any[]} */ points) => "M" + points.map((point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("L");
  return html`<div class="scroll graph" tabindex="0" role="region" aria-label="Wait-for graph; the same is in the table below">
    <svg width=${Math.ceil(width)} height=${Math.ceil(height)} viewBox=${`0 0 ${width} ${height}`} role="group" aria-label="Wait-for graph">
      ${svg`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"></path></marker></defs>`}
      ${graph.edges().map((/** @type {any} */ name) => {
        const edge = graph.edge(name);
        const middle = edge.points[Math.floor(edge.points.length / 2)];
        return svg`<path class=${`edge ${edge.held ? "held" : "waits"} ${edge.in_cycle ? "cycle" : ""}`} d=${path(edge.points)} marker-end="url(#arrow)"><title>${edge.held ? `${edge.procedure} holds ${edge.key} (${edge.mode})` : `${edge.procedure} waits for ${edge.key} (${edge.mode}), place ${edge.place}`}</title></path>
          ${edge.held ? nothing : svg`<text class="place" x=${middle.x} y=${middle.y - 4}>${edge.place}</text>`}`;
      })}
      ${graph.nodes().map((/** @type {string} */ name) => {
        const node = graph.node(name);
        const isKey = node.kind === "key";
        return svg`<a href=${isKey ? to("locks", node.name) : to("procedures", node.name)} aria-label=${`${isKey ? "key" : "procedure"} ${node.name}${roots.has(node.name) && !isKey ? ", holds what others wait for" : ""}`}>
          <rect class=${`node ${node.kind} ${!isKey && roots.has(node.name) ? "root" : ""}`} x=${node.x - node.width / 2} y=${node.y - 15} width=${node.width} height="30" rx=${isKey ? 15 : 4}></rect>
          <text x=${node.x} y=${node.y + 4}>${short(node.name)}</text><title>${node.name}</title></a>`;
      })}
    </svg></div>
    <p class="muted">Solid: held. Dashed: waits, with its place in the queue. Red: waits in a circle. Bold: holds what others wait for, and waits for nothing.${all.length > MOST ? ` The ${MOST} lines nearest to the trouble of ${all.length}; choose a key to see its own.` : ""}</p>`;
}
