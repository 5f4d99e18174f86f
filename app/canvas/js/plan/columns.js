// Read the bytes that app/canvas/pack.py writes: columns as typed arrays. Ids and node names are decoded on use.

export const DECODER = new TextDecoder();
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array };

export async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Return {token, plans} of packed bytes. The bytes are copied, because typed arrays need aligned addresses. */
export function decode(bytes) {
  const { token, kinds, plans, end } = headerOf(bytes), { buffer } = bytes.slice();
  const read = ([kind, start, count]) => new KINDS[kind](buffer, end + start, count);
  return { token, plans: plans.map((plan) => new Columns(plan, kinds, read)) };
}

/** Return the header of packed bytes, with its `end` in bytes. */
export function headerOf(bytes) {
  if (DECODER.decode(bytes.subarray(0, 8)) !== "TMMUCANV") throw new Error("these bytes are not a packed plan");
  const numbers = new DataView(bytes.buffer, bytes.byteOffset, 16), end = 16 + numbers.getUint32(12, true);
  if (numbers.getUint32(8, true) !== 1) throw new Error("packed plan of an unknown version");
  return { ...JSON.parse(DECODER.decode(bytes.subarray(16, end))), end };
}

/** A list of strings, stored as one blob of UTF-8 and the end offset of each string. */
class Pool {
  constructor(spec, read) {
    this.blob = read(spec.blob);
    this.ends = read(spec.ends);
    this.length = this.ends.length;
  }

  /** Return the string with an index; "" for an index outside of the list. */
  at(i) {
    if (!(i >= 0 && i < this.length)) return "";
    return DECODER.decode(this.blob.subarray(i ? Number(this.ends[i - 1]) : 0, Number(this.ends[i])));
  }

  /** Return the index of a string, or −1, without decoding the strings. */
  indexOf(text) {
    const needle = new TextEncoder().encode(text), { blob, ends } = this;
    for (let i = 0, start = 0; i < this.length; i++) {
      const end = Number(ends[i]);
      if (end - start === needle.length) {
        let k = 0;
        while (k < needle.length && blob[start + k] === needle[k]) k++;
        if (k === needle.length) return i;
      }
      start = end;
    }
    return -1;
  }

  /** Set flags[i] = 1 for every string that contains the text, ignoring the case of A to Z. */
  find(text, flags) {
    const needle = new TextEncoder().encode(text).map(fold);
    if (!needle.length) return;
    const blob = this.blob, last = blob.length - needle.length, first = needle[0];
    let row = 0, end = this.length ? Number(this.ends[0]) : 0;
    for (let i = 0; i <= last; i++) {
      if (fold(blob[i]) !== first) continue;
      let k = 1;
      while (k < needle.length && fold(blob[i + k]) === needle[k]) k++;
      if (k < needle.length) continue;
      while (end <= i) end = Number(this.ends[++row]);
      if (i + needle.length <= end) {
        flags[row] = 1;
        i = end - 1;
      }
    }
  }
}

/** Convert the byte of a letter A to Z to lower case. */
const fold = (byte) => (byte >= 65 && byte <= 90 ? byte + 32 : byte);

/** Convert BigInts to the nearest numbers. */
const rounded = (values) => (values instanceof BigUint64Array ? Float64Array.from(values, Number) : values);

/** A column of strings: a code per row, and the string of each code. */
class Table {
  constructor(spec, read) {
    this.codes = read(spec.codes);
    const pool = new Pool(spec.pool, read);
    this.names = Array.from({ length: pool.length }, (_, i) => pool.at(i));
  }

  at(row) {
    return this.names[this.codes[row]] ?? "";
  }
}

