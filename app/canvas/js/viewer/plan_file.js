// Read a finished plan (contract §9) or a review file in the browser, as columns of the canvas.

import { cborValue } from "./cbor.js";
import { Columns, DECODER, inflated } from "../plan/columns.js";
import { grouped, shortBytes, stepName } from "../base/formats.js";

const UNLIMITED = 2n ** 63n;
const EMBEDDED = /<script type="application\/json" id="tmmu-review">(.*?)<\/script>/s;
const ENCODER = new TextEncoder();

/** Return {plan, review} of a plan or review file: JSON, CBOR, or HTML with a review, plain or gzipped. */
export async function readFile(bytes) {
  const data = bytes[0] === 0x1f && bytes[1] === 0x8b ? await inflated(bytes) : bytes;
  const document = parsed(data), schema = String(document?.schema ?? "");
  if (schema.startsWith("tmmu_plan/1")) return { plan: document, review: null };
  if (!schema.startsWith("tmmu_review/1")) throw new Error("the file is not a finished plan and not a review file");
  const inner = Uint8Array.from(atob(document.plan), (c) => c.charCodeAt(0));
  return { plan: (await readFile(inner)).plan, review: document.review };
}

function parsed(data) {
  if (data[0] >> 5 === 5) return cborValue(data);
  const text = DECODER.decode(data);
  try {
    return JSON.parse(EMBEDDED.exec(text)?.[1] ?? text, exact);
  } catch {
    return null;
  }
}

/** Reviver of JSON.parse that returns integers above 2^53 as BigInts, if the browser passes their source text. */
const exact = (key, value, context) =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && context ? BigInt(context.source) : value;

/** Return {columns, findings} of a plan: the columns of the canvas, and the errors found in the plan. */
export function columnsOf(plan) {
  const rows = plan.tensors, rowOf = new Map(rows.map((row, k) => [row.tensor_id, k]));
  const names = Object.keys(plan.arenas).sort();
  const damaged = rows.find((row) => !names.includes(row.arena) || ![row.birth, row.death].every(Number.isSafeInteger));
  if (damaged) throw new Error(`the tensor ${damaged.tensor_id} has an invalid arena or live range`);
  if (!Number.isSafeInteger(plan.steps)) throw new Error("the number of steps is invalid");
  const handoffs = plan.handoffs.filter((each) => rowOf.has(each.from) && rowOf.has(each.to));
  const held = heldUntil(plan, handoffs, rowOf);
  const storages = storagesOf(rows, held);
  const conflicts = overlaps(storages, plan.places === "sparse");
  const events = drawnSteps(plan, rows, held), drawn = (step) => (events ? position(events, step) : step);
  const steps = drawn(plan.steps);
  const nodes = Array.from({ length: steps }, (_, t) => nodeAt(plan, events ? events[t] : t));
  const arenas = names.map((name) => arenaOf(plan, name, storages, { drawn, steps, events, nodes }));
  const spec = {
    name: plan.ir_name,
    planner: plan.planner,
    slotted: plan.places !== "bytes",
    steps,
    events,
    rows: rows.length,
    arenas,
    conflict: conflicts.size ? Uint8Array.from(rows, (_, k) => conflicts.has(k)) : null,
    columns: { ...columns(rows, drawn), death: Float64Array.from(held, drawn), arena: arenaColumn(rows, names) },
    ...texts(rows, nodes),
    ...relations(rows, rowOf, storages),
    handoffs: handoffs.flatMap(({ taken, step, from, to }) => {
      return taken ? [drawn(step), rowOf.get(from), rowOf.get(to)] : [];
    }),
    still_read: rows.flatMap((row, k) => (held[k] > row.death ? [k] : [])),
  };
  return { columns: new Columns(spec, [], (values) => values), findings: findings(plan, arenas, rows, conflicts) };
}

