// Browser history, navigation links that follow the selection, and files dropped on the page.
//
// Streamlit 1.67 always uses pushState to write st.query_params, and always replaceState for widgets bound to the query.
// The explorer needs another rule: Back undoes a selection but not a zoom, and never shows a page without its query.
// On one page, pushState therefore replaces the entry if only the zoom changes, or if the old or new URL has no query.
// This script also adds the query to Streamlit's navigation links, so that a page in a new tab shows the same graph.

const NAVIGATION = '[data-testid$="NavLink"], [data-testid="stTopNavDropdownLink"]';

function withoutZoom(search) {
  const query = new URLSearchParams(search);
  query.delete("zoom");
  return query.toString();
}

/** Return whether a change of the address to `url` replaces the history entry. */
function replacesEntry(url) {
  const now = window.location, next = new URL(url, now.href);
  if (next.pathname !== now.pathname) return false;
  return !now.search || !next.search || withoutZoom(now.search) === withoutZoom(next.search);
}

/** Send an event to the server; set by the entry point. */
let send = () => {};

/** Select the tensor of a clicked link without leaving the page. */
function onClick(event) {
  const link = event.target instanceof Element ? event.target.closest("a[data-go]") : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  send("select", { value: link.dataset.go });
}

const plotsWithListener = new WeakSet();

/** Select the buffer whose box in a treemap is clicked. Streamlit does not forward clicks on treemaps. */
function listenToTreemap(plot) {
  if (plotsWithListener.has(plot) || !plot.on) return;
  plotsWithListener.add(plot);
  plot.on("plotly_treemapclick", ({ points: [box] }) => {
    const tensor = box?.customdata?.[0];
    if (tensor) send("select", { value: decodeURIComponent(tensor) });
    return !tensor; // false: Plotly does not zoom into the box
  });
}

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

/** Open files that are dropped outside of an upload field. */
function onDrop(event) {
  document.body.classList.remove("tm-dropping");
  const input = document.querySelector('.st-key-drop input[type="file"]');
  if (!input || !hasFiles(event) || event.target.closest?.('[data-testid="stFileUploaderDropzone"]')) return;
  event.preventDefault();
  input.files = event.dataTransfer.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

let usedInput = null; // the upload field whose files are being sent

/** Show the names of the chosen files at once, because sending a large file takes seconds. */
function onChange({ target }) {
  if (target.type !== "file" || !target.files.length) return;
  usedInput = target;
  document.body.dataset.opening = `Opening ${Array.from(target.files, (file) => file.name).join(", ")} …`;
}

function onDrag(event) {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.classList.toggle("tm-dropping", event.type === "dragover");
}

/** Entry point of the Streamlit component. The listeners are added once per page load. */
export default function begin({ setTriggerValue }) {
  send = setTriggerValue;
  if (window.history.tmmuListens) return;
  window.history.tmmuListens = true;
  const push = window.history.pushState.bind(window.history), replace = window.history.replaceState.bind(window.history);
  let update = null;
  const scheduleUpdate = () => {
    update ??= requestAnimationFrame(() => {
      update = null;
      for (const link of document.querySelectorAll(NAVIGATION)) {
        const href = link.getAttribute("href") ?? "", wanted = `${href.split("?")[0]}${window.location.search}`;
        if (href !== wanted) link.setAttribute("href", wanted);
      }
      if (usedInput && !usedInput.isConnected) {
        usedInput = null; // the server has received the files and replaced the upload field: hide their names
        delete document.body.dataset.opening;
      }
      document.querySelectorAll(".js-plotly-plot").forEach(listenToTreemap);
    });
  };
  window.history.pushState = (state, title, url) => {
    (url && replacesEntry(url) ? replace : push)(state, title, url);
    scheduleUpdate();
  };
  window.history.replaceState = (state, title, url) => {
    replace(state, title, url);
    scheduleUpdate();
  };
  window.addEventListener("popstate", scheduleUpdate);
  document.addEventListener("click", onClick);
  for (const type of ["dragover", "dragleave"]) document.addEventListener(type, onDrag);
  document.addEventListener("drop", onDrop);
  document.addEventListener("change", onChange, { capture: true });
  new MutationObserver(scheduleUpdate).observe(document.body, { childList: true, subtree: true });
  scheduleUpdate();
}
