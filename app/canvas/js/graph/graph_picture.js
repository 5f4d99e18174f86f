// Draw the visible part of a graph: frames of open modules, then edges, then boxes.

import { shortened } from "../base/formats.js";

/** Colours of marks. Each mark also has a shape or a text. */
export const SHADES = { held: "#0072B2", peak: "#D55E00" };
const LEGIBLE = 10; // smallest font size of a label in pixels
const ROUND = 4;

export function paintGraph(chart) {
  const { canvas, view, cursor, under } = chart;
  const pen = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  const seen = {
    x0: -view.x / view.scale,
    y0: -view.y / view.scale,
    x1: (canvas.width / ratio - view.x) / view.scale,
    y1: (canvas.height / ratio - view.y) / view.scale,
  };
  const { data, layout, look } = chart, { scale } = view;
  const scene = { pen, data, layout, look, seen, scale, font: look.font.slice(look.font.indexOf(" ") + 1) };
  scene.words = 11 * scale >= LEGIBLE;
  frames(scene, under);
  edges(scene, (k) => chart.route(k), under);
  boxes(scene, cursor, under);
}

const apart = ([x, y, w, h], { x0, y0, x1, y1 }) => x > x1 || y > y1 || x + w < x0 || y + h < y0;

function frames({ pen, data, layout, look, seen, font, words, scale }, under) {
  data.levels.forEach(([, , name, , count], k) => {
    const [x, y, w, h] = layout.frames[k];
    if (apart(layout.frames[k], seen)) return;
    pen.beginPath();
    pen.roundRect(x, y, w, h, 6);
    pen.fillStyle = look.panel;
    pen.fill();
    pen.lineWidth = Math.max(1, 0.8 / scale);
    pen.strokeStyle = under?.frame === k ? look.ink : look.soft;
    pen.setLineDash([]);
    pen.stroke();
    if (!words) return;
    pen.fillStyle = look.ink;
    pen.font = `600 11px ${font}`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(fitted(pen, `⊟ ${name}  ${count}`, w - 16), x + 8, y + 13);
  });
}

function edges({ pen, data, look, seen, scale }, route, under) {
  const carrying = new Set(data.marks.carrying), last = [];
  data.edges.forEach((edge, k) => {
    if (carrying.has(k) || under?.edge === k) last.push(k);
    else line(k, look.soft, Math.min(2.6, edge[4]) * Math.max(0.7, Math.min(1, 0.6 / scale)));
  });
  for (const k of last) line(k, look.ink, Math.max(2.4, 1.6 / scale));

  function line(k, colour, width) {
    const points = route(k), [ax, ay] = points, [bx, by] = points.slice(-2);
    if (Math.max(ax, bx) < seen.x0 - 400 || Math.min(ax, bx) > seen.x1 + 400) return;
    if (Math.max(ay, by) < seen.y0 || Math.min(ay, by) > seen.y1) return;
    pen.beginPath();
    pen.moveTo(ax, ay);
    if (points.length <= 6) for (let i = 2; i < points.length; i += 2) pen.lineTo(points[i], points[i + 1]);
    else smooth(pen, points);
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
    if (scale > 0.3) head(pen, points, 4 + width);
  }
}

/** Draw a smooth curve through the midpoints of the segments, with the points as control points. */
function smooth(pen, points) {
  let i = 2;
  for (; i < points.length - 2; i += 2) {
    const [x, y, nextX, nextY] = points.slice(i, i + 4);
    pen.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
  }
  pen.lineTo(points[i], points[i + 1]);
}

function head(pen, points, size) {
  const [ax, ay, bx, by] = points.slice(-4), angle = Math.atan2(by - ay, bx - ax);
  pen.beginPath();
  pen.moveTo(bx, by);
  for (const turn of [2.7, -2.7]) pen.lineTo(bx + size * Math.cos(angle + turn), by + size * Math.sin(angle + turn));
  pen.closePath();
  pen.fill();
}

function boxes(scene, cursor, under) {
  const { data, layout, seen } = scene;
  data.vertices.forEach((vertex, k) => {
    if (apart(layout.boxes[k], seen)) return;
    box(scene, vertex, layout.boxes[k], { cursor: cursor === k, under: under?.vertex === k, k });
  });
}

function box(scene, vertex, [x, y, w, h], { cursor, under, k }) {
  const { pen, data, look, scale, words } = scene, chosen = data.marks.selected === k, peak = data.marks.peak === k;
  if (vertex.kind === "level") {
    // A second outline is a sign that the box can be opened.
    outline(pen, [x + 3, y + 3, w, h], look.soft, Math.max(0.8, 0.6 / scale));
    fill(pen, [x + 3, y + 3, w, h], `rgb(${look.solid})`);
  }
  fill(pen, [x, y, w, h], `rgb(${look.solid})`);
  if (vertex.kind !== "node") fill(pen, [x, y, w, h], look.grid);
  if (vertex.held > 0) {
    pen.fillStyle = SHADES.held;
    pen.fillRect(x + 3, y + h - 5, Math.max(2, (w - 6) * vertex.held), 3);
  }
  pen.setLineDash(vertex.kind === "inputs" || vertex.kind === "tensor" ? [4, 3] : []);
  const width = Math.max(chosen ? 3 : 1, (chosen ? 2.4 : 0.8) / scale);
  outline(pen, [x, y, w, h], under || chosen ? look.ink : look.soft, width);
  pen.setLineDash([]);
  if (cursor) outline(pen, [x - 4, y - 4, w + 8, h + 8], look.ink, Math.max(1.2, 1.2 / scale));
  if (peak) flag(scene, x, y, w);
  if (!words) return;
  const two = vertex.under !== "", middle = x + w / 2;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillStyle = look.ink;
  pen.font = `${vertex.kind === "level" ? "600 " : ""}11px ${scene.font}`;
  const name = (vertex.kind === "level" ? "⊞ " : "") + vertex.name;
  pen.fillText(fitted(pen, name, w - 12), middle, y + (two ? 13 : h / 2));
  pen.font = `11px ${scene.font}`;
  pen.fillStyle = look.soft;
  if (two) pen.fillText(fitted(pen, vertex.under, w - 12), middle, y + 25);
  if (!vertex.hidden) return;
  pen.textAlign = "right";
  pen.fillText(`+${vertex.hidden}`, x + w - 4, y + 8);
}

/** Draw a flag with the text "peak", because a colour alone is not visible to everybody. */
function flag({ pen, look, scale, words, font }, x, y, w) {
  pen.fillStyle = SHADES.peak;
  pen.fillRect(x, y - 1, w, Math.max(3, 2 / scale));
  pen.beginPath();
  pen.moveTo(x + 6, y - 12);
  pen.lineTo(x + 12, y - 2);
  pen.lineTo(x, y - 2);
  pen.fill();
  if (!words) return;
  pen.fillStyle = look.ink;
  pen.font = `600 11px ${font}`;
  pen.textAlign = "right"; // left of the edges that enter the box
  pen.textBaseline = "middle";
  pen.fillText("peak", x - 4, y + 2);
}

function fill(pen, [x, y, w, h], colour) {
  pen.beginPath();
  pen.roundRect(x, y, w, h, ROUND);
  pen.fillStyle = colour;
  pen.fill();
}

function outline(pen, [x, y, w, h], colour, width) {
  pen.beginPath();
  pen.roundRect(x, y, w, h, ROUND);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.stroke();
}

/** Return a text, shortened if it is wider than `width`. */
const fitted = (pen, text, width) => shortened(text, Math.floor((text.length * width) / pen.measureText(text).width));
