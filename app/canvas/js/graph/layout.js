// Layout of a graph with open modules (levels). The library lays out each level separately, innermost level first; in
// its parent, a level is one box. Equal levels are laid out once. This module runs in a worker, after the library.

globalThis.addEventListener("message", ({ data: { number, drawing } }) => {
  try {
    globalThis.postMessage({ number, layout: arrange(globalThis.dagre, drawing) });
  } catch (error) {
    globalThis.postMessage({ number, why: String(error?.message ?? error) });
  }
});

const TITLE = 28;
const PAD = 10;
const BESIDE = 16;
const BETWEEN = 34;

/**
 * Return the layout {boxes: [[x, y, w, h]], frames: [[x, y, w, h]], routes: [[x, y, …] or null], width, height}. The
 * route of an edge that crosses a frame is null. Arguments: `sizes`: [w, h] of each vertex; `within`: level of each
 * vertex; `edges`: [source, target]; `levels`: [number, parent] without the root 0, parents first; `titles`: level →
 * width of its title.
 */
export function arrange(dagre, { sizes, within, edges, levels, titles }) {
  const parent = new Map(levels), below = new Map([[0, []]]), size = new Map(), layouts = new Map(), cache = new Map();
  for (const [level] of levels) below.set(level, []);
  within.forEach((level, k) => below.get(level).push(`v${k}`));
  for (const [level, up] of levels) below.get(up).push(`l${level}`);
  sizes.forEach((pair, k) => size.set(`v${k}`, pair));
  const links = linksByLevel(edges, within, parent);
  for (const level of [...levels.map(([number]) => number).reverse(), 0]) {
    const names = below.get(level), number = new Map(names.map((name, k) => [name, k]));
    const keys = [...(links.ofLevel.get(level)?.keys() ?? [])], own = names.map((name) => size.get(name));
    const pairs = keys.map((key) => key.split(" ").map((name) => number.get(name)));
    const content = JSON.stringify([own, pairs]);
    if (!cache.has(content)) cache.set(content, layoutOfLevel(dagre, own, pairs));
    const layout = cache.get(content);
    layouts.set(level, layout);
    const least = level ? (titles.get(level) ?? 0) : 0;
    size.set(`l${level}`, [Math.max(layout.width, least) + 2 * PAD, layout.height + TITLE + 2 * PAD]);
  }
  return absolute({ sizes, edges, levels, below, size, layouts, links });
}

/**
 * Return the level at which each edge is laid out: {ofLevel: level → Map("a b" → index), ofEdge: per edge [level, key,
 * plain]}. `plain`: whether the edge crosses no frame.
 */
function linksByLevel(edges, within, parent) {
  const ofLevel = new Map(), ofEdge = [];
  const levelsAround = (vertex) => {
    const around = [];
    for (let level = within[vertex]; level; level = parent.get(level)) around.push(level);
    return around;
  };
  for (const [source, target] of edges) {
    const a = levelsAround(source), b = levelsAround(target);
    let up = a.length, down = b.length;
    while (up && down && a[up - 1] === b[down - 1]) {
      up--;
      down--;
    }
    const level = up < a.length ? a[up] : 0;
    const key = `${up ? `l${a[up - 1]}` : `v${source}`} ${down ? `l${b[down - 1]}` : `v${target}`}`;
    if (!ofLevel.has(level)) ofLevel.set(level, new Map());
    const links = ofLevel.get(level);
    if (!links.has(key)) links.set(key, links.size);
    ofEdge.push([level, key, !up && !down]);
  }
  return { ofLevel, ofEdge };
}

/** Return the layout of one level: {centres: [[x, y]], routes: points per pair, width, height}. */
function layoutOfLevel(dagre, sizes, pairs) {
  const joined = new Set(pairs.flat()), graph = new dagre.graphlib.Graph();
  graph.setGraph({ ranksep: BETWEEN, nodesep: BESIDE, edgesep: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach(([width, height], k) => joined.has(k) && graph.setNode(String(k), { width, height }));
  for (const [a, b] of pairs) graph.setEdge(String(a), String(b));
  if (joined.size) dagre.layout(graph);
  const label = graph.graph(), centres = [];
  let width = joined.size ? label.width : 0, height = joined.size ? label.height : 0;
  for (const k of joined) centres[k] = [graph.node(String(k)).x, graph.node(String(k)).y];
  // Boxes without edges are placed below all other boxes, in rows of about the same width.
  const alone = sizes.map((_, k) => k).filter((k) => !joined.has(k));
  const area = alone.reduce((sum, k) => sum + (sizes[k][0] + BESIDE) * (sizes[k][1] + BESIDE), 0);
  const room = Math.max(width, 1.3 * Math.sqrt(area), ...alone.map((k) => sizes[k][0]));
  let x = 0, y = height ? height + BESIDE : 0, row = 0;
  for (const k of alone) {
    const [w, h] = sizes[k];
    if (x && x + w > room) [x, y, row] = [0, y + row + BESIDE, 0];
    centres[k] = [x + w / 2, y + h / 2];
    width = Math.max(width, x + w);
    [x, row] = [x + w + BESIDE, Math.max(row, h)];
    height = y + row;
  }
  const routes = pairs.map(([a, b]) => graph.edge(String(a), String(b)).points.flatMap((p) => [p.x, p.y]));
  return { centres, routes, width, height };
}

/** Return the layout with positions in the drawing instead of positions within levels. */
function absolute({ sizes, edges, levels, below, size, layouts, links }) {
  const boxes = sizes.map(() => [0, 0, 0, 0]), frames = new Map(), corner = new Map([[0, [0, 0]]]);
  for (const level of [0, ...levels.map(([number]) => number)]) {
    const [left, top] = corner.get(level), { centres } = layouts.get(level);
    below.get(level).forEach((name, k) => {
      const [w, h] = size.get(name), x = left + centres[k][0] - w / 2, y = top + centres[k][1] - h / 2;
      const number = Number(name.slice(1));
      if (name[0] === "v") {
        boxes[number] = [x, y, w, h];
        return;
      }
      frames.set(number, [x, y, w, h]);
      corner.set(number, [x + (w - layouts.get(number).width) / 2, y + PAD + TITLE]);
    });
  }
  const routes = edges.map((_, k) => {
    const [level, key, plain] = links.ofEdge[k], [left, top] = corner.get(level);
    if (!plain) return null;
    const points = layouts.get(level).routes[links.ofLevel.get(level).get(key)];
    return points.map((value, i) => value + (i % 2 ? top : left));
  });
  const { width, height } = layouts.get(0);
  return { boxes, frames: levels.map(([number]) => frames.get(number)), routes, width, height };
}
