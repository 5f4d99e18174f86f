// Texts about one tensor, for the tooltip, for screen readers and for the report.

import { counted, fullBytes, offsetText, rangeText, shortBytes, shortened, stepName } from "../base/formats.js";

/** Return [heading, text] pairs about a row of the plan of a chart. */
export function linesOf({ plan, other, isCandidate }, row) {
  const birth = plan.birth[row], death = plan.rangeEnd(row);
  const kind = ["role", "dtype", "shape", "operator"].map((column) => plan.text(column, row)).filter(Boolean);
  const arena = plan.arenas[plan.arena[row]].name, layer = plan.text("module", row);
  const lines = [
    ["", plan.id(row)],
    ["size", fullBytes(plan.exact("size", row))],
    ["offset", offsetText(plan.exact("offset", row))],
    ["place", plan.slotted ? `${arena}, slot ${plan.slot[row]}, order ${Number(plan.generation[row]) + 1}` : arena],
    ["tensor live", rangeAndLength(plan, birth, death)],
    ["written by", stepAndNode(plan, birth)],
    ...storageLines(plan, row),
    ["kind", kind.join(" · ")],
    ...(layer ? [["layer", layer]] : []),
  ];
  if (plan.baseOf.has(row)) lines.push(["view of", plan.id(plan.baseOf.get(row))]);
  for (const [step, from, to] of plan.handoffs) {
    if (from === row) lines.push(["memory reused by", `${plan.id(to)} at ${stepName(plan.stepAt(step))}`]);
    if (to === row) lines.push(["reuses memory of", `${plan.id(from)} at ${stepName(plan.stepAt(step))}`]);
  }
  if (plan.stillRead.has(row)) {
    lines.push(["last read", `${stepAndNode(plan, death)}; the plan does not reuse the memory in place`]);
  }
  if (other) lines.push(...comparison(plan, other, row, isCandidate));
  return lines;
}

/** Return the steps and bytes that the buffers of two rows share: "a and b: common steps [2, 4), no common bytes". */
export function pairText(plan, a, b) {
  const names = [a, b].map((row) => shortened(plan.id(row), 32)).join(" and ");
  if (plan.head(a) === plan.head(b)) return `${names}: tensors of one buffer`;
  const [first, second] = [a, b].map((row) => plan.held(row)), [low, otherLow] = [a, b].map((row) => plan.exact("offset", row));
  const birth = Math.max(first.birth, second.birth), death = Math.min(first.death, second.death);
  const steps = birth < death ? `common steps ${range(plan, birth, death)}` : "no common steps";
  if (plan.arena[a] !== plan.arena[b]) return `${names}: ${steps}, different arenas`;
  const end = low + plan.exact("size", a), otherEnd = otherLow + plan.exact("size", b);
  const bytes = (end < otherEnd ? end : otherEnd) - (low > otherLow ? low : otherLow);
  return `${names}: ${steps}, ${bytes > 0n ? `${shortBytes(bytes)} in common` : "no common bytes"}`;
}

function storageLines(plan, row) {
  const head = plan.head(row), members = plan.members.get(head);
  if (!members) return [];
  const { birth, death } = plan.held(row), freedLast = members.filter((i) => plan.death[i] === death);
  const lastIds = freedLast.slice(0, 3).map((i) => plan.id(i)).join(", ");
  return [
    ["buffer", `${plan.id(head)} and ${counted(members.length - 1, "more tensor")}`],
    ["memory held", `${rangeAndLength(plan, birth, death)}, last by ${lastIds}`],
  ];
}

const stepAndNode = (plan, t) => stepName(plan.stepAt(t), plan.node(t));
const range = (plan, from, to) => rangeText(plan.stepAt(from), plan.stepAt(to));
const liveRange = (plan, row) => range(plan, plan.birth[row], plan.rangeEnd(row));

function rangeAndLength(plan, from, to) {
  return `${range(plan, from, to)} · ${counted(plan.stepAt(to) - plan.stepAt(from), "step")}`;
}

/** Return [heading, "baseline → candidate"] per changed field; one pair "compared" without a change or without a twin. */
function comparison(plan, other, row, isCandidate) {
  if (!plan.twin[row]) return [["compared", isCandidate ? "not in the baseline" : "not in the candidate"]];
  const twin = plan.twin[row] - 1, lines = [];
  const addIfChanged = (heading, value, otherValue) => {
    if (value === otherValue) return;
    lines.push([heading, isCandidate ? `${otherValue} → ${value}` : `${value} → ${otherValue}`]);
  };
  addIfChanged("size", shortBytes(plan.exact("size", row)), shortBytes(other.exact("size", twin)));
  addIfChanged("offset", offsetText(plan.exact("offset", row)), offsetText(other.exact("offset", twin)));
  addIfChanged("tensor live", liveRange(plan, row), liveRange(other, twin));
  if (plan.slotted && other.slotted) addIfChanged("slot", String(plan.slot[row]), String(other.slot[twin]));
  return lines.length ? lines : [["compared", "unchanged"]];
}
