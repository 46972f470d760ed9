// Rates of the last minute as a chart, with the numbers beside it. uPlot is loaded when a chart is first seen.
import { address } from "./api.js";
import { html, nothing } from "./html.js";

let library = /** @type {Promise<any> | null} */ (null);

function loaded() {
  library ??= new Promise((found, lost) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address("static/vendor/uplot/uPlot.min.css") });
    const script = Object.assign(document.createElement("script"), { src: address("static/vendor/uplot/uPlot.iife.min.js") });
    script.onload = () => found(/** @type {any} */ (globalThis).uPlot);
    script.onerror = lost;
    document.head.append(sheet, script);
  });
  return library;
}

const mean = (/** @type {number[]} */ all) => (all.length ? all.reduce((sum, one) => sum + one, 0) / all.length : 0);

/** @param {any} app @param {any} speed */
export function rates(app, speed) {
  const steps = speed.steps_series || [];
  const ended = speed.ended_series || [];
  app.own.series = [steps, ended];
  if (!steps.length && !ended.length) return html`<p class="muted">No rates yet: they are counted while a manager runs and this page is open.</p>`;
  const top = (/** @type {number[]} */ all) => Math.max(0, ...all).toFixed(1);
  return html`<div class="chart" aria-hidden="true"></div>
    <table><thead><tr><th>A second</th><th class="number">now</th><th class="number">mean</th><th class="number">most</th></tr></thead>
    <tbody><tr><th>steps</th><td class="number">${(speed.steps ?? 0).toFixed(1)}</td><td class="number">${mean(steps).toFixed(1)}</td><td class="number">${top(steps)}</td></tr>
    <tr><th>ended</th><td class="number">${(speed.ended ?? 0).toFixed(1)}</td><td class="number">${mean(ended).toFixed(1)}</td><td class="number">${top(ended)}</td></tr></tbody></table>${nothing}`;
}

/** Draw into the place that was rendered. @param {any} app */
rates.drawn = async (app) => {
  const place = document.querySelector(".chart");
  const [steps, ended] = app.own.series || [[], []];
  if (!place || app.own.drawnSeries === app.own.series) return;
  app.own.drawnSeries = app.own.series;
  const length = Math.max(steps.length, ended.length);
  const data = [Array.from({ length }, (_, i) => i - length + 1), steps, ended];
  const uPlot = await loaded();
  if (!place.isConnected) return;
  const ink = getComputedStyle(document.body);
  const colour = (/** @type {string} */ name) => ink.getPropertyValue(name).trim();
  const width = Math.max(220, Math.min(900, place.clientWidth));
  if (app.own.chart?.root.isConnected) {
    if (app.own.chart.width !== width) app.own.chart.setSize({ width, height: 160 });
    return app.own.chart.setData(data);
  }
  place.textContent = "";
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  app.own.chart = new uPlot(
    {
      width,
      height: 160,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false }, y: { range: (/** @type {any} */ _u, /** @type {number} */ _low, /** @type {number} */ high) => [0, Math.max(1, high || 0)] } },
      axes: [{ ...axis, values: (/** @type {any} */ _u, /** @type {number[]} */ all) => all.map((at) => `${at} s`) }, { ...axis, size: 44 }],
      series: [{}, { label: "steps", stroke: colour("--calm"), width: 2 }, { label: "ended", stroke: colour("--good"), width: 2, dash: [6, 3] }],
    },
    data,
    place,
  );
};
