// Read the bytes that app/canvas/component.py writes: numbers as typed arrays, texts and lists as JSON.

export const DECODER = new TextDecoder();
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array };

export async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Return {token, plans} of packed bytes. The bytes are copied, because typed arrays need aligned addresses. */
export function decode(bytes) {
  const { token, kinds, plans, end } = headerOf(bytes), { buffer } = bytes.slice();
  const read = ([kind, start, count]) => {
    if (kind === "json") return JSON.parse(DECODER.decode(new Uint8Array(buffer, end + start, count)));
    return new KINDS[kind](buffer, end + start, count);
  };
  return { token, plans: plans.map((plan) => new Columns(plan, kinds, read)) };
}

/** Return the header of packed bytes, with its `end` in bytes. */
export function headerOf(bytes) {
  const end = 8 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true); // the high 32 bits are 0
  return { ...JSON.parse(DECODER.decode(bytes.subarray(8, end))), end };
}

/** Convert BigInts to the nearest numbers. */
const rounded = (values) => (values instanceof BigUint64Array ? Float64Array.from(values, Number) : values);

/** One plan. Its columns are numbers for drawing, rounded above 2^53; exact() returns a BigInt, for texts. */
export class Columns {
  /** `spec`: the part of one plan in the header, see component.py; read(position) returns the array at a position.
   *
   * Columns of texts are {codes: a code per row, names: the text of each code}: role, dtype and shape, and category,
   * operator and module (the layer), which may be null. These fields may be null too: `events` (drawn step → step of the
   * plan; null: all steps are drawn), `conflict` (1 for a row that overlaps another row in bytes and steps), `changes`
   * (bits per row: bit k is set if kinds[k] applies), `twin` (1 + row of the same tensor in the other plan, or 0). */
  constructor({ columns, tables, arrays, arenas, views, storages, stillRead, ...spec }, kinds, read) {
    Object.assign(this, spec, { kinds });
    for (const [name, position] of Object.entries(arrays)) this[name] = position && read(position);
    for (const [name, table] of Object.entries(tables)) {
      this[name] = table && { codes: read(table.codes), names: table.names };
    }
    this.raw = {};
    // `death`: the step after the last use of the bytes. stillRead: rows that are live until one step before `death`.
    for (const [name, position] of Object.entries(columns)) {
      this.raw[name] = read(position);
      this[name] = rounded(this.raw[name]);
    }
    this.n = this.size.length;
    this.arenas = arenas.map(({ live, extent, bound, peak, capacity, ...arena }) => ({
      ...arena,
      live: rounded(read(live)),
      extent: Number(extent),
      bound: Number(bound),
      peak: Number(peak),
      capacity: Number(capacity ?? Infinity),
    }));
    this.stillRead = new Set(read(stillRead));
    this.baseOf = new Map(read(views));
    this.isView = Uint8Array.from(this.size, (_, row) => this.baseOf.has(row));
    // Only storages with several tensors are listed. Their head is the row of their first tensor.
    this.members = new Map(read(storages)); // head → all rows of its storage
    this.headOf = new Map([...this.members].flatMap(([head, rows]) => rows.map((row) => [row, head])));
    this.isNotHead = Uint8Array.from(this.size, (_, row) => this.head(row) !== row);
  }

  exact(column, row) {
    return BigInt(this.raw[column][row]);
  }

  /** Return the text of a row in a column of texts; "" without such a column. */
  text(column, row) {
    return this[column]?.names[this[column].codes[row]] ?? "";
  }

  /** Return the id of a row; "" for −1. */
  id(row) {
    return this.ids[row] ?? "";
  }

  /** Return the row of a tensor; −1 for an unknown id, null or undefined. */
  rowOf(id) {
    return this.ids.indexOf(id);
  }

  /** Return the name of the node at a drawn step; "" without a node. */
  node(t) {
    return this.nodes[t] ?? "";
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
    return {
      birth: Math.min(...rows.map((i) => this.birth[i])),
      death: Math.max(...rows.map((i) => this.death[i])),
    };
  }

  /** Return the rows sorted by first write, then by size (largest first), then by id (contract §1). */
  byBirth() {
    const { birth, size } = this;
    return (this.order ??= Uint32Array.from(birth.keys()).sort((a, b) => birth[a] - birth[b] || size[b] - size[a] || a - b));
  }
}
