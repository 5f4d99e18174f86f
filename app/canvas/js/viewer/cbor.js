// Decode the CBOR (RFC 8949) of plan files: definite lengths, floats of 64 bits, no tags.

import { DECODER } from "../plan/columns.js";

/** Return the value of CBOR bytes; integers from 2^53 are BigInts. Throws for other CBOR and for trailing bytes. */
export function cborValue(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = 0; // of the bytes that have been read
  const startOfNext = (count) => {
    end += count;
    if (end > bytes.length) throw new Error("the CBOR ends too early");
    return end - count;
  };
  // The low five bits of an item's first byte are its argument, or the length of the argument.
  const argument = (low) => {
    if (low < 24) return low;
    if (low === 24) return view.getUint8(startOfNext(1));
    if (low === 25) return view.getUint16(startOfNext(2));
    if (low === 26) return view.getUint32(startOfNext(4));
    if (low !== 27) throw new Error("CBOR with an indefinite or invalid length");
    const long = view.getBigUint64(startOfNext(8));
    return long <= Number.MAX_SAFE_INTEGER ? Number(long) : long;
  };
  const simpleOrFloat = (low) => {
    if (low === 27) return view.getFloat64(startOfNext(8));
    if (low < 20 || low > 23) throw new Error("CBOR of an unknown type");
    return [false, true, null, undefined][low - 20];
  };
  const value = (depth) => {
    const first = view.getUint8(startOfNext(1)), major = first >> 5, low = first & 31;
    if (major === 7) return simpleOrFloat(low);
    const count = argument(low);
    if (major === 0) return count;
    if (major === 1) return typeof count === "bigint" ? -1n - count : -1 - count;
    if (major === 2 || major === 3) {
      const start = startOfNext(Number(count)), content = bytes.subarray(start, end);
      return major === 3 ? DECODER.decode(content) : content;
    }
    const isReadable = major !== 6 && depth <= 64 && count <= bytes.length;
    if (!isReadable) throw new Error("CBOR with a tag, a damaged length or too many levels");
    if (major === 4) return Array.from({ length: count }, () => value(depth + 1));
    return Object.fromEntries(Array.from({ length: count }, () => [value(depth + 1), value(depth + 1)]));
  };
  const document = value(0);
  if (end !== bytes.length) throw new Error("the CBOR has further bytes");
  return document;
}
