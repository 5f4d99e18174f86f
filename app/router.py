"""Open the files of the command line once, and draw the page of the current address."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import streamlit as st

from app.kit import controls
from app.session import opening, page_jobs, planning, review, state
from app.session.pages import FIRST_PAGE, PAGES
from app.session.work import jobs
from app.session.work.workers import TaskNotFinished
from tmmu_core.base.errors import TmmuError, open_error

HERE = Path(__file__).resolve().parent
CSS = HERE / "kit" / "style.css"
ADDRESS = "tmmu-address"
ICON = (  # inline, because the explorer loads no files from a network
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="2" fill="#12161c"/>'
    '<rect x="2" y="9" width="7" height="5" fill="#0072B2"/><rect x="10" y="9" width="4" height="5" fill="#56B4E9"/>'
    '<rect x="2" y="5" width="3" height="3" fill="#E69F00"/><rect x="6" y="2" width="5" height="6" fill="#009E73"/>'
    '<rect x="12" y="4" width="2" height="4" fill="#CC79A7"/></svg>'
)


@st.cache_resource(show_spinner="Opening the files of the command line")
def files_of_command_line() -> tuple[tuple[str, ...], tuple[dict[str, Any], ...], tuple[tuple[str, bytes], ...]]:
    """Open the files of the command line; return ``(sources, error cards, review files)``, cached for all sessions."""
    sources: list[str] = []
    error_cards: list[dict[str, Any]] = []
    reviews: list[tuple[str, bytes]] = []
    is_explorer = Path(sys.argv[0]).resolve() == HERE / "main.py"  # False if a test runs a page
    for name in sys.argv[1:] if is_explorer else []:
        try:
            files = opening.files_at(Path(name))
        except (OSError, TmmuError) as error:
            error = open_error(error, name) if isinstance(error, OSError) else error
            error_cards.append(opening.card_of(error, f"{name} was not opened", name))
            continue
        if review.is_review(files[0][1]):  # each session has its own review
            reviews.append(files[0])
            continue
        with ThreadPoolExecutor(1) as executor:  # files opened in a thread without a visitor belong to the server
            opened, refused = executor.submit(planning.open_files, files).result()
        sources += opened
        error_cards += refused
    return tuple(sources), tuple(error_cards), tuple(reviews)


def draw() -> None:
    """Draw the page of the current address, in one run of the Streamlit script."""
    sys.setswitchinterval(0.001)  # seconds; a planner in a thread must not delay a click
    st.set_page_config(page_title="TMMU Plan Explorer", page_icon=ICON, layout="wide")
    st.html(CSS)
    sources, error_cards, reviews = files_of_command_line()
    if any(card["record"].get("code_id") == TaskNotFinished.code_id for card in error_cards):
        files_of_command_line.clear()  # reading was interrupted: the next session reads the files again
    if state.begin(sources):
        for card in error_cards:
            state.add_error_card(card)
        if "graph" not in st.query_params:  # else the link selects what to show
            for name, data in reviews:
                review.open_or_refuse(data, name)
    jobs.job_table().new_page()
    state.follow_history()
    choice = state.choice()
    job, hidden = opening.open_job(choice.source), {"scale"}
    if job.succeeded:
        data_of_page = {"graph": job.result().graph, "scale": page_jobs.scale_views(job.result(), choice)}
        hidden = {name for name, data in data_of_page.items() if not data}
    files = {name: HERE / "pages" / name / "page.py" for name, _ in PAGES}
    settings: dict[str, Any] = {name: {"visibility": "hidden"} for name in hidden} | {FIRST_PAGE: {"default": True}}
    pages = [st.Page(files[name], title=title, url_path=name, **settings.get(name, {})) for name, title in PAGES]
    page = st.navigation(pages, position="top")
    session = state.session()
    session.page = page.url_path or FIRST_PAGE
    # The script for the browser history and the links. A click on a tensor link selects the tensor.
    on_event = state.listeners(ADDRESS, {"select": lambda name: state.choose(selected=str(name))})
    controls.component("tmmu_address", "address.js")(key=ADDRESS, height="content", **on_event)
    target, session.redirect = session.redirect, ""
    if target:
        st.switch_page(files[target])
    page.run()
    state.write_link()
