// The page that opens finished plans (contract §9) and review files in the browser, without a server.

import { unmount } from "../chart/drawing.js";
import { bookmarks, show, storePack } from "../chart/page.js";
import { el } from "../chart/element.js";
import { fullBytes, grouped, shortBytes, stepName } from "../base/formats.js";
import { Columns, DECODER, inflated } from "../plan/columns.js";

const VIEWS = ["map", "lifetimes", "slots"];
// Status in the file → text. This page does not check proofs, so an optimal size is only claimed.
const OPTIMALITY = { optimal: "claimed", feasible: "not proven", unproven: "not proven" };
const byId = (id) => document.getElementById(id);
let opened = 0; // number of files opened

/** Show the plan of a File in the page. For an invalid file, show an error and keep the plan shown before. */
export async function open(file) {
  const problem = byId("problem");
  try {
    const { plan, review } = await readFile(new Uint8Array(await file.arrayBuffer()));
    const { columns, arenas, findings } = columnsOf(plan);
    const token = `file-${++opened}`;
    storePack({ token, plans: [columns], bytes: file.size, began: performance.now() });
    problem.hidden = true;
    byId("pinned").textContent = "";
    byId("facts").replaceChildren(...facts(plan, arenas, findings, review));
    const drawn = {};
    for (const view of VIEWS) {
      const state = { plan: token, link: "viewer", view, height: 440, strip: view === "map" };
      unmount(byId(view)); // the choices for the previous plan do not apply
      drawn[view] = show(byId(view), state, (event, value) => event === "select" && showSelected(drawn[view], value));
    }
    byId("bookmarks").replaceChildren(...bookmarks(drawn, review?.views ?? [], showSelected));
  } catch (error) {
    problem.hidden = false;
    problem.textContent = `${file.name} cannot be opened: ${error.message}.`;
  }
}

function showSelected(chart, { id, row }) {
  const lines = id === null || row < 0 ? [] : chart.lines(row);
  byId("pinned").textContent = lines.map((line) => line.join(" ").trim()).join(" · ");
}

const cells = (tag, values) => el("tr", {}, ...values.map((value) => el(tag, {}, value)));

/** Return the elements above the drawings: title, decision and notes of a review, arena table, and check results. */
function facts(plan, arenas, findings, review) {
  const rows = arenas.map((arena) => {
    const capacity = arena.capacity === null ? "unlimited" : fullBytes(arena.capacity);
    const status = plan.arenas[arena.name].status ?? "unknown", optimality = OPTIMALITY[status] ?? status;
    return cells("td", [arena.name, fullBytes(arena.bound), fullBytes(arena.extent), arena.gap, capacity, optimality]);
  });
  const head = cells("th", ["arena", "lower bound (in the file)", "arena size", "gap", "capacity", "optimality"]);
  const checked = "This page checks overlaps, arena sizes and peaks. Use tmmu verify to check the whole plan.";
  const errors = findings.map((text) => el("p", { class: "bad" }, `✗ ${text}`));
  const notes = (review?.notes ?? []).map((note) => {
    const place = note.tensor ? `tensor ${note.tensor}` : (note.step ?? null) === null ? "plan" : `step ${note.step}`;
    return el("li", {}, el("b", {}, place), `: ${note.text} ${note.author ?? ""} ${note.date ?? ""}`);
  });
  const decision = review?.decision;
  return [
    el("h2", {}, `${plan.ir_name || "a graph"}: ${plan.mode}, planned by ${plan.planner}`),
    ...(decision ? [el("p", { id: "decision" }, `Decision: ${decision.answer} ${decision.text ?? ""}`)] : []),
    ...(notes.length ? [el("h3", {}, "Notes"), el("ul", { id: "notes" }, ...notes)] : []),
    el("table", {}, head, ...rows),
    ...(errors.length ? errors : [el("p", { class: "good" }, "✓ no overlaps; sizes and peaks are correct")]),
    el("p", { class: "soft" }, checked),
  ];
}

// Capacity of an unlimited arena. If JSON.parse passes no source text to exact(), the capacity is rounded to 2^64.
const UNLIMITED = 2n ** 64n - 1n;
const EMBEDDED = /<script type="application\/json" id="tmmu-review">(.*?)<\/script>/s;

