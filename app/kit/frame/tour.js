// The tour: a frame around one element at a time with a card next to it. The page below stays usable.
//
// Shown once per browser at an address without a query, and again on request. Escape closes it.

const SEEN = "tmmu.tour";
const STYLE = `
  .tmmu-tour { position: fixed; inset: 0; z-index: 1000001; pointer-events: none; font: 14px/1.45 inherit; }
  .tmmu-tour .frame { position: fixed; border: 2px solid #0072b2; border-radius: 6px; transition: all 0.15s;
    box-shadow: 0 0 0 3px rgba(255, 255, 255, 0.65), 0 0 0 4px rgba(0, 114, 178, 0.35); }
  .tmmu-tour .card { position: fixed; width: min(23rem, calc(100vw - 24px)); box-sizing: border-box; padding: 12px 14px;
    pointer-events: auto; border-radius: 8px; background: #10202c; color: #fff;
    box-shadow: 0 6px 28px rgba(0, 0, 0, 0.35); font-family: inherit; }
  .tmmu-tour h2 { font-size: 15px; font-weight: 650; margin: 0 0 4px; padding: 0; color: #fff; }
  .tmmu-tour p { margin: 0 0 10px; font-size: 13.5px; line-height: 1.45; }
  .tmmu-tour .row { display: flex; align-items: center; gap: 8px; }
  .tmmu-tour .row span { margin-right: auto; font-size: 12.5px; color: #cfd8e0; }
  .tmmu-tour button { font: inherit; font-size: 13px; padding: 3px 11px; border-radius: 5px; cursor: pointer;
    border: 1px solid #8fa3b3; background: transparent; color: #fff; }
  .tmmu-tour button.on { background: #fff; border-color: #fff; color: #10202c; }
  .tmmu-tour button:focus-visible { outline: 2px solid #56b4e9; outline-offset: 2px; }
`;

let open = null; // {root, stops, at, before}: the running tour, its position and the element that had the focus

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The first visible element of a selector, also inside components with a shadow root. */
function seenOf(selector) {
  const roots = [document, ...[...document.querySelectorAll("*")].map((e) => e.shadowRoot).filter(Boolean)];
  for (const root of roots) {
    for (const found of root.querySelectorAll(selector)) {
      const { width, height } = found.getBoundingClientRect();
      if (width > 0 && height > 0) return found;
    }
  }
  return null;
}

/** The element that a stop frames. */
function target({ at }) {
  for (const selector of at.split(", ")) {
    const found = seenOf(selector);
    if (found) return found;
  }
  return null;
}

/** Place the frame around the element and the card below, above or next to it. */
function place() {
  if (!open) return;
  const { root, stops, at } = open, [frame, card] = root.children, found = target(stops[at]);
  const room = { w: window.innerWidth, h: window.innerHeight }, gap = 12;
  frame.hidden = !found;
  let { left, top, right, bottom } = found ? found.getBoundingClientRect() : { left: room.w / 2, top: 80, right: room.w / 2, bottom: 80 };
  [left, top] = [Math.max(left - 5, 4), Math.max(top - 5, 4)];
  [right, bottom] = [Math.min(right + 5, room.w - 4), Math.min(bottom + 5, room.h - 4)];
  Object.assign(frame.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
  const { width: w, height: h } = card.getBoundingClientRect();
  let x = Math.min(Math.max(left, gap), room.w - w - gap), y = bottom + gap;
  if (y + h > room.h - gap) y = top - h - gap;
  if (y < gap) {
    y = Math.max(gap, Math.min(room.h - h - gap, top + gap));
    x = left - w - gap > 0 ? left - w - gap : Math.min(right - w - gap, room.w - w - gap);
  }
  Object.assign(card.style, { left: `${x}px`, top: `${y}px` });
}

function step(by) {
  if (!open) return;
  const next = open.at + by;
  if (next >= open.stops.length) return leave();
  open.at = Math.max(0, next);
  const { stops, at, root } = open, card = root.children[1], last = at === stops.length - 1;
  const button = (text, act, on) => {
    const made = make("button", on ? "on" : "", text);
    made.addEventListener("click", act);
    return made;
  };
  const row = make("div", "row");
  row.append(make("span", "", `${at + 1} of ${stops.length} · Esc closes`));
  if (at) row.append(button("Back", () => step(-1)));
  const forward = button(last ? "Done" : "Next", () => step(1), true);
  row.append(forward);
  card.replaceChildren(make("h2", "", stops[at].title), make("p", "", stops[at].text), row);
  card.setAttribute("aria-label", `${stops[at].title}. ${stops[at].text}`);
  place();
  forward.focus({ preventScroll: true });
}

function begin(stops) {
  leave();
  const root = make("div", "tmmu-tour"), card = make("div", "card"), style = make("style", "", STYLE);
  card.setAttribute("role", "dialog");
  card.setAttribute("aria-live", "polite");
  root.append(make("div", "frame"), card, style);
  root.style.fontFamily = getComputedStyle(document.querySelector(".stApp") ?? document.body).fontFamily;
  document.body.append(root);
  open = { root, stops, at: 0, before: document.activeElement, timer: setInterval(place, 250) };
  step(0);
}

function leave() {
  if (!open) return;
  clearInterval(open.timer);
  open.root.remove();
  open.before?.focus?.({ preventScroll: true });
  open = null;
  try {
    localStorage.setItem(SEEN, "seen");
  } catch {
    // without storage the tour is shown again
  }
}

function seen() {
  try {
    return localStorage.getItem(SEEN) !== null;
  } catch {
    return false;
  }
}

/** Handle keys while the tour is shown, before a drawing behind it. */
function onKey(event) {
  if (!open) return;
  const inside = event.target instanceof Element && event.target.closest("input, textarea, select");
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key !== "Escape" && (inside || !by)) return;
  event.preventDefault();
  event.stopPropagation();
  if (by) step(by);
  else leave();
}

/** Wait for the drawing, at most 30 seconds. */
function whenDrawn(act, tries = 120) {
  if (seenOf(".tmmu-canvas[data-paintings]") || tries === 0) act();
  else setTimeout(() => whenDrawn(act, tries - 1), 250);
}

// One tour per window; the component can be mounted several times.
const here = (window.tmmuTour ??= { answered: 0, offered: false, begin });
if (here.begin === begin) {
  document.addEventListener("keydown", onKey, true);
  window.addEventListener("resize", place);
}

export default function guide({ data }) {
  const { stops, first, request } = data;
  if (request > here.answered) {
    here.answered = request;
    here.offered = true;
    whenDrawn(() => here.begin(stops));
  } else if (first && !here.offered && !seen()) {
    here.offered = true;
    whenDrawn(() => here.begin(stops));
  }
}
