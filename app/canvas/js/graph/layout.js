// Layout of a graph with open modules, called levels. The library dagre lays out one level at a time, innermost levels
// first. A level is one box in its parent level. This module runs in a worker, after the library.

globalThis.addEventListener("message", ({ data }) => globalThis.postMessage(arrange(globalThis.dagre, data)));

// Distances in pixels
const TITLE = 28; // height of the title of a module
const PAD = 10; // between a frame and its boxes
const BOX_GAP = 16; // between the boxes of a rank
const RANK_GAP = 34; // between ranks

/** Return the layout {boxes: [x, y, w, h] of each vertex, frames: [x, y, w, h] of each level, routes: [x, y, …] of each
 * edge, width, height}. The route of an edge that crosses a frame is null. Arguments: `sizes`: [w, h] of each vertex;
 * `within`: the level of each vertex; `edges`: [source, target, …]; `levels`: [number, parent, width of the title],
 * without the root 0, parents first. */
export function arrange(dagre, { sizes, within, edges, levels }) {
  const parent = new Map(levels); // level → its parent; Map() ignores the widths
  const links = linksByLevel(edges, within, parent), layouts = new Map(), cache = new Map();
  // A vertex k has the name "vk", a level k the name "lk".
  const contents = new Map([[0, []], ...levels.map(([level]) => [level, []])]); // level → the names of its boxes
  within.forEach((level, k) => contents.get(level).push(`v${k}`));
  for (const [level, outer] of levels) contents.get(outer).push(`l${level}`);
  const size = new Map(sizes.map((pair, k) => [`v${k}`, pair])); // name → [w, h]
  for (const [level, , titleWidth] of [[0, null, 0], ...levels].reverse()) {
    const names = contents.get(level), boxSizes = names.map((name) => size.get(name));
    const keys = [...(links.ofLevel.get(level)?.keys() ?? [])], number = new Map(names.map((name, k) => [name, k]));
    const pairs = keys.map((key) => key.split(" ").map((name) => number.get(name)));
    const input = JSON.stringify([boxSizes, pairs]); // equal levels are laid out once
    if (!cache.has(input)) cache.set(input, layoutOfLevel(dagre, boxSizes, pairs));
    const layout = cache.get(input);
    layouts.set(level, layout);
    size.set(`l${level}`, [Math.max(layout.width, titleWidth) + 2 * PAD, layout.height + TITLE + 2 * PAD]);
  }
  const boxes = [], frames = new Map(), corner = new Map([[0, [0, 0]]]); // corner: level → [left, top] of its content
  for (const level of [0, ...levels.map(([number]) => number)]) {
    const [left, top] = corner.get(level), { centres } = layouts.get(level);
    contents.get(level).forEach((name, k) => {
      const [w, h] = size.get(name), x = left + centres[k][0] - w / 2, y = top + centres[k][1] - h / 2;
      const number = Number(name.slice(1));
      if (name[0] === "v") boxes[number] = [x, y, w, h];
      else {
        frames.set(number, [x, y, w, h]);
        corner.set(number, [x + (w - layouts.get(number).width) / 2, y + PAD + TITLE]);
      }
    });
  }
  const routes = edges.map((_, k) => {
    const [level, key, crossesFrame] = links.ofEdge[k], [left, top] = corner.get(level);
    if (crossesFrame) return null;
    const points = layouts.get(level).routes[links.ofLevel.get(level).get(key)];
    return points.map((value, i) => value + (i % 2 ? top : left));
  });
  const { width, height } = layouts.get(0);
  return { boxes, frames: levels.map(([number]) => frames.get(number)), routes, width, height };
}

/** Return the links, which are pairs of connected boxes of one level: {ofLevel: level → Map(key → index),
 * ofEdge: [level, key, crossesFrame] of each edge}. The key "a b" has the names of both boxes. An edge belongs to the
 * innermost level that contains both ends. */
function linksByLevel(edges, within, parent) {
  const ofLevel = new Map(), ofEdge = [];
  /** Return the levels that contain a vertex, outermost first. */
  const levelsAround = (vertex) => {
    const levels = [];
    for (let level = within[vertex]; level; level = parent.get(level)) levels.unshift(level);
    return levels;
  };
  for (const [source, target] of edges) {
    const a = levelsAround(source), b = levelsAround(target);
    let common = 0; // number of levels that contain both ends
    while (common < a.length && a[common] === b[common]) common++;
    const level = common ? a[common - 1] : 0, crossesFrame = common < Math.max(a.length, b.length);
    const from = common < a.length ? `l${a[common]}` : `v${source}`;
    const key = `${from} ${common < b.length ? `l${b[common]}` : `v${target}`}`;
    if (!ofLevel.has(level)) ofLevel.set(level, new Map());
    const links = ofLevel.get(level);
    if (!links.has(key)) links.set(key, links.size);
    ofEdge.push([level, key, crossesFrame]);
  }
  return { ofLevel, ofEdge };
}

/** Return the layout of one level: {centres: [x, y] of each box, routes: [x, y, …] of each pair, width, height}. */
function layoutOfLevel(dagre, sizes, pairs) {
  const connected = new Set(pairs.flat()), graph = new dagre.graphlib.Graph();
  graph.setGraph({ ranksep: RANK_GAP, nodesep: BOX_GAP, edgesep: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach(([width, height], k) => connected.has(k) && graph.setNode(String(k), { width, height }));
  for (const [a, b] of pairs) graph.setEdge(String(a), String(b));
  if (connected.size) dagre.layout(graph);
  let { width, height } = connected.size ? graph.graph() : { width: 0, height: 0 };
  const centres = [];
  for (const k of connected) centres[k] = [graph.node(String(k)).x, graph.node(String(k)).y];
  // Boxes without edges are placed below all other boxes, in rows of about the same width.
  const unconnected = [...sizes.keys()].filter((k) => !connected.has(k));
  const area = unconnected.reduce((sum, k) => sum + (sizes[k][0] + BOX_GAP) * (sizes[k][1] + BOX_GAP), 0);
  const mostWidth = Math.max(width, 1.8 * Math.sqrt(area), ...unconnected.map((k) => sizes[k][0]));
  let x = 0, y = height ? height + BOX_GAP : 0, rowHeight = 0;
  for (const k of unconnected) {
    const [w, h] = sizes[k];
    if (x && x + w > mostWidth) [x, y, rowHeight] = [0, y + rowHeight + BOX_GAP, 0];
    centres[k] = [x + w / 2, y + h / 2];
    width = Math.max(width, x + w);
    [x, rowHeight] = [x + w + BOX_GAP, Math.max(rowHeight, h)];
    height = y + rowHeight;
  }
  const routes = pairs.map(([a, b]) => graph.edge(String(a), String(b)).points.flatMap((p) => [p.x, p.y]));
  return { centres, routes, width, height };
}
