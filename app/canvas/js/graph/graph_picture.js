// Draw the visible part of a graph: frames of open modules, then edges, then boxes.

import { arrowHead, fillBox } from "../base/plane.js";
import { shortened } from "../base/formats.js";

/** Colours of the live-bytes bar in a box (`held`) and of the peak flag (`peak`). */
export const MARK_COLOURS = { held: "#0072B2", peak: "#D55E00" };
const FONT_SIZE = 11; // of a label, in units of the layout
const LEAST_FONT = 10; // smallest font size of a label in pixels of the screen

/** Draw the background and the visible part of the graph of a chart. */
export function paintGraph(chart) {
  const { data, layout, view, hovered, width, height, ratio } = chart, { scale } = view;
  const pen = chart.canvases[0].getContext("2d"), look = chart.currentLook();
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  fillBox(pen, [0, 0, width, height], `rgb(${look.solid})`); // a saved picture needs a background
  pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * view.x, ratio * view.y);
  const toLayout = (x, y) => [(x - view.x) / scale, (y - view.y) / scale];
  const visible = [...toLayout(0, 0), ...toLayout(width, height)]; // [x0, y0, x1, y1]
  const font = look.font.slice(look.font.indexOf(" ") + 1), hasLabels = FONT_SIZE * scale >= LEAST_FONT;
  const scene = { pen, data, layout, look, visible, scale, font, hasLabels, hovered };
  const frames = layout.frames.map((_, k) => k).filter((k) => !isOutside(layout.frames[k], visible));
  for (const k of frames) {
    fill(pen, layout.frames[k], look.panel, 6);
    outline(pen, layout.frames[k], hovered?.frame === k ? look.ink : look.soft, Math.max(1, 0.8 / scale), 6);
  }
  drawEdges(scene, (k) => chart.route(k));
  for (const k of hasLabels ? frames : []) { // the titles of the open modules cover the edges
    const [, , name, , count] = data.levels[k], [x, y, w] = layout.frames[k], text = `⊟ ${name}  ${count}`;
    pen.font = `600 ${FONT_SIZE}px ${font}`;
    fillBox(pen, [x + 6, y + 4, x + 10 + Math.min(w - 16, pen.measureText(text).width), y + 22], `rgb(${look.solid})`);
    label(scene, text, x + 8, y + 13, { colour: look.ink, weight: 600, align: "left", width: w - 16 });
  }
  data.vertices.forEach((vertex, k) => {
    if (!isOutside(layout.boxes[k], visible)) drawBox(scene, vertex, layout.boxes[k], k);
  });
}

const isOutside = ([x, y, w, h], [x0, y0, x1, y1]) => x > x1 || y > y1 || x + w < x0 || y + h < y0;

function drawEdges({ pen, data, look, visible, scale }, route) {
  const carrying = new Set(data.marks.carrying), highlighted = [], [x0, y0, x1, y1] = visible;
  data.edges.forEach((edge, k) => {
    if (carrying.has(k)) highlighted.push(k);
    else drawEdge(k, look.soft, edge[2] * Math.max(0.7, Math.min(1, 0.6 / scale)));
  });
  for (const k of highlighted) drawEdge(k, look.ink, Math.max(2.4, 1.6 / scale));

  function drawEdge(k, colour, width) {
    const points = route(k), [ax, ay] = points, [bx, by] = points.slice(-2);
    // Skip an edge outside the visible part. The sides have a margin of 400 units, because a route may bend.
    if (Math.max(ax, bx) < x0 - 400 || Math.min(ax, bx) > x1 + 400) return;
    if (Math.max(ay, by) < y0 || Math.min(ay, by) > y1) return;
    pen.beginPath();
    pen.moveTo(ax, ay);
    // A smooth curve through the midpoints of the segments. With up to 3 points, the segments stay straight.
    for (let i = 2; i < points.length; i += 2) {
      const [x, y, nextX, nextY] = points.slice(i, i + 4);
      if (points.length <= 6 || nextX === undefined) pen.lineTo(x, y);
      else pen.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
    }
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
    if (scale > 0.3) arrowHead(pen, points.slice(-4), 4 + width);
  }
}

function drawBox(scene, vertex, box, k) {
  const { pen, data, look, scale, hasLabels, hovered } = scene, [x, y, w, h] = box;
  const isSelected = data.marks.selected === k, isModule = vertex.kind === "level";
  if (isModule) {
    // A second outline shows that the box is a closed module.
    outline(pen, [x + 3, y + 3, w, h], look.soft, Math.max(0.8, 0.6 / scale));
    fill(pen, [x + 3, y + 3, w, h], `rgb(${look.solid})`);
  }
  fill(pen, box, `rgb(${look.solid})`);
  if (vertex.kind !== "node") fill(pen, box, look.grid);
  if (vertex.held > 0) {
    fillBox(pen, [x + 3, y + h - 5, x + 3 + Math.max(2, (w - 6) * vertex.held), y + h - 2], MARK_COLOURS.held);
  }
  pen.setLineDash(vertex.kind === "inputs" || vertex.kind === "tensor" ? [4, 3] : []);
  const width = Math.max(isSelected ? 3 : 1, (isSelected ? 2.4 : 0.8) / scale);
  outline(pen, box, hovered?.vertex === k || isSelected ? look.ink : look.soft, width);
  pen.setLineDash([]);
  if (data.marks.peak === k) {
    // A colour and, for readers who cannot see it, a flag
    fillBox(pen, [x, y - 1, x + w, y - 1 + Math.max(3, 2 / scale)], MARK_COLOURS.peak);
    pen.beginPath();
    pen.moveTo(x + 6, y - 12);
    pen.lineTo(x + 12, y - 2);
    pen.lineTo(x, y - 2);
    pen.fill();
  }
  if (!hasLabels) return;
  const name = (isModule ? "⊞ " : "") + vertex.name, middle = x + w / 2, nameY = y + (vertex.under ? 13 : h / 2);
  label(scene, name, middle, nameY, { colour: look.ink, weight: isModule ? 600 : 400, width: w - 12 });
  if (vertex.under) label(scene, vertex.under, middle, y + 25, { colour: look.soft, width: w - 12 });
  if (vertex.hidden) label(scene, `+${vertex.hidden}`, x + w - 4, y + 8, { colour: look.soft, align: "right" });
}

function fill(pen, [x, y, w, h], colour, radius = 4) {
  pen.beginPath();
  pen.roundRect(x, y, w, h, radius);
  pen.fillStyle = colour;
  pen.fill();
}

function outline(pen, box, colour, width, radius = 4) {
  Object.assign(pen, { strokeStyle: colour, lineWidth: width });
  fill(pen, box, "transparent", radius);
  pen.stroke();
}

/** Draw a text with its middle at height y; shorten the text if it is wider than `width`. */
function label({ pen, font }, text, x, y, { colour, weight = 400, align = "center", width = Infinity }) {
  pen.fillStyle = colour;
  Object.assign(pen, { font: `${weight} ${FONT_SIZE}px ${font}`, textAlign: align, textBaseline: "middle" });
  pen.fillText(shortened(text, Math.floor((text.length * width) / pen.measureText(text).width)), x, y);
}