/** Return {plan, review} of a plan or review file: JSON, CBOR, or HTML with a review, plain or gzipped. */
async function readFile(bytes) {
  const data = bytes[0] === 0x1f && bytes[1] === 0x8b ? await inflated(bytes) : bytes;
  const document = parse(data), schema = String(document?.schema ?? "");
  if (schema.startsWith("tmmu_plan/1")) return { plan: document, review: null };
  if (!schema.startsWith("tmmu_review/1")) throw new Error("the file is neither a finished plan nor a review file");
  const { plan } = await readFile(Uint8Array.from(atob(document.plan), (c) => c.charCodeAt(0)));
  return { plan, review: document.review };
}

/** Return the value of CBOR, of JSON, or of the review in an HTML file; null for other text. */
function parse(data) {
  if (data[0] >> 5 === 5) return cborValue(data); // the first byte of a CBOR map
  const text = DECODER.decode(data);
  try {
    return JSON.parse(EMBEDDED.exec(text)?.[1] ?? text, exact);
  } catch {
    return null;
  }
}

/** Reviver of JSON.parse. Integers from 2^53 become BigInts if the browser passes their source text. */
const exact = (key, value, context) =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && context ? BigInt(context.source) : value;

/** Return {columns, arenas, findings} of a plan: the Columns, the arenas with exact sizes, and a text per error in the
 * plan. Throws for an unknown arena and for steps that are not integers. */
function columnsOf(plan) {
  const rows = plan.tensors, rowOf = new Map(rows.map((row, k) => [row.tensor_id, k]));
  const names = Object.keys(plan.arenas).sort();
  const damaged = rows.find((row) => !names.includes(row.arena) || ![row.birth, row.death].every(Number.isSafeInteger));
  if (damaged) throw new Error(`the tensor ${damaged.tensor_id} has an invalid arena or live range`);
  if (!Number.isSafeInteger(plan.steps)) throw new Error("the number of steps is invalid");
  const handoffs = plan.handoffs.filter((reuse) => rowOf.has(reuse.from) && rowOf.has(reuse.to));
  const ends = lastUses(plan, handoffs, rowOf), storages = storagesOf(rows, ends);
  const conflicts = overlaps(storages, plan.places === "sparse");
  const events = drawnSteps(plan, rows, ends), indexOf = new Map(events && Array.from(events, (step, k) => [step, k]));
  const drawn = (step) => (events ? indexOf.get(step) : step);
  const steps = drawn(plan.steps);
  const hasInputsStep = plan.has_inputs_step ?? plan.steps === plan.execution_order.length + 1;
  const order = [...(hasInputsStep ? ["@inputs"] : []), ...plan.execution_order];
  const nodes = Array.from({ length: steps }, (_, t) => order[events ? events[t] : t] ?? "");
  const arenas = names.map((name) => arenaOf(plan, name, storages, { drawn, steps, events, nodes }));
  const spec = {
    slotted: plan.places !== "bytes",
    steps,
    main: mainArena(plan, arenas),
    ranked: [],
    phases: [],
    arenas,
    tables: {
      role: table(rows.map((row) => row.role ?? "activation")),
      category: rows.some((row) => row.category) ? table(rows.map((row) => row.category ?? "other")) : null,
      dtype: table(rows.map((row) => row.dtype ?? "")),
      shape: table(rows.map((row) => (row.shape ?? []).join(" × ") || "scalar")),
    },
    columns: {
      birth: Float64Array.from(rows, (row) => drawn(row.birth)),
      death: Float64Array.from(ends, drawn),
      offset: BigUint64Array.from(rows, (row) => BigInt(row.offset_bytes)),
      size: BigUint64Array.from(rows, (row) => BigInt(row.size_bytes)),
      slot: Float64Array.from(rows, (row) => row.logical_slot),
      generation: Float64Array.from(rows, (row) => row.generation),
      arena: Uint32Array.from(rows, (row) => names.indexOf(row.arena)),
    },
    arrays: {
      ids: rows.map((row) => row.tensor_id),
      nodes,
      handoffs: handoffs.flatMap(({ taken, step, from, to }) => {
        return taken ? [[drawn(step), rowOf.get(from), rowOf.get(to)]] : [];
      }),
      reuses: [],
      events,
      conflict: conflicts.size ? Uint8Array.from(rows, (_, k) => conflicts.has(k)) : null,
    },
    views: rows.map((row, k) => [k, rowOf.get(row.base_tensor_uid)]).filter(([, base]) => base !== undefined),
    storages: storages.filter((storage) => storage.rows.length > 1).map((storage) => [storage.rows[0], storage.rows]),
    stillRead: [...rows.keys()].filter((k) => ends[k] > rows[k].death),
  };
  const columns = new Columns(spec, [], (values) => values);
  return { columns, arenas, findings: errorsOf(plan, arenas, rows, conflicts) };
}