/** Return per row the step after the last use of its bytes. An unused in-place reuse adds a step (contract §11). */
function heldUntil(plan, handoffs, rowOf) {
  const held = plan.tensors.map((row) => row.death);
  for (const each of handoffs) {
    const from = rowOf.get(each.from), [giver, taker] = [plan.tensors[from], plan.tensors[rowOf.get(each.to)]];
    each.taken ??= giver.arena === taker.arena && BigInt(giver.offset_bytes) === BigInt(taker.offset_bytes);
    if (!each.taken) held[from] = Math.max(held[from], Math.min(each.step + 1, plan.steps));
  }
  return held;
}

/** Return the storages as {arena, rows, birth, death, start, stop}. Rows of one slot and generation share a storage. */
function storagesOf(rows, held) {
  const found = Map.groupBy(rows.keys(), (k) => `${rows[k].logical_slot}/${rows[k].generation}/${rows[k].arena}`);
  return Array.from(found.values(), (members) => {
    const first = (k) => rows[k].birth * 2 + (rows[k].base_tensor_uid === null ? 0 : 1);
    const starts = members.map((k) => BigInt(rows[k].offset_bytes));
    const stops = members.map((k, i) => starts[i] + BigInt(rows[k].size_bytes));
    return {
      arena: rows[members[0]].arena,
      rows: members.sort((a, b) => first(a) - first(b) || a - b),
      birth: Math.min(...members.map((k) => rows[k].birth)),
      death: Math.max(...members.map((k) => held[k])),
      start: starts.reduce((a, b) => (a < b ? a : b)),
      stop: stops.reduce((a, b) => (a > b ? a : b)),
    };
  });
}

/** Return the rows of storages that overlap in bytes and steps. `whole`: whether all arenas have one address space. */
function overlaps(storages, whole) {
  const found = new Set(), spaces = Map.groupBy(storages, (each) => (whole ? "" : each.arena));
  for (const space of spaces.values()) {
    let live = [];
    for (const one of space.sort((a, b) => a.birth - b.birth)) {
      live = live.filter((other) => other.death > one.birth);
      for (const other of live) {
        if (other.start >= one.stop || one.start >= other.stop || one.death <= one.birth) continue;
        for (const row of [...one.rows, ...other.rows]) found.add(row);
      }
      live.push(one);
    }
  }
  return found;
}

/** Return the steps to draw if there are many more steps than rows; null for all steps. */
function drawnSteps(plan, rows, held) {
  if (plan.steps <= 8 * rows.length + 1024) return null;
  const found = new Set([0, plan.steps, ...rows.map((row) => row.birth), ...rows.map((row) => row.death), ...held]);
  return Float64Array.from(found).sort();
}

