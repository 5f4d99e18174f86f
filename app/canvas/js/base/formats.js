// Number formats, equal to app/texts/numbers.py (tests/app/canvas/test_chart.py compares them).

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Format a number of bytes in the largest unit with three or four digits, rounded half up: "1.50 MiB"; "12 B". */
export function shortBytes(count) {
  const n = BigInt(count);
  if (n < 1024n) return `${n} B`;
  let unit = 0, hundredths = 0n;
  do {
    unit++;
    const scale = 1n << BigInt(10 * unit);
    hundredths = (n * 100n + scale / 2n) / scale;
  } while (hundredths >= 102400n && unit < 6);
  return `${threeDigits(hundredths)} ${UNITS[unit]}`;
}

/** Format hundredths with three or, from 1000 on, four digits, rounded half up: 1234n → "12.3". */
function threeDigits(hundredths) {
  if (hundredths >= 10000n) return `${(hundredths + 50n) / 100n}`;
  if (hundredths >= 1000n) return `${(hundredths + 5n) / 100n}.${((hundredths + 5n) / 10n) % 10n}`;
  return `${hundredths / 100n}.${String(hundredths % 100n).padStart(2, "0")}`;
}

export const grouped = (n) => BigInt(n).toLocaleString("en-US");
export const fullBytes = (n) => (BigInt(n) < 1024n ? `${grouped(n)} B` : `${shortBytes(n)} (${grouped(n)} B)`);
export const offsetWords = (n) => `${grouped(n)} (0x${BigInt(n).toString(16).toUpperCase()})`;
/** Format a step and its node: "#1,104 conv_12". */
export const stepName = (t, node = "") => `#${grouped(t)} ${node}`.trimEnd();
export const rangeWords = (a, b) => `[${grouped(a)}, ${grouped(b)})`;

/** Shorten a name to at most `width` letters, with "…" in its middle because names differ least there. */
export function shortened(text, width) {
  if (text.length <= width) return text;
  if (width < 3) return text.slice(0, Math.max(0, width));
  const head = (width - 1) >> 1;
  return `${text.slice(0, head)}…${text.slice(text.length - (width - 1 - head))}`;
}
export const counted = (n, noun) => `${grouped(n)} ${noun}${BigInt(n) === 1n ? "" : "s"}`;
