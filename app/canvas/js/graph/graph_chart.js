// The graph drawing and its input. The server sends boxes and edges, and a worker computes their layout.

import { Drawing, Input, mount, unmount } from "../chart/drawing.js";
import { button, el } from "../chart/element.js";
import { paintGraph, MARK_COLOURS } from "./graph_picture.js";
import { WORKER } from "./worker.js";

const READABLE = 1; // minimum scale after a jump to a box, also at the start; labels are then 11 pixels high
const MOST_LAYOUTS = 24; // maximum number of cached layouts
const TOP_MARGIN = 12; // pixels above the drawing
const LETTER = 6.3; // width of a letter in pixels
const layouts = new Map(); // layout_key, a digest of boxes and edges → promise of the layout
const SCRIPT = URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }));

function layoutOf({ vertices, edges, levels }) {
  const argument = {
    sizes: vertices.map(({ name, under }) => {
      const width = 26 + LETTER * Math.max(name.length, under.length); // `under` is a second line, or empty
      return [Math.min(240, Math.max(64, width)), under ? 38 : 24];
    }),
    within: vertices.map(({ level }) => level),
    edges,
    levels: levels.map(([number, parent, name, , count]) => {
      return [number, parent, 30 + LETTER * Math.min(40, name.length + count.length)];
    }),
  };
  const worker = new Worker(SCRIPT);
  const layout = new Promise((resolve, reject) => {
    worker.addEventListener("message", ({ data }) => resolve(data));
    worker.addEventListener("error", reject); // the event has a `message`, as an error has
  });
  worker.postMessage(argument);
  return layout.finally(() => worker.terminate());
}

class GraphChart extends Drawing {
  /** The caller sets `emit(event, value)`, which sends an event: select (a tensor), open and close (a module). */
  constructor(parent) {
    super();
    this.data = null;
    this.layout = null;
    this.layoutKey = "";
    this.view = { x: 0, y: 0, scale: 1 }; // position of the layout on the stage, and pixels per unit of the layout
    this.anchor = null; // key of the box or open module clicked last
    this.hovered = null; // item under the pointer, as itemAt() returns it
    const canvas = el("canvas", { class: "base" }), tip = el("div", { class: "tip", hidden: "" });
    const stage = el("div", { class: "stage", tabindex: "0", role: "application" }, canvas, tip);
    this.status = el("span", { class: "status", role: "status" });
    const bar = el(
      "div",
      { class: "bar", role: "toolbar", "aria-label": "the drawing of the graph" },
      button("Go to selection", "Go to selection (s)", () => this.goTo(this.data?.marks.selected)),
      button("Go to peak", "Go to peak (p)", () => this.goTo(this.data?.marks.peak)),
      el("span", { class: "grow" }),
      button("+", "Zoom in (+)", () => this.zoom(1.3)),
      button("−", "Zoom out (-)", () => this.zoom(1 / 1.3)),
      button("Show all", "Show all (0, double-click)", () => this.fit()),
      button("Save PNG", "Save PNG of the visible part", () => {
        el("a", { href: canvas.toDataURL("image/png"), download: "graph.png" }).click();
      }),
    );
    const legend = el(
      "span",
      { class: "legend" },
      el("span", {}, el("i", { style: `background:${MARK_COLOURS.held}` }), "share of the bytes live at the peak"),
      el("span", {}, el("i", { style: `background:${MARK_COLOURS.peak}` }), "▲ runs at the peak"),
      el("span", {}, "⊞ closed module: click to open; click the title of an open module to close it; a*: modules a0, a1, …"),
    );
    const foot = el("div", { class: "foot" }, legend, this.status);
    const root = el("div", { class: "tmmu-canvas graph" }, bar, stage, foot);
    this.attach(parent, { root, stage, tip, canvases: [canvas] });
    this.input = new GraphInput(this);
  }

