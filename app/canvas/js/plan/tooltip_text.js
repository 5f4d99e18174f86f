// Texts about one tensor, for the tooltip, for screen readers and for the report.

import { counted, fullBytes, offsetWords, rangeWords, shortBytes, stepName } from "../base/formats.js";

/** Return [heading, text] pairs about a row. `other`: compared plan or null; `candidate`: `plan` is the candidate. */
export function linesOf(plan, row, { other = null, candidate = true } = {}) {
  const birth = plan.birth[row], death = plan.rangeEnd(row);
  const columns = [plan.role, plan.dtype, plan.shape, plan.operator], arena = plan.arenas[plan.arena[row]].name;
  const lines = [
    ["", plan.ids.at(row)],
    ["size", fullBytes(plan.exact("size", row))],
    ["offset", offsetWords(plan.exact("offset", row))],
    ["place", plan.slotted ? `${arena}, slot ${plan.slot[row]}, use ${Number(plan.generation[row]) + 1}` : arena],
    ["tensor live", rangeAndLength(plan, birth, death)],
    ["written by", stepAndNode(plan, birth)],
    ...storage(plan, row),
    ["kind", columns.map((column) => column?.at(row)).filter(Boolean).join(" · ")],
    ...(plan.module?.at(row) ? [["layer", plan.module.at(row)]] : []),
  ];
  if (plan.baseOf.has(row)) lines.push(["view of", plan.ids.at(plan.baseOf.get(row))]);
  for (const [step, from, to] of plan.handoffs) {
    if (from === row) lines.push(["memory reused by", `${plan.ids.at(to)} at ${stepName(plan.stepAt(step))}`]);
    if (to === row) lines.push(["reuses memory of", `${plan.ids.at(from)} at ${stepName(plan.stepAt(step))}`]);
  }
  if (plan.stillRead.has(row)) {
    lines.push(["last read", `${stepAndNode(plan, death)}; the plan does not reuse the memory in place`]);
  }
  if (plan.twin && other) lines.push(...comparison(plan, other, row, candidate));
  return lines;
}

/** Return lines about the storage of a row, if the storage has several tensors. */
function storage(plan, row) {
  const head = plan.head(row), members = plan.members.get(head);
  if (!members) return [];
  const { birth, death } = plan.held(row), last = members.filter((i) => plan.death[i] === death);
  const holders = last.slice(0, 3).map((i) => plan.ids.at(i)).join(", ");
  return [
    ["buffer", `${plan.ids.at(head)} and ${counted(members.length - 1, "more tensor")}`],
    ["memory held", `${rangeAndLength(plan, birth, death)}, last by ${holders}`],
  ];
}

const stepAndNode = (plan, t) => stepName(plan.stepAt(t), plan.nodes.at(t));
const range = (plan, from, to) => rangeWords(plan.stepAt(from), plan.stepAt(to));
const liveRange = (plan, row) => range(plan, plan.birth[row], plan.rangeEnd(row));

/** Return a range of drawn steps and its length as text, in steps of the plan. */
function rangeAndLength(plan, from, to) {
  return `${range(plan, from, to)} · ${counted(plan.stepAt(to) - plan.stepAt(from), "step")}`;
}

/** Return a line "baseline → candidate" for each field that differs; one line if none does or a tensor is missing. */
function comparison(plan, other, row, candidate) {
  if (!plan.twin[row]) return [["compared", candidate ? "not in the baseline" : "not in the candidate"]];
  const twin = plan.twin[row] - 1, lines = [];
  const addIfChanged = (heading, value, otherValue) => {
    if (value === otherValue) return;
    lines.push([heading, candidate ? `${otherValue} → ${value}` : `${value} → ${otherValue}`]);
  };
  addIfChanged("size", shortBytes(plan.exact("size", row)), shortBytes(other.exact("size", twin)));
  addIfChanged("offset", offsetWords(plan.exact("offset", row)), offsetWords(other.exact("offset", twin)));
  addIfChanged("tensor live", liveRange(plan, row), liveRange(other, twin));
  if (plan.slotted && other.slotted) addIfChanged("slot", String(plan.slot[row]), String(other.slot[twin]));
  return lines.length ? lines : [["compared", "unchanged"]];
}
