"""The choice of a session: the whole state of the screen, which a link contains in its query."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self
from urllib.parse import quote, unquote

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.graph.modules.module_paths import Path
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, contradiction, option_texts, read_json_object

FIRST_SAMPLE = "sample:resnet50"
VIEWS = ("lifetimes", "slots", "map")
TABS = (
    *("map", "peak", "device", "fragmentation", "snapshot", "reuse"),
    *("changes", "planners", "compare", "history", "shapes", "ranks"),
)
ALL_ARENAS = "*"  # value of ``Choice.arena`` for all arenas in one drawing
COLOURS = ("role", "category", "slot", "arena", "operator", "module")


@dataclass(frozen=True)
class Choice(PlanRequest):
    """The state in a link: the planning request and the view.

    Empty texts and ``None`` mean the default. With a shard spec in the request, the plan of one rank is shown; without
    a shard spec, the plan of the whole graph.
    """

    source: str = FIRST_SAMPLE
    """``sample:<name>``, ``file:<key>`` of a file on this server (anyone with the key can open it), or
    ``store:<SHA-256>`` of a plan in this server's store."""
    file: str = ""  # name of the file of ``source``, for a server without the file; empty for samples
    fit_kinds: str = ""  # kinds of changes for Fix, separated by commas; empty: ``DEFAULT_KINDS``
    fit_dim: str = ""  # dimension for which Fix searches the largest size
    baseline: str = ""
    """Baseline of Compare: a source as above; ``planner:``, ``mode:``, ``preset:`` or ``link:`` with a value;
    ``order:`` (the order of the file); empty: none."""
    moves: str = ""  # source of the file that lists the changes from the baseline's graph to this graph
    swapped: bool = False  # whether Compare shows the baseline as the candidate and vice versa
    tab: str = ""  # view of a page; empty or a view of another page: the first view
    view: str = "map"
    colour: str = ""  # colour scheme; empty: slots in the slot view, else palette.default_scheme()
    selected: str = ""  # tensor id
    search: str = ""  # search text of Graph and of the table of tensors
    marked: str = ""  # ``witness`` (of the lower bound), ``late`` (long idle) or ``layer:<name>``
    step: int | None = None
    span: tuple[int, int] | None = None  # chosen range of steps, half-open
    replayed: int | None = None  # number of placements that the replay shows; None: all placements
    zoom: tuple[float, ...] | None = None  # visible steps t0 to t1 and bytes or rows v0 to v1; None: all
    graph_part: str = ""  # part that Graph shows: ``model`` or ``around`` (the selection); empty: depends on the graph
    radius: int | None = None  # maximum distance from the selection in edges, for "around"
    opened: str = ""  # modules that the user opened in Graph: paths of quoted names, separated by commas
    closed: str = ""  # modules that the user closed in Graph
    arena: str = ""  # shown arena; "*": all arenas; empty: ``main_arena`` of the plan
    shard: str = ""  # shard spec of the view Ranks as JSON; empty: the first preset
    selected_rank: int | None = None  # rank in the view Ranks; None: the rank with the largest plan
    dim: str = ""  # dimension of the view Shapes; empty: the first dimension
    model: str = ""  # model of the view History; empty: the first model
    branch: str = ""  # branch of the view History; empty: main, or the branch of the latest run

    def with_planner(self, planner: str) -> Self:
        """Return the choice with ``planner``; options of another planner are dropped."""
        return self.but(planner=planner, options=self.options if planner == self.planner else {})

    def unsharded(self) -> Self:
        """Return the choice without a shard spec and rank: it plans the whole graph."""
        return self.but(shard_spec=None, rank=0)

    @property
    def problem(self) -> tuple[Any, ...]:
        """A key of the fields that determine the plan: the file and the request."""
        return (self.source, *option_texts(self.request).items())


LANDING = Choice(capacities={"activations": 8 << 20}, colour="operator")
"""The choice for an address without a query: a network whose plan exceeds its memory limit but can be made to fit."""

_VIEW_FIELDS = tuple(field for field in fields(Choice) if field.name not in OPTION_SPECS)
_INTEGER_FIELDS = ("step", "selected_rank", "replayed", "radius")  # fields with a whole number, at least 0
NAMES = {"source": "graph", "selected": "tensor", "search": "q"}  # field → key in a link, if they differ
NAMES |= {"graph_part": "walk", "selected_rank": "look", "replayed": "turn"}
NAMES |= {name: spec.link for name, spec in OPTION_SPECS.items() if spec.link}