/** Return per row the step after the last use of its bytes. The input of an in-place reuse that is not taken is still
 * read in the step of the reuse (contract §11). Set a missing `taken` of a reuse. */
function lastUses(plan, handoffs, rowOf) {
  const ends = plan.tensors.map((row) => row.death);
  for (const reuse of handoffs) {
    const row = rowOf.get(reuse.from), input = plan.tensors[row], output = plan.tensors[rowOf.get(reuse.to)];
    reuse.taken ??= input.arena === output.arena && BigInt(input.offset_bytes) === BigInt(output.offset_bytes);
    if (!reuse.taken) ends[row] = Math.max(ends[row], Math.min(reuse.step + 1, plan.steps));
  }
  return ends;
}

/** Return the storages as {arena, rows, birth, death, start, stop}. Rows of one slot and generation share a storage. */
function storagesOf(rows, ends) {
  const groups = Map.groupBy(rows.keys(), (k) => `${rows[k].logical_slot}/${rows[k].generation}/${rows[k].arena}`);
  return Array.from(groups.values(), (members) => {
    const sortKey = (k) => rows[k].birth * 2 + (rows[k].base_tensor_uid === null ? 0 : 1); // a base before its views
    const starts = members.map((k) => BigInt(rows[k].offset_bytes));
    const stops = members.map((k, i) => starts[i] + BigInt(rows[k].size_bytes));
    return {
      arena: rows[members[0]].arena,
      rows: members.sort((a, b) => sortKey(a) - sortKey(b) || a - b),
      birth: Math.min(...members.map((k) => rows[k].birth)),
      death: Math.max(...members.map((k) => ends[k])),
      start: starts.reduce((a, b) => (a < b ? a : b)),
      stop: stops.reduce((a, b) => (a > b ? a : b)),
    };
  });
}

/** Return the rows of storages that overlap in bytes and steps. `isShared`: the arenas share an address space. */
function overlaps(storages, isShared) {
  const conflicts = new Set(), groups = Map.groupBy(storages, (storage) => (isShared ? "" : storage.arena));
  for (const group of groups.values()) {
    let live = [];
    for (const storage of group.sort((a, b) => a.birth - b.birth)) {
      live = live.filter((other) => other.death > storage.birth);
      for (const other of live) {
        if (other.start >= storage.stop || storage.start >= other.stop || storage.death <= storage.birth) continue;
        for (const row of [...storage.rows, ...other.rows]) conflicts.add(row);
      }
      live.push(storage);
    }
  }
  return conflicts;
}

/** Return the steps at which something changes, and the end of the plan; null for few steps, which are all drawn. */
function drawnSteps(plan, rows, ends) {
  if (plan.steps <= 8 * rows.length + 1024) return null;
  const births = rows.map((row) => row.birth), deaths = rows.map((row) => row.death);
  const reuses = plan.handoffs.map((reuse) => reuse.step);
  return Float64Array.from(new Set([0, plan.steps, ...births, ...deaths, ...ends, ...reuses])).sort();
}

/** Return the index of the arena shown first, like `main_arena` in app/texts/totals_text.py. */
function mainArena(plan, arenas) {
  const ranks = arenas.map(({ name, extent, bound, capacity, storages }) => {
    const excess = capacity !== null && capacity < extent ? extent - capacity : 0n;
    const { max_live, reuse_cost } = plan.arenas[name];
    return [excess, reuse_cost ?? 0, max_live < storages, extent - bound, extent];
  });
  return ranks.reduce((best, rank, k) => {
    const i = rank.findIndex((value, j) => value !== ranks[best][j]);
    return i < 0 || rank[i] > ranks[best][i] ? k : best; // of equal ranks the last name
  }, 0);
}