/** One plan. Its columns are numbers for drawing, rounded above 2^53; exact() returns a BigInt, for texts. */
export class Columns {
  /** `spec`: the header of one plan. It has a position for each array; read(position) returns the array. */
  constructor(spec, kinds, read) {
    const triples = (position) => {
      const flat = position ? Array.from(read(position), Number) : [];
      return Array.from({ length: flat.length / 3 }, (_, k) => flat.slice(3 * k, 3 * k + 3));
    };
    const { slotted, steps, ranked, main } = spec; // ranked: the operators that have a colour
    Object.assign(this, { slotted, steps, ranked, main }); // main: index of the arena shown first
    this.kinds = kinds; // the names of the bits of `changes`
    this.n = spec.rows;
    this.events = spec.events ? read(spec.events) : null; // drawn step → step of the plan; null if all steps are drawn
    this.raw = {};
    // `death`: the step after the last use of the bytes. stillRead: rows that are live until one step before `death`.
    for (const [column, position] of Object.entries(spec.columns)) {
      this.raw[column] = read(position);
      this[column] = rounded(this.raw[column]);
    }
    this.stillRead = new Set(Array.from(read(spec.still_read), Number));
    this.ids = new Pool(spec.ids, read);
    this.nodes = new Pool(spec.nodes, read);
    // `module` is the layer of each row.
    for (const column of ["role", "category", "dtype", "shape", "operator", "module"]) {
      this[column] = spec[column] ? new Table(spec[column], read) : null;
    }
    this.stretches = spec.stretches ?? []; // [phase, first step, step after the last]
    this.arenas = spec.arenas.map((arena) => ({ ...arena, live: rounded(read(arena.live)) }));
    const bases = read(spec.bases);
    this.baseOf = new Map(Array.from(read(spec.views), (row, k) => [Number(row), Number(bases[k])]));
    this.isView = new Uint8Array(this.n);
    for (const row of this.baseOf.keys()) this.isView[row] = 1;
    const shared = Array.from(read(spec.shared), Number), heads = Array.from(read(spec.heads), Number);
    // The head of a storage is the row of its first tensor. Only storages with several tensors are listed.
    this.headOf = new Map(shared.map((row, k) => [row, heads[k]]));
    this.members = new Map(heads.map((head) => [head, []])); // head → all rows of its storage
    this.isNotHead = new Uint8Array(this.n);
    shared.forEach((row, k) => this.members.get(heads[k]).push(row));
    for (const [row, head] of this.headOf) if (row !== head) this.isNotHead[row] = 1;
    this.handoffs = triples(spec.handoffs); // in-place reuse: [step, row of the input, row of the output]
    this.reuses = triples(spec.reuses); // [freed row, written row, cost]
    this.conflict = spec.conflict ? read(spec.conflict) : null; // flag per row that overlaps another in bytes and steps
    this.changes = spec.changes ? read(spec.changes) : null; // bits per row: bit k is set if kinds[k] applies
    this.twin = spec.twin ? read(spec.twin) : null; // per row: 1 + row of the same tensor in the other plan, or 0
  }

  exact(column, row) {
    return BigInt(this.raw[column][row]);
  }

  /** Return the step of the plan for a drawn step. A plan with many more steps than rows is drawn with fewer steps. */
  stepAt(t) {
    return BigInt(this.events ? (this.events[t] ?? this.events.at(-1)) : t);
  }

  /** Return the range of drawn steps that contains a range of steps of the plan. */
  drawnRange([start, end]) {
    if (!this.events) return [start, end];
    const first = this.events.findLastIndex((step) => step <= start);
    return [first, Math.max(first + 1, this.events.findIndex((step) => step >= end))];
  }

  rangeEnd(row) {
    return this.death[row] - (this.stillRead.has(row) ? 1 : 0);
  }

  /** Return the row of a tensor; −1 for an unknown id, null or undefined. */
  rowOf(id) {
    return this.ids.indexOf(id ?? "");
  }

  /** Return the row of the tensor that owns the bytes of a view, also for a view of a view; `row` if it is no view. */
  rootOf(row) {
    return this.baseOf.has(row) ? this.rootOf(this.baseOf.get(row)) : row;
  }

  head(row) {
    return this.headOf.get(row) ?? row;
  }

  /** Return {birth, death} of the storage of a row. A storage is in use while any of its tensors is live. */
  held(row) {
    const rows = this.members.get(this.head(row)) ?? [row];
    let birth = Infinity, death = 0;
    for (const i of rows) {
      birth = Math.min(birth, this.birth[i]);
      death = Math.max(death, this.death[i]);
    }
    return { birth, death };
  }

  /** Return the rows sorted by first write, then by size (largest first), then by id (contract §4). */
  byBirth() {
    const { birth, size } = this;
    return (this.order ??= Uint32Array.from(birth.keys()).sort((a, b) => birth[a] - birth[b] || size[b] - size[a] || a - b));
  }

  /** Return the rows that use the slot of a row, in order of their use, without views. */
  rowsInSlot(row) {
    const { slot, arena, isView, generation, birth } = this;
    const rows = [...slot.keys()].filter((i) => slot[i] === slot[row] && arena[i] === arena[row] && !isView[i]);
    return rows.sort((a, b) => generation[a] - generation[b] || birth[a] - birth[b] || a - b);
  }
}
