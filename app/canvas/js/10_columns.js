// Reading the bytes that app/canvas/pack.py writes: typed columns are used where they lie, names are decoded when asked.

const DECODER = new TextDecoder();
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array };

/** Bytes → {token, plans}. The bytes are copied once, because a message may start them at any address. */
function decode(bytes) {
  const data = bytes.slice();
  if (DECODER.decode(data.subarray(0, 8)) !== "TMMUCANV") throw new Error("these bytes are no packed plan");
  const numbers = new DataView(data.buffer, data.byteOffset, 16);
  if (numbers.getUint32(8, true) !== 1) throw new Error("packed plan of an unknown version");
  const length = numbers.getUint32(12, true);
  const header = JSON.parse(DECODER.decode(data.subarray(16, 16 + length)));
  const base = data.byteOffset + 16 + length;
  const plans = header.plans.map((plan) => new Columns(plan, data.buffer, base));
  plans.forEach((plan) => { plan.kinds = header.kinds; });
  return { token: header.token, plans };
}

/** A pool of strings: one blob, and the byte at which each string ends. */
class Pool {
  constructor(spec, read) {
    this.blob = read(spec.blob);
    this.ends = read(spec.ends);
    this.length = this.ends.length;
  }
  start(i) { return i ? Number(this.ends[i - 1]) : 0; }
  at(i) { return i >= 0 && i < this.length ? DECODER.decode(this.blob.subarray(this.start(i), Number(this.ends[i]))) : ""; }

  /** Marks every string that holds the text, upper and lower Latin letters alike, into flags (1 = found). */
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
      if (i + needle.length <= end) { flags[row] = 1; i = end - 1; }
    }
  }
}
const fold = (byte) => (byte >= 65 && byte <= 90 ? byte + 32 : byte);

/** Strings that repeat: a code per row and each string once. */
class Table {
  constructor(spec, read) {
    this.codes = read(spec.codes);
    const pool = new Pool(spec.pool, read);
    this.names = Array.from({ length: pool.length }, (_, i) => pool.at(i));
  }
  at(row) { return this.names[this.codes[row]] ?? ""; }
}

/** One plan. Columns are for drawing (numbers); exact() gives the same figure as a BigInt, for words. */
class Columns {
  constructor(spec, buffer, base) {
    const read = ([kind, start, count]) => new KINDS[kind](buffer, base + start, count);
    Object.assign(this, { name: spec.name, planner: spec.planner, slotted: spec.slotted, mode: spec.mode, preset: spec.preset });
    this.n = spec.rows;
    this.steps = spec.steps;
    this.raw = {};
    for (const [name, triple] of Object.entries(spec.columns)) {
      this.raw[name] = read(triple);
      this[name] = triple[0] === "u8" ? Float64Array.from(this.raw[name], Number) : this.raw[name];
    }
    this.ids = new Pool(spec.ids, read);
    this.nodes = new Pool(spec.nodes, read);
    for (const name of ["role", "dtype", "shape"]) this[name] = new Table(spec[name], read);
    this.operator = spec.operator && new Table(spec.operator, read);
    this.extra = spec.extra.map(([heading, table]) => [heading, new Table(table, read)]);
    this.arenas = spec.arenas.map((arena) => {
      const live = read(arena.live);
      return { ...arena, live: arena.live[0] === "u8" ? Float64Array.from(live, Number) : live, rawLive: live };
    });
    this.viewRows = read(spec.views);
    this.baseOf = new Map();
    const bases = read(spec.bases);
    this.viewRows.forEach((row, k) => this.baseOf.set(Number(row), Number(bases[k])));
    this.isView = new Uint8Array(this.n);
    for (const row of this.viewRows) this.isView[row] = 1;
    this.aloneFrom = this.viewsBeyondTheirBase();
    const flat = read(spec.handoffs);
    this.handoffs = [];
    for (let k = 0; k < flat.length; k += 3) this.handoffs.push([Number(flat[k]), Number(flat[k + 1]), Number(flat[k + 2])]);
    this.changes = spec.changes ? read(spec.changes) : null; // per row, bit k: the header's kinds[k]
    this.twin = spec.twin ? read(spec.twin) : null; // row in the other plan, plus one; 0 where there is none
  }
  /** View → the step from which neither its base nor an older view of the same bytes is alive beside it. */
  viewsBeyondTheirBase() {
    const alone = new Map(), until = new Map();
    for (const row of Array.from(this.viewRows, Number).sort((a, b) => this.birth[a] - this.birth[b] || a - b)) {
      let root = row;
      while (this.baseOf.has(root)) root = this.baseOf.get(root);
      const bytes = `${root}/${this.offset[row]}/${this.size[row]}`, covered = until.get(bytes) ?? this.death[root];
      alone.set(row, Math.max(this.birth[row], covered));
      until.set(bytes, Math.max(this.death[row], covered));
    }
    return alone;
  }
  exact(column, row) { return BigInt(this.raw[column][row]); }

  /** Row of a tensor id, −1 where there is none: names are compared as bytes, without decoding them all. */
  rowOf(id) {
    const needle = new TextEncoder().encode(id), { blob, ends } = this.ids;
    for (let row = 0, start = 0; row < this.n; row++) {
      const end = Number(ends[row]);
      if (end - start === needle.length) {
        let k = 0;
        while (k < needle.length && blob[start + k] === needle[k]) k++;
        if (k === needle.length) return row;
      }
      start = end;
    }
    return -1;
  }

  /** Rows in the contract's order of birth: (birth, larger first, id bytes). A counting sort, then small groups. */
  byBirth() {
    if (this.order) return this.order;
    const heads = new Uint32Array(this.steps + 2);
    for (let i = 0; i < this.n; i++) heads[this.birth[i] + 1]++;
    for (let t = 0; t <= this.steps; t++) heads[t + 1] += heads[t];
    const order = new Uint32Array(this.n), next = heads.slice();
    for (let i = 0; i < this.n; i++) order[next[this.birth[i]]++] = i;
    for (let t = 0; t <= this.steps; t++) {
      if (heads[t + 1] - heads[t] > 1) order.subarray(heads[t], heads[t + 1]).sort((a, b) => this.size[b] - this.size[a] || a - b);
    }
    return (this.order = order);
  }

  /** The tenants of a row's slot, first to last; views are no tenants. */
  tenants(row) {
    const found = [];
    for (let i = 0; i < this.n; i++) {
      if (this.slot[i] === this.slot[row] && this.arena[i] === this.arena[row] && !this.isView[i]) found.push(i);
    }
    return found.sort((a, b) => this.generation[a] - this.generation[b] || this.birth[a] - this.birth[b] || a - b);
  }
}
