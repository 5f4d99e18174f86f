"""The toolbar: menu Open, memory limit, mode, planner, and the settings of the menu Advanced."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import streamlit as st

from app.kit import controls
from app.session import opening, planning, review, state
from app.session.opening import Opened
from app.session.view_state import Choice
from app.texts import markup, numbers
from tmmu_core.base import strict
from tmmu_core.base.escaping import for_markdown
from tmmu_core.formats.open_file import READERS
from tmmu_core.graph.checks import resolve_dims, size_range
from tmmu_core.graph.model import Arena
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.greedy import FITS, ORDERS
from tmmu_core.planners.helia import BOARDS, options_of
from tmmu_core.plans.making.request import ANY_ARENA
from tmmu_core.plans.making.request_options import OPTION_SPECS, capacity_texts, read_arenas_text, read_json

MODES = {
    "inference/inference": "inference",
    "forward/train_full": "training, forward pass",
    "backward/train_full": "training step",
    "backward/remat_enabled": "training step, recompute",
}
FIXED = "A plan file keeps its settings. Open its graph to plan it again."
ARENAS_EXAMPLE = '{"activations": {"capacity_bytes": 1048576, "alignment_bytes": 64}, "parameters": {}}'
CHOICES: dict[str, tuple[Any, ...]] = {"order": ORDERS, "fit": FITS, "minimise": (None, True, False)}
NO_BOARD = "none (custom memories)"
HELP = {
    "order": "Order in which buffers are placed. The fit `free_list` always uses the order of first writes.",
    "fit": "Gap in which a buffer is placed: the lowest, the tightest, or the first in a free list.",
    "budget": "Maximum number of search nodes of each arena. The same budget gives the same plan on every machine.",
    "iterations": "Number of changed placement orders to try; proportionally fewer for over 2,000 buffers.",
    "rounds": "Number of rounds of each local search; 10 times as many for over 100 buffers.",
    "work": "Maximum number of offset comparisons of the exhaustive search.",
    "minimise": "Whether to search for a smaller plan when a plan fits the capacity. Default: only without a capacity.",
    "max_nodes": "Maximum number of search nodes of all arenas together. Default: no limit.",
    "seed": "Seed of the planner's random numbers. It is not the seed of the replay token.",
    "min_alignment": "Minimum alignment of every buffer in bytes, a power of two.",
    "memories": "The memories of the device, in order of preference. Default: one memory per configured arena, or one "
    "unlimited memory if no arena is configured.",
    "rules": "The first matching rule selects the memory of a tensor.",
}
EXAMPLES = {
    "memories": '[{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}]',
    "rules": '[{"role": "constant", "memory": "SRAM"}]',
}
GROUPS = {
    "model": "Networks",
    "lesson": "Lessons",
    "instance": "Packing problems (live ranges and sizes, no graph)",
    "given": "Plans of other tools",
}


def draw(chosen: Choice, opened: Opened) -> None:
    """Draw the toolbar."""
    full = planning.with_explicit_defaults(chosen, opened)
    fixed = FIXED if opened.plan is not None else ""
    with controls.row("toolbar"):
        # A new key closes the popover after a selection.
        with (
            st.container(key="open", width="content"),
            st.popover("Open…", icon=":material/folder_open:", key=f"gallery-{state.session().uploads}"),
            st.container(key="gallery"),
        ):
            draw_gallery()
        _memory_limit(full, opened, fixed)
        if opened.instance is None:  # a packing problem has no mode and no preset
            hint = "Inference or training, and the activations that are kept for the backward pass (the preset)."
            mode = f"{full.mode}/{full.preset}"
            names = MODES if mode in MODES else {mode: f"{full.mode}, preset {full.preset}", **MODES}
            keys = ("mode", "preset")
            _menu("Mode", names, mode, lambda name: dict(zip(keys, name.split("/"), strict=True)), hint, fixed)
        hint = "\n\n".join(f"**{name}**: {entry.summary}" for name, entry in PLANNERS.items())
        planners = {name: name for name in planning.planners_for(opened)}
        _menu("Planner", planners, full.planner, partial(planning.planner_changes, full), hint, fixed)
        settings = (full.arenas or None, full.alignment, full.page_size, full.budget)
        count = sum(value is not None for value in settings) + len(full.dims) + len(full.options)
        title = f"Advanced ({count})" if count else "Advanced"
        hint = fixed or "Options of the planner, arenas, alignment and dimensions."
        with st.popover(title, icon=":material/tune:", key="advanced", disabled=bool(fixed), help=hint):
            draw_advanced(full, opened)
        if full.shard_spec is not None:
            whole, options = {"shard_spec": None, "rank": 0}, {"kind": "secondary", "icon": ":material/close:"}
            hint = "All pages show the plan of this rank. Click to show the whole graph."
            controls.button(f"rank {full.rank}", "whole-graph", whole, **options, help=hint)


def _memory_limit(full: Choice, opened: Opened, fixed: str) -> None:
    text = ", ".join(map(_short, capacity_texts(full.capacities)))

    def read(text: str) -> Any:
        capacities = OPTION_SPECS["capacities"].read(text)
        known = planning.arenas_in_use(full.but(capacities=capacities), opened)
        unknown = next((name for name in capacities if name not in (ANY_ARENA, *known)), None) if known else None
        if unknown is not None and not (full.planner in PLANNERS and PLANNERS[full.planner].defines_arenas):
            raise ValueError(f"The plan has no arena {unknown!r}. {strict.closest_hint(unknown, known)}")
        return capacities

    hint = "Memory for all arenas, such as 8MiB; limits of arenas: activations=8MiB, parameters=1GiB. Empty: no limit."
    options: dict[str, Any] = {"help": fixed or hint, "disabled": bool(fixed), "width": max(215, 130 + 8 * len(text))}
    options |= controls.text_widget("limit", "capacities", read, text, "Memory limit not changed", empty={})
    st.text_input("Memory limit", placeholder="e.g. 512KiB, 8GiB", **options)


def _short(pair: str) -> str:
    """Return ``activations=8 MiB`` for ``activations=8388608``; exact bytes for a size that would be rounded."""
    name, _, size = pair.rpartition("=")
    text = numbers.exact_bytes(int(size))
    with suppress(ValueError):  # 2^64 − 1 bytes are rounded to 16 EiB, which is over the maximum
        if parse_bytes(short := numbers.round_bytes(int(size))) == int(size):
            text = short
    return f"{name}={text}" if name else text


def _menu(
    title: str, names: Mapping[str, str], value: str | None, changes: Callable[[str], Any], hint: str, fixed: str
) -> None:
    """Draw a menu of name → title. A selection sets ``changes(name)``. ``fixed``: why the menu is disabled, or ""."""
    key, value = title.lower(), value or ""
    names = names if value in names else {value: value or numbers.UNKNOWN, **names}
    options: dict[str, Any] = {"disabled": bool(fixed), "help": fixed or hint, "width": 200}
    options |= state.bind(key, value, lambda name: state.choose(**changes(name)))
    st.selectbox(title, list(names), 0, names.__getitem__, **options)


def draw_advanced(choice: Choice, opened: Opened) -> None:
    """Draw the options of the planner, and the settings of arenas and dimensions."""
    if choice.planner in PLANNERS and (defaults := dict(PLANNERS[choice.planner].options)):
        options = choice.options
        st.html(markup.heading(f"Options of {choice.planner}"))
        if "memories" in defaults:  # a board sets the options memories and rules, which the user can edit below

            def set_board(name: str) -> None:
                if name in BOARDS:
                    state.choose(options={**state.choice().options, **options_of(name)})

            board = next((name for name in BOARDS if options_of(name)["memories"] == options.get("memories")), NO_BOARD)
            hint = "\n\n".join(f"{b}: {text}." for b, (text, _) in BOARDS.items())
            st.selectbox("Board", (NO_BOARD, *BOARDS), help=hint, **state.bind("board", board, set_board))
        for name, default in defaults.items():
            _option(name, default, options.get(name, default))
        if options:
            controls.button("Restore defaults", "no-options", {"options": {}}, kind="secondary")
    st.html(markup.heading("Arenas"))
    if_empty = f"default ({opened.graph.alignment or Arena().alignment_bytes} B)" if opened.graph else "default"
    hint = "Alignment of every offset, a power of two, such as 64."
    _size_setting("Alignment of every arena", "alignment", choice.alignment, if_empty, hint)
    if opened.graph is None:
        return
    text = json.dumps(choice.arenas, indent=1, ensure_ascii=False) if choice.arenas else ""
    hint = f"Example: {ARENAS_EXAMPLE}."
    widget = controls.text_widget("arenas", "arenas", read_arenas_text, text, "Arenas not changed", hint)
    hint = "Settings of each arena; all arenas must be listed. A tensor selects one with its field `arena`."
    st.text_area("Arenas, as JSON", placeholder=ARENAS_EXAMPLE, help=hint, height=100, **widget)
    _size_setting("Page size", "page_size", choice.page_size, "none", "Arena sizes are multiples of this size.")
    hint = "Limit of the sum of all arena sizes. Arenas stay separate; with a memory limit, they share one memory."
    _size_setting("Budget of all arenas", "budget", choice.budget, "unlimited", hint)
    default_sizes = resolve_dims(opened.graph, None)
    for name in sorted(opened.graph.dims):
        allowed, size = size_range(opened.graph, name), choice.dims.get(name, default_sizes[name])
        label = f"Dimension {for_markdown(name)} ({allowed.min:,} … {allowed.max:,})"
        low, high, value = (min(number, controls.MOST_NUMBER) for number in (allowed.min, allowed.max, size))
        changed = partial(controls.choose_size, name, default=default_sizes[name])
        st.number_input(label, low, high, **state.bind(f"dim.{name}", value, changed))


def _size_setting(label: str, field: str, size: int | None, if_empty: str, hint: str) -> None:
    text = "" if size is None else numbers.exact_bytes(size)
    widget = controls.text_widget(field, field, parse_bytes, text, f"{label} not changed")
    hint += f" Write bytes, or a number with KiB, MiB or GiB. Empty: {if_empty}."
    st.text_input(label, placeholder=if_empty, help=hint, **widget)


def _option(name: str, default: Any, value: Any) -> None:
    title, widget, hint = name.replace("_", " ").capitalize(), f"option.{name}", HELP.get(name)

    def changed(new: Any) -> None:
        state.choose(options=_options_with(name, new, default))

    if name in CHOICES:
        options, settings = list(dict.fromkeys((*CHOICES[name], value))), state.bind(widget, value, changed)
        labels: dict[Any, Any] = {None: "default", True: "yes", False: "no"}
        st.selectbox(title, options, format_func=lambda o: labels.get(o, o), help=hint, **settings)
    elif isinstance(default, int) or name == "max_nodes":
        label = title if default is None else f"{title} (default {default:,})"
        low = 1 if name == "min_alignment" else 0
        initial: Any = None if default is None else "min"  # None lets the field be empty
        settings = state.bind(widget, value if isinstance(value, int) else default, changed)
        st.number_input(label, low, controls.MOST_NUMBER, initial, 1, help=hint, **settings)
    else:
        text = "" if value is None else json.dumps(value, indent=1, ensure_ascii=False)
        example, empty = EXAMPLES[name], _options_with(name, default, default)

        def parse(text: str) -> dict[str, Any]:
            return _options_with(name, read_json(text, f"option {name}"), default)

        advice = f"Example: {example}."
        settings = controls.text_widget(widget, "options", parse, text, f"{title} not changed", advice, empty)
        st.text_area(f"{title}, as JSON", placeholder=example, height=120, help=hint, **settings)


def _options_with(name: str, value: Any, default: Any) -> dict[str, Any]:
    """Return the chosen options with ``value`` for ``name``, or without ``name`` if ``value`` is its default."""
    options = {**state.choice().options, name: value}
    if value == default:
        del options[name]
    return options


def draw_gallery() -> None:
    """Draw the upload field, the opened files and the samples by group."""
    draw_upload("Open files", "upload")
    formats = ", ".join(sorted((reader.title for reader in READERS), key=str.lower))
    st.caption(f"You can also drop files anywhere on the page. Open two files to compare them. Formats: {formats}.")
    if files := opening.shelf().names():
        st.html(markup.heading("Opened files"))
    for source, name in files:
        _source_button(for_markdown(name), source, icon=":material/draft:")
    samples = opening.samples()
    for group in dict.fromkeys(sample.group for sample in samples):
        st.html(markup.heading(GROUPS.get(group, group)))
        for sample in samples:
            if sample.group == group:
                suffix = f" · {sample.teaches}" if sample.teaches else ""
                _source_button(f"**{sample.title}**{suffix}", f"sample:{sample.name}")


def draw_upload(label: str, name: str) -> None:
    """Draw an upload field that opens its files."""
    key = f"{name}.{state.session().uploads}"  # a new key empties the field after an upload
    st.file_uploader(label, accept_multiple_files=True, key=key, on_change=_uploaded, args=(key,))


def _source_button(label: str, source: str, icon: str | None = None) -> None:
    st.button(label, key=f"open.{source}", icon=icon, type="tertiary", on_click=_open, args=(source,))


def _open(source: str) -> None:
    state.choose(source=source)
    state.session().uploads += 1


def _uploaded(key: str) -> None:
    """Open the uploaded files. Show the last review; without one, show the first file, or compare two files."""
    uploaded = [(file.name, file.getvalue()) for file in state.raw(key) or []]
    state.session().uploads += 1
    reviews = [file for file in uploaded if review.is_review(file[1])]
    files = [file for file in uploaded if file not in reviews]
    opened, cards = planning.open_files(files)
    for name, data in reviews:
        review.open_or_refuse(data, name)
    if opened and not reviews:
        sources = list(dict.fromkeys(opened))
        choice = state.choice()
        # If this server no longer has the file of a link, and the user uploads it, keep the settings of the link.
        is_file_of_link = choice.file == files[0][0] and opening.is_gone(choice.source)
        if len(sources) == 2 and not is_file_of_link:
            sources.reverse()  # the first file is the baseline, as in tmmu compare
        state.choose(**{**(vars(choice) if is_file_of_link else {}), "source": sources[0]})
        if len(sources) == 2:
            state.choose_and_show("compare", baseline=sources[1])
    for card in cards:
        state.add_error_card(card)