  /** Show the data of drawing() in app/pages/graph/page.py. New boxes appear when their layout is computed. */
  async update(data) {
    this.latest = data;
    this.stage.style.height = `${data.height}px`;
    const keys = "s goes to the selection, p goes to the peak, Escape clears the selection.";
    this.stage.setAttribute("aria-label", `${data.title}. ${keys}`);
    const { layout_key: key, vertices } = data, began = performance.now();
    if (!layouts.has(key)) {
      this.showStatus(`computing the layout of ${vertices.length.toLocaleString("en")} boxes …`);
      layouts.set(key, layoutOf(data));
      if (layouts.size > MOST_LAYOUTS) layouts.delete(layouts.keys().next().value);
    }
    try {
      const layout = await layouts.get(key);
      if (this.latest !== data) return; // newer data has arrived
      this.data = data;
      if (this.layoutKey !== key) this.applyLayout(layout, key);
      Object.assign(this.root.dataset, { vertices: vertices.length, took: Math.round(performance.now() - began) });
      this.root.dataset.selected = vertices[data.marks.selected]?.name ?? "";
      this.scheduleDraw("base");
    } catch (error) {
      layouts.delete(key);
      this.showStatus(`layout failed: ${error.message} `);
      this.status.append(button("Try again", "Compute the layout again", () => this.update(data)));
    }
  }

  /** Apply a new layout. The box or module clicked last keeps its place on the screen. */
  applyLayout(layout, layoutKey) {
    const before = this.boxOf?.get(this.anchor), { scale } = this.view;
    Object.assign(this, { layout, layoutKey, hovered: null });
    this.tip.hidden = true;
    this.boxOf = new Map(); // key of a box or open module → its rectangle
    this.data.vertices.forEach(({ key }, k) => this.boxOf.set(key, layout.boxes[k]));
    this.data.levels.forEach(([number], k) => this.boxOf.set(`l${number}`, layout.frames[k]));
    const after = this.boxOf.get(this.anchor);
    if (before && after) {
      this.view.x += (before[0] + before[2] / 2 - after[0] - after[2] / 2) * scale;
      this.view.y += (before[1] - after[1]) * scale;
    } else this.showStart();
    this.scheduleDraw("layout");
  }

  /** Show the whole graph if its labels are readable; else show the selection, the peak or the first box. */
  showStart() {
    this.fit();
    if (this.view.scale >= READABLE) return;
    this.view.scale = READABLE;
    const { selected, peak } = this.data.marks, vertex = [selected, peak, 0].find((number) => number >= 0);
    const box = this.layout.boxes[vertex] ?? [0, 0, 0, 0], bottom = TOP_MARGIN + (box[1] + box[3]) * READABLE;
    this.centre(box);
    // Show the top of the graph if the box is visible there; else centre the box, but scroll only within the graph.
    const lowest = this.stage.clientHeight - TOP_MARGIN - this.layout.height * READABLE;
    this.view.y = bottom < this.stage.clientHeight ? TOP_MARGIN : Math.min(Math.max(this.view.y, lowest), TOP_MARGIN);
  }

  centre([x, y, w, h]) {
    const { scale } = this.view, { clientWidth, clientHeight } = this.stage;
    this.view = { scale, x: clientWidth / 2 - (x + w / 2) * scale, y: clientHeight / 2 - (y + h / 2) * scale };
  }

  fit() {
    if (!this.layout) return;
    const { width, height } = this.layout, { clientWidth, clientHeight } = this.stage;
    const scale = Math.min(1.2, (clientWidth - 24) / Math.max(1, width), (clientHeight - 24) / Math.max(1, height));
    this.view.scale = Math.max(0.004, scale);
    this.centre([0, 0, width, height]);
    this.scheduleDraw("base");
  }

