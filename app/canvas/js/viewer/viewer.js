// The page that opens finished plans and review files without a server.

import { unmount } from "../chart/drawing.js";
import { bookmarks, show, storePack } from "../chart/page.js";
import { columnsOf, readFile } from "./plan_file.js";
import { el } from "../chart/element.js";
import { fullBytes } from "../base/formats.js";

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