/** Return an arena of Columns. Its extent, peak and live bytes at each drawn step are computed from the storages. */
function arenaOf(plan, name, storages, { drawn, steps, events, nodes }) {
  const arena = plan.arenas[name], inArena = storages.filter((storage) => storage.arena === name);
  const live = new Float64Array(Math.max(1, steps));
  for (const { birth, death, start, stop } of inArena) {
    const end = Math.min(drawn(death), steps);
    for (let t = drawn(birth); t < end; t++) live[t] += Number(stop - start);
  }
  const peakStep = live.reduce((best, bytes, t) => (bytes > live[best] ? t : best), 0);
  const extent = inArena.reduce((most, { stop }) => (stop > most ? stop : most), 0n);
  const peak = BigInt(live[peakStep]), bound = BigInt(arena.lower_bound_bytes ?? arena.peak_live_bytes);
  const step = stepName(events ? events[peakStep] : peakStep, nodes[peakStep] ?? "");
  const gap = extent < bound ? "impossible" : percent(extent - bound, bound);
  return {
    name,
    capacity: BigInt(arena.capacity_bytes) >= UNLIMITED ? null : BigInt(arena.capacity_bytes),
    extent,
    bound,
    peak,
    peak_step: peakStep,
    reserved: plan.constraints?.reserved?.[name] ?? [],
    slots: arena.slots,
    storages: inArena.length,
    title: `peak ${shortBytes(peak)} at ${step}; arena size ${shortBytes(extent)}; gap ${gap}`,
    gap,
    live,
  };
}

/** Return a share ≥ 0 in percent with at most one decimal, as app/texts/numbers.py does. */
function percent(part, whole) {
  if (!whole) return part ? "unknown" : "0 %";
  const tenths = (part * 2000n + whole) / (2n * whole);
  if (!tenths && part) return "<0.1 %";
  return `${grouped(tenths / 10n)}${tenths % 10n ? `.${tenths % 10n}` : ""} %`;
}

/** Return a code per text, and the text of each code. */
function table(texts) {
  const names = [...new Set(texts)], codeOf = new Map(names.map((text, code) => [text, code]));
  return { codes: Uint32Array.from(texts, (text) => codeOf.get(text)), names };
}

/** Return a text for each wrong arena size or peak, for each exceeded capacity, and for the overlapping tensors. */
function errorsOf(plan, arenas, rows, conflicts) {
  const errors = [];
  for (const { name, extent, peak, capacity } of arenas) {
    const { extent_bytes, peak_live_bytes } = plan.arenas[name];
    for (const [what, stated, computed] of [["size", extent_bytes, extent], ["peak", peak_live_bytes, peak]]) {
      if (BigInt(stated) !== computed) errors.push(`${name}: ${what} ${stated} B in the file, ${computed} B computed`);
    }
    if (capacity !== null && extent > capacity) errors.push(`${name}: size over the capacity of ${capacity} B`);
  }
  const names = [...conflicts].slice(0, 4).map((k) => rows[k].tensor_id), more = conflicts.size > 4 ? ", …" : "";
  if (names.length) errors.push(`${conflicts.size} tensors overlap in time and bytes: ${names.join(", ")}${more}`);
  return errors;
}

// Low 5 bits of the first byte of a CBOR item → size in bytes of its argument, and the DataView method that reads it.
const ARGUMENTS = { 24: [1, "getUint8"], 25: [2, "getUint16"], 26: [4, "getUint32"], 27: [8, "getBigUint64"] };
const SIMPLE_VALUES = { 20: false, 21: true, 22: null, 23: undefined };

/** Return the value of CBOR bytes (RFC 8949): definite lengths, floats of 64 bits, no tags. Integers from 2^53 are
 * BigInts. Throws for other CBOR and for trailing bytes. */
function cborValue(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = 0; // of the bytes that have been read
  const startOfNext = (count) => {
    end += count;
    if (end > bytes.length) throw new Error("the CBOR ends too early");
    return end - count;
  };
  const argument = (low) => {
    if (low < 24) return low;
    if (!(low in ARGUMENTS)) throw new Error("CBOR with an indefinite or invalid length");
    const [size, method] = ARGUMENTS[low], number = view[method](startOfNext(size));
    return number <= Number.MAX_SAFE_INTEGER ? Number(number) : number;
  };
  const value = () => {
    const first = view.getUint8(startOfNext(1)), major = first >> 5, low = first & 31;
    if (major === 7) {
      if (low === 27) return view.getFloat64(startOfNext(8));
      if (low in SIMPLE_VALUES) return SIMPLE_VALUES[low];
      throw new Error("CBOR of an unknown type");
    }
    const count = argument(low);
    if (major === 0) return count;
    if (major === 1) return typeof count === "bigint" ? -1n - count : -1 - count;
    if (major === 4) return Array.from({ length: count }, value);
    if (major === 5) return Object.fromEntries(Array.from({ length: count }, () => [value(), value()]));
    if (major === 6) throw new Error("CBOR with a tag");
    const start = startOfNext(Number(count)), content = bytes.subarray(start, end);
    return major === 3 ? DECODER.decode(content) : content;
  };
  const document = value();
  if (end !== bytes.length) throw new Error("the CBOR has further bytes");
  return document;
}