function position(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function nodeAt(plan, step) {
  const order = plan.execution_order, loads = plan.has_inputs_step ?? plan.steps === order.length + 1;
  return loads && step === 0 ? "@inputs" : (order[step - (loads ? 1 : 0)] ?? "");
}

/** Return the figures of an arena and its live bytes at each drawn step. Peak and size are computed from the rows. */
function arenaOf(plan, name, storages, { drawn, steps, events, nodes }) {
  const given = plan.arenas[name], mine = storages.filter((each) => each.arena === name);
  const live = new Float64Array(Math.max(1, steps));
  for (const { birth, death, start, stop } of mine) {
    for (let t = drawn(birth); t < Math.min(drawn(death), steps); t++) live[t] += Number(stop - start);
  }
  const peakStep = live.reduce((best, bytes, t) => (bytes > live[best] ? t : best), 0);
  const extent = mine.reduce((most, { stop }) => (stop > most ? stop : most), 0n);
  const peak = BigInt(live[peakStep]), bound = BigInt(given.lower_bound_bytes ?? given.peak_live_bytes);
  const step = stepName(events ? events[peakStep] : peakStep, nodes[peakStep] ?? "");
  const gap = extent < bound ? "impossible" : percent(extent - bound, bound);
  return {
    name,
    capacity: BigInt(given.capacity_bytes) >= UNLIMITED ? null : String(given.capacity_bytes),
    extent: String(extent),
    bound: String(bound),
    peak: String(peak),
    peak_step: peakStep,
    slots: given.slots,
    storages: mine.length,
    claim: `peak ${shortBytes(peak)} at ${step}; arena size ${shortBytes(extent)}; gap ${gap}`,
    gap,
    live,
  };
}

/** Return part / of in percent with one decimal, as app/texts/numbers.py does. */
function percent(part, of) {
  if (!of) return part ? "unknown" : "0 %";
  const tenths = (part * 2000n + of) / (2n * of);
  if (!tenths && part) return "<0.1 %";
  return `${grouped(tenths / 10n)}${tenths % 10n ? `.${tenths % 10n}` : ""} %`;
}

const whole = (values) => BigUint64Array.from(values, BigInt);

function columns(rows, drawn) {
  return {
    birth: Float64Array.from(rows, (row) => drawn(row.birth)),
    offset: whole(rows.map((row) => row.offset_bytes)),
    size: whole(rows.map((row) => row.size_bytes)),
    slot: Float64Array.from(rows, (row) => row.logical_slot),
    generation: Float64Array.from(rows, (row) => row.generation),
  };
}

function arenaColumn(rows, names) {
  const number = new Map(names.map((name, k) => [name, k]));
  return Uint32Array.from(rows, (row) => number.get(row.arena));
}

const shape = (row) => (row.shape ?? []).join(" × ") || "scalar";

function texts(rows, nodes) {
  return {
    ids: pool(rows.map((row) => row.tensor_id)),
    nodes: pool(nodes),
    role: table(rows.map((row) => row.role ?? "activation")),
    category: rows.some((row) => row.category) ? table(rows.map((row) => row.category ?? "other")) : null,
    dtype: table(rows.map((row) => row.dtype ?? "")),
    shape: table(rows.map(shape)),
    operator: null,
    ranked: [],
  };
}

function relations(rows, rowOf, storages) {
  const views = rows.flatMap((row, k) => (rowOf.has(row.base_tensor_uid) ? [k] : []));
  const shared = storages.filter((each) => each.rows.length > 1);
  return {
    views,
    bases: views.map((k) => rowOf.get(rows[k].base_tensor_uid)),
    shared: shared.flatMap((each) => each.rows),
    heads: shared.flatMap((each) => each.rows.map(() => each.rows[0])),
  };
}

function pool(list) {
  const parts = list.map((text) => ENCODER.encode(text));
  let end = 0;
  const ends = Float64Array.from(parts, (part) => (end += part.length)), blob = new Uint8Array(end);
  parts.forEach((part, k) => blob.set(part, ends[k] - part.length));
  return { blob, ends };
}

function table(list) {
  const codes = new Map();
  const column = Uint32Array.from(list, (text) => codes.get(text) ?? codes.set(text, codes.size).size - 1);
  return { codes: column, pool: pool([...codes.keys()]) };
}

function findings(plan, arenas, rows, conflicts) {
  const found = [];
  for (const { name, extent, peak, capacity } of arenas) {
    const { extent_bytes, peak_live_bytes } = plan.arenas[name];
    const differs = (what, given, counted) => found.push(`${name}: ${what} ${given} B in the file, ${counted} B computed`);
    if (String(extent_bytes) !== extent) differs("size", extent_bytes, extent);
    if (String(peak_live_bytes) !== peak) differs("peak", peak_live_bytes, peak);
    if (capacity !== null && BigInt(extent) > BigInt(capacity)) found.push(`${name}: size over the capacity of ${capacity} B`);
  }
  const names = [...conflicts].slice(0, 4).map((k) => rows[k].tensor_id);
  if (names.length) found.push(`${conflicts.size} tensors overlap in time and bytes: ${names.join(", ")} …`);
  return found;
}
