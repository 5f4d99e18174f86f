// The address bar follows the choice; two things that the page's own router leaves undone are done here.
//
// A page is entered with a bare address first and with its query a moment later. Those are one step: the second write
// replaces the first, or Back would lead to an address that says nothing. Where a run of the page before ends late, its
// query stands there already when the bare address comes: that one is no step either. And a zoom is no step of its own.

const QUIET = "zoom";
const LINKS = ["stTopNavLink", "stSidebarNavLink", "stTopNavDropdownLink", "stPageLink-NavLink"];
const NAVIGATION = LINKS.map((name) => `[data-testid="${name}"]`).join();

/** The query without what is no step of its own. */
function withoutQuiet(search) {
  const query = new URLSearchParams(search);
  query.delete(QUIET);
  return query.toString();
}

/** Whether writing `url` over the present address is no step of a person. */
function sameStep(url) {
  const now = window.location, next = new URL(url, now.href);
  if (next.pathname !== now.pathname) return false;
  return !now.search || !next.search || withoutQuiet(now.search) === withoutQuiet(next.search);
}

function follow() {
  for (const link of document.querySelectorAll(NAVIGATION)) {
    const [path] = (link.getAttribute("href") ?? "").split("?");
    const wanted = `${path}${window.location.search}`;
    if (link.getAttribute("href") !== wanted) link.setAttribute("href", wanted);
  }
}

let tell = () => {};

/** A name in a card selects its tensor, without leaving the page. */
function onClick(event) {
  const link = event.target instanceof Element ? event.target.closest("a[data-go]") : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  tell("select", { value: link.dataset.go });
}

function begin({ setTriggerValue }) {
  tell = setTriggerValue;
  if (window.history.tmmuSteps) return;
  window.history.tmmuSteps = true;
  const push = window.history.pushState.bind(window.history), replace = window.history.replaceState.bind(window.history);
  let waiting = null;
  const soon = () => {
    waiting ??= requestAnimationFrame(() => {
      waiting = null;
      follow();
    });
  };
  window.history.pushState = (state, title, url) => {
    (url && sameStep(url) ? replace : push)(state, title, url);
    soon();
  };
  window.history.replaceState = (state, title, url) => {
    replace(state, title, url);
    soon();
  };
  window.addEventListener("popstate", soon);
  document.addEventListener("click", onClick);
  new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
  soon();
}

export default begin;
