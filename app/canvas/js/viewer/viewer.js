// The page that opens finished plans and review files without a server.

import { adopt, bookmarks, show } from "../chart/page.js";
import { columnsOf, readFile } from "./plan_file.js";
import { el } from "../chart/element.js";
import { fullBytes } from "../base/formats.js";

const VIEWS = ["map", "lifetimes", "slots"];
const at = (id) => document.getElementById(id);
let opened = 0;

/** Show the plan of a file (a Blob) in the page. For an invalid file, show an error and keep the page. */
async function open(file) {
  const problem = at("problem");
  try {
    const { plan, review } = await readFile(new Uint8Array(await file.arrayBuffer()));
    const { columns, findings } = columnsOf(plan);
    const token = `file-${++opened}`;
    adopt({ token, plans: [columns], bytes: file.size, began: performance.now() });
    problem.hidden = true;
    at("facts").replaceChildren(...facts(plan, columns, findings, review));
    const drawn = {};
    for (const view of VIEWS) {
      const state = { plan: token, link: "viewer", view, height: 440, strip: view === "map" };
      drawn[view] = show(at(view), state, (event, value) => event === "select" && showSelected(drawn[view], value));
    }
    at("bookmarks").replaceChildren(...bookmarks(drawn, review?.views ?? [], showSelected));
  } catch (error) {
    problem.hidden = false;
    problem.textContent = `${file.name ?? "The file"} cannot be opened: ${error.message}.`;
  }
}

function showSelected(chart, { id, row }) {
  const lines = id === null || row < 0 ? [] : chart.lines(row);
  at("pinned").textContent = lines.map((line) => line.join(" ").trim()).join(" · ");
}

const cells = (tag, values) => el("tr", {}, ...values.map((value) => el(tag, {}, value)));

function facts(plan, columns, findings, review) {
  const rows = columns.arenas.map((arena) => {
    const capacity = arena.capacity === null ? "unlimited" : fullBytes(arena.capacity);
    const given = plan.arenas[arena.name].status ?? "unknown", status = given === "optimal" ? "claimed" : given;
    return cells("td", [arena.name, fullBytes(arena.bound), fullBytes(arena.extent), arena.gap, capacity, status]);
  });
  const head = cells("th", ["arena", "lower bound (in the file)", "arena size", "gap", "capacity", "optimality"]);
  const checked = "This page checks overlaps, arena sizes and peaks. Use “tmmu verify” to check the whole plan.";
  const found = findings.map((text) => el("p", { class: "bad" }, `✗ ${text}`));
  const notes = (review?.notes ?? []).map((note) => {
    const place = note.tensor ? `tensor ${note.tensor}` : (note.step ?? null) === null ? "plan" : `step ${note.step}`;
    return el("li", {}, el("b", {}, place), `: ${note.text} ${note.author ?? ""} ${note.date ?? ""}`);
  });
  const decided = review?.decision;
  return [
    el("h2", {}, `${plan.ir_name || "a graph"}: ${plan.mode}, planned by ${plan.planner}`),
    ...(decided ? [el("p", { id: "decision" }, `Decision: ${decided.answer} ${decided.text ?? ""}`)] : []),
    ...(notes.length ? [el("h3", {}, "Notes"), el("ul", { id: "notes" }, ...notes)] : []),
    el("table", {}, head, ...rows),
    ...(found.length ? found : [el("p", { class: "good" }, "✓ no overlaps; sizes and peaks are correct")]),
    el("p", { class: "soft" }, checked),
  ];
}

export { open };