GRAPH_PARTS = MODEL, AROUND = ("model", "around")
_ALLOWED_VALUES: dict[str, tuple[str, ...]] = {"mode": MODES, "preset": PRESETS, "view": VIEWS, "tab": TABS}
_ALLOWED_VALUES |= {"colour": COLOURS, "graph_part": GRAPH_PARTS, "swapped": ("0", "1")}
_RANGES = {  # field with several numbers → its format, for the warning about an invalid value
    "span": "Write two whole numbers first~end with first < end.",
    "zoom": "Write four numbers t0~t1~v0~v1 with t0 < t1 and v0 < v1.",
}
_MAX_EDGE = float(1 << 64)  # largest number in a range, in steps, bytes, slots or rows


def to_query(choice: Choice) -> dict[str, str]:
    """Return the query of a link: the graph, because servers have different defaults, and each non-default field."""
    query = {"graph": choice.source} | {NAMES.get(name, name): text for name, text in option_texts(choice).items()}
    for field in _VIEW_FIELDS:
        value = getattr(choice, field.name)
        if value != field.default:
            query[NAMES.get(field.name, field.name)] = _text(value)
    return query


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "~".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return "1" if value is True else str(value)


def from_query(query: Mapping[str, str]) -> tuple[Choice, tuple[str, ...]]:
    """Return ``(choice, warnings)`` of a link. Unknown keys and invalid values are ignored with a warning."""
    values: dict[str, Any] = {}
    warnings: list[str] = []
    field_of = {NAMES.get(field.name, field.name): field.name for field in fields(Choice)}
    for key, text in query.items():
        if key not in field_of:
            warnings.append(f"The link has the unknown key {key!r}. {strict.closest_hint(key, field_of)}")
            continue
        try:
            values[field_of[key]] = _read(field_of[key], text)
        except (ValueError, UnreadableInput) as error:
            warnings.append(f"The link has an invalid value, {key}={text!r}. {getattr(error, 'message', error)}")
    choice = Choice(**values)
    while (wrong := contradiction(choice)) is not None:
        warnings.append(f"The link has settings that exclude each other: {wrong.message} {wrong.hint}")
        choice = choice.but(**{wrong.field: getattr(Choice(), wrong.field)})
    return choice, tuple(warnings)


def _read(name: str, text: str) -> Any:
    allowed = _ALLOWED_VALUES.get(name, ())
    if allowed and text not in allowed:
        raise ValueError(strict.closest_hint(text, allowed))
    if name in OPTION_SPECS:
        return OPTION_SPECS[name].read(text)
    if name == "swapped":
        return text == "1"
    if name == "marked" and text not in ("witness", "late") and not text.startswith("layer:"):
        raise ValueError("Choose witness, late or a layer, such as layer:encoder.0.")
    if name not in _RANGES:
        return strict.whole_number(text) if name in _INTEGER_FIELDS else text
    if not text:
        return None
    parts = text.split("~")
    if name == "zoom":  # rounded to the digits that :func:`to_query` writes
        numbers = tuple(round(float(part), 3) for part in parts if re.fullmatch(r"[0-9]*\.?[0-9]+", part))
    else:
        numbers = tuple(map(strict.whole_number, parts))
    count = 4 if name == "zoom" else 2
    is_rising = all(low < high for low, high in zip(numbers[::2], numbers[1::2], strict=False))
    if len(parts) != count or len(numbers) != count or not is_rising or max(numbers) > _MAX_EDGE:
        raise ValueError(_RANGES[name])
    return numbers


def path_text(path: Path) -> str:
    """Return a module path as text for links: its names, quoted and separated by slashes."""
    return "/".join([quote(part, safe="") for part in path])


def paths_of(text: str) -> frozenset[Path]:
    """Return the module paths in a comma-separated list of texts from :func:`path_text`."""
    return frozenset([tuple([unquote(part) for part in path.split("/")]) for path in text.split(",") if path])


def move_path(path: str, source: str, target: str) -> tuple[str, str]:
    """Return the comma-separated list ``source`` without ``path``, and the list ``target`` with ``path`` at its end."""
    remaining, present = ([p for p in paths.split(",") if p not in ("", path)] for paths in (source, target))
    return ",".join(remaining), ",".join([*present, path])


def spec_of(text: str) -> dict[str, Any]:
    """Parse the JSON object of a spec; ``read_spec`` checks its fields. Raises ``UnreadableInput`` for other texts."""
    if not text.strip():
        rule = '"rules": [{"match": "*.weight", "axis": 0, "mesh": "tp"}]'
        hint = f'Write {{"mesh": {{"tp": 8}}, {rule}}}, or choose a preset.'
        raise UnreadableInput("a rank is chosen without a shard spec.", source="shard spec", hint=hint)
    return read_json_object(text, "shard spec")


def compact(text: str) -> str:
    """Return a spec without white space, for a link; unchanged if it is not JSON."""
    try:
        return msgspec.json.format(text.encode(), indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