  zoom(factor, x = this.stage.clientWidth / 2, y = this.stage.clientHeight / 2) {
    const scale = Math.min(3, Math.max(0.004, this.view.scale * factor)), ratio = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio };
    this.scheduleDraw("base");
  }

  goTo(vertex) {
    if (!this.layout || !(vertex >= 0)) return;
    this.view.scale = Math.max(this.view.scale, READABLE);
    this.centre(this.layout.boxes[vertex]);
    this.scheduleDraw("base");
  }

  /** Return the item at a point of the stage: {vertex}, {frame} (the title of an open module) or null. */
  itemAt(x, y) {
    if (!this.layout) return null;
    const { view, layout, data } = this, px = (x - view.x) / view.scale, py = (y - view.y) / view.scale;
    const contains = ([left, top, w, h]) => px >= left && px <= left + w && py >= top && py <= top + h;
    const vertex = layout.boxes.findIndex(contains);
    if (vertex >= 0) return { vertex };
    for (let k = data.levels.length - 1; k >= 0; k--) {
      const [left, top, w] = layout.frames[k];
      if (contains([left, top, w, 24])) return { frame: k };
    }
    return null;
  }

  /** Return the points [x, y, …] of an edge. For an edge that crosses a frame, the layout has no route. Its route is then a
   * cubic Bézier curve from the bottom of its source to the top of its target. Upward curves bend to the right. */
  route(k) {
    const { routes, boxes } = this.layout, [source, target] = this.data.edges[k];
    if (routes[k]) return routes[k];
    const [ax, ay, aw, ah] = boxes[source], [bx, y1, bw] = boxes[target], points = (routes[k] = []);
    const x0 = ax + aw / 2, y0 = ay + ah, x1 = bx + bw / 2;
    const bend = Math.max(24, Math.abs(y1 - y0) / 3), side = y1 < y0 ? 1.3 * Math.max(aw, bw) : 0;
    for (let step = 0; step <= 12; step++) {
      const t = step / 12, u = 1 - t, [p, q, r, s] = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
      points.push((p + q) * x0 + (r + s) * x1 + (q + r) * side, p * y0 + q * (y0 + bend) + r * (y1 - bend) + s * y1);
    }
    return points;
  }

  draw(due) {
    if (!this.layout) return;
    const { width } = this;
    if (due === "layout") this.fitCanvases();
    if (width) this.view.x += (this.width - width) / 2; // the middle of the view stays in the middle
    paintGraph(this);
    this.root.dataset.view = [this.view.x, this.view.y, this.view.scale].map((n) => n.toFixed(3)).join();
    this.root.dataset.drawn = this.layoutKey;
    if (this.data === this.latest) this.showStatus(this.data.status);
  }

  /** Show a text below the drawing. An equal text is not set again, because screen readers would repeat it. */
  showStatus(text) {
    if (this.status.textContent !== text) this.status.textContent = text;
  }
}

/** Entry point of the Streamlit component. */
export function streamlit({ data, parentElement, setTriggerValue }) {
  if (!data) return undefined;
  const chart = mount(parentElement, GraphChart, (event, value) => setTriggerValue(event, { value }));
  chart.update(data);
  return () => unmount(parentElement);
}

class GraphInput extends Input {
  constructor(chart) {
    super(chart);
    chart.stage.addEventListener("dblclick", (event) => chart.itemAt(...chart.at(event)) ?? chart.fit());
    chart.stage.style.touchAction = "pinch-zoom";
  }

  drag(now, last) {
    const { view } = this.chart;
    view.x += now[0] - last[0];
    view.y += now[1] - last[1];
    this.hover(null);
    this.chart.scheduleDraw("base");
  }

  click(point) {
    const { chart } = this, item = chart.itemAt(...point);
    if (item?.vertex >= 0) {
      const { key, path, pick } = chart.data.vertices[item.vertex];
      chart.anchor = key;
      if (path !== null) chart.emit("open", path);
      else if (pick) chart.emit("select", pick);
    } else if (item?.frame >= 0) {
      const [number, , , path] = chart.data.levels[item.frame];
      chart.anchor = `l${number}`;
      chart.emit("close", path);
    }
  }

  wheel(factor, point) {
    this.chart.zoom(factor, ...point);
  }

  hover(point) {
    const { chart } = this, item = point && chart.itemAt(...point);
    if (JSON.stringify(item) !== JSON.stringify(chart.hovered)) {
      chart.hovered = item;
      chart.stage.style.cursor = item ? "pointer" : "grab";
      const { vertices, levels } = chart.data, vertex = vertices[item?.vertex];
      const tip = vertex ? [["", vertex.name], ...vertex.tip] : [["", levels[item?.frame]?.[2]], ["open", "click to close"]];
      chart.fillTip(item && tip);
      chart.scheduleDraw("base");
    }
    if (point) chart.placeTip(point);
  }

  keys() {
    const { chart } = this, { marks } = chart.data, zoomIn = () => chart.zoom(1.3);
    return {
      Escape: () => chart.emit("select", ""),
      "+": zoomIn, "=": zoomIn, "-": () => chart.zoom(1 / 1.3),
      0: () => chart.fit(),
      s: () => chart.goTo(marks.selected),
      p: () => chart.goTo(marks.peak),
    };
  }
}
