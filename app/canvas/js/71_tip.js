// The tooltip: what is said of one tensor, on hover and to whoever listens instead of looks.

Object.assign(Chart.prototype, {
  /** What is said of a row, as [heading, text] pairs. */
  lines(row) {
    const { plan } = this, node = (t) => stepName(t, plan.nodes.at(t));
    const birth = plan.birth[row], death = plan.death[row];
    const lines = [
      ["", plan.ids.at(row)],
      ["size", fullBytes(plan.exact("size", row))],
      ["offset", offsetWords(plan.exact("offset", row))],
      ["place", plan.arenas[plan.arena[row]].name + (plan.slotted ? `, slot ${plan.slot[row]}, tenant ${Number(plan.generation[row]) + 1}` : "")],
      ["lives", `${rangeWords(birth, death)} · ${counted(death - birth, "step")}`],
      ["born", node(birth)],
      ["kind", [plan.role.at(row), plan.dtype.at(row), plan.shape.at(row), plan.operator?.at(row)].filter(Boolean).join(" · ")],
    ];
    if (plan.baseOf.has(row)) lines.push(["view of", plan.ids.at(plan.baseOf.get(row))]);
    for (const [step, from, to] of plan.handoffs) {
      if (from === row) lines.push(["hands off to", `${plan.ids.at(to)} at ${stepName(step)}`]);
      if (to === row) lines.push(["takes over", `${plan.ids.at(from)} at ${stepName(step)}`]);
    }
    for (const [heading, table] of plan.extra) if (table.at(row)) lines.push([heading, table.at(row)]);
    if (plan.twin && this.other) lines.push(...this.against(row));
    return lines;
  },

  /** Baseline → candidate, of what differs. The first plan of a pack is the candidate. */
  against(row) {
    const { plan, other } = this;
    if (!plan.twin[row]) return [["compared", this.pack.plans.indexOf(plan) === 0 ? "not in the baseline" : "not in the candidate"]];
    const twin = plan.twin[row] - 1, candidate = this.pack.plans.indexOf(plan) === 0, lines = [];
    const said = (heading, mine, theirs) => { if (mine !== theirs) lines.push([heading, candidate ? `${theirs} → ${mine}` : `${mine} → ${theirs}`]); };
    said("size", shortBytes(plan.exact("size", row)), shortBytes(other.exact("size", twin)));
    said("offset", offsetWords(plan.exact("offset", row)), offsetWords(other.exact("offset", twin)));
    said("lives", rangeWords(plan.birth[row], plan.death[row]), rangeWords(other.birth[twin], other.death[twin]));
    if (plan.slotted && other.slotted) said("slot", String(plan.slot[row]), String(other.slot[twin]));
    return lines.length ? lines : [["compared", "unchanged"]];
  },

  fillTip(row) {
    this.tip.hidden = row < 0;
    if (row < 0) return;
    this.tip.replaceChildren(...this.lines(row).flatMap(([heading, text]) =>
      heading ? [el("span", { class: "head" }, heading), el("span", {}, text)] : [el("b", {}, text)]));
  },

  placeTip(x, y) {
    if (this.tip.hidden) return;
    const { offsetWidth: w, offsetHeight: h } = this.tip;
    this.tip.style.left = `${Math.max(2, x + 16 + w > this.width ? x - 12 - w : x + 16)}px`;
    this.tip.style.top = `${Math.max(2, Math.min(this.height - h - 2, y + 14))}px`;
  },
});
