"""Load the script for the browser history and the links of a page, and add the query of the page to tensor links."""

from app.kit import controls
from app.session import state
from app.session.view_state import to_query
from app.texts.markup import complete_links

KEY = "tmmu-address"


def follow() -> None:
    """Load the script ``address.js`` on the page. A click on a tensor link selects the tensor."""
    on_select = state.listener(KEY, "select", lambda name: state.choose(selected=str(name)))
    controls.component("tmmu_address", "address.js")(key=KEY, height="content", on_select_change=on_select)


def linked(html: str) -> str:
    """Return HTML in which the tensor links have the query of the current view, so that they work in a new tab."""
    return complete_links(html, to_query(state.choice()))
