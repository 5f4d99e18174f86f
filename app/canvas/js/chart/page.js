// Create and update the charts of a page. The page stores each pack (the bytes of one or two plans) once, by
// its token, a digest. A chart refers to a pack by the token, also before the bytes have arrived.

import { byteLabels } from "../drawing/axes.js";
import { Chart, DEFAULTS } from "./chart.js";
import { charts, mount, unmount } from "./drawing.js";
import { decode, headerOf, inflated } from "../plan/columns.js";
import { el } from "./element.js";
import { fullBytes, offsetText, shortBytes, namerOf } from "../base/formats.js";

// The oldest packs are dropped until at most KEPT_PACKS packs remain, or they have at most KEPT_BYTES together. Small
// packs are kept, because a page may send many before it shows their charts.
const KEPT_PACKS = 6;
const KEPT_BYTES = 256 * 2 ** 20;
const packs = new Map(); // token → pack, the oldest first

function keep(bytes) {
  const began = performance.now();
  return storePack({ ...decode(bytes), bytes: bytes.byteLength, began });
}

/** Store a decoded pack {token, plans, bytes: its size, began: time of arrival} and return its token. */
export function storePack(pack) {
  packs.delete(pack.token);
  packs.set(pack.token, pack);
  const total = () => [...packs.values()].reduce((sum, { bytes }) => sum + bytes, 0);
  while (packs.size > KEPT_PACKS && total() > KEPT_BYTES) packs.delete(packs.keys().next().value);
  for (const chart of charts) if (chart.state.plan === pack.token) chart.setPack(pack);
  return pack.token;
}

/** Store packed bytes that are gzipped and base64-coded, and return their token. */
async function keepBase64(text) {
  return keep(await inflated(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))));
}

/** Apply a state to the chart in the element `parent` and return the chart; create the chart on the first call. */
export function show(parent, state, emit) {
  const chart = mount(parent, Chart, emit);
  if ("plan_index" in state) chart.state.plan_index = state.plan_index;
  chart.update(state);
  const pack = packs.get(state.plan);
  if (pack) chart.setPack(pack);
  chart.root.classList.toggle("waiting", !pack);
  return chart;
}

/** Return a button per bookmark {name, link}, for a page without a server. `drawn`: name of a view (map, …) → chart.
 * A click applies the link and calls onSelect(chart, {id, row}). */
export function bookmarks(drawn, saved, onSelect) {
  return saved.map(({ name, link }) => {
    return el("button", { type: "button", onclick: () => restore(drawn, new URLSearchParams(link), onSelect) }, name);
  });
}

/** Apply the query of a link: selection, steps and search to all charts; arena, colour and zoom to the link's view. */
function restore(drawn, query, onSelect) {
  const numbers = (name, count) => {
    const found = query.get(name)?.split("~").map(Number) ?? [];
    return found.length === count && found.every(Number.isFinite) ? found : null;
  };
  const chart = drawn[query.get("view")] ?? drawn.map, { plan } = chart;
  const selected = query.get("tensor"), step = numbers("step", 1)?.[0] ?? null, span = numbers("span", 2);
  const steps = { step: step === null ? null : plan.drawnRange([step, step + 1])[0], span: span && plan.drawnRange(span) };
  for (const each of Object.values(drawn)) each.apply({ selected, ...steps, search: query.get("q") ?? "" });
  const arena = plan.arenas.find(({ name }) => name === query.get("arena"))?.name ?? null;
  chart.apply({ arena, colour: query.get("colour"), zoom: numbers("zoom", 4) });
  chart.root.scrollIntoView({ block: "center" });
  onSelect(chart, { id: selected, row: chart.selected });
}

/** Entry point of the Streamlit component. `data` is either the bytes of a pack or the state of a chart. */
function streamlit({ data, parentElement, setTriggerValue }) {
  if (data instanceof Uint8Array) {
    if (!packs.has(headerOf(data).token)) keep(data);
    return;
  }
  if (!data) return;
  const { events = [], ...state } = data, wanted = new Set(events);
  show(parentElement, { ...DEFAULTS, ...state }, (event, value) => {
    if (wanted.has(event)) setTriggerValue(event, { value });
  });
  return () => unmount(parentElement);
}

const textFunctions = { byteLabels, namerOf, shortBytes, fullBytes, offsetText }; // for tests

export { charts, decode, keep, keepBase64, streamlit, textFunctions };
