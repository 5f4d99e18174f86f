"""The canvas of a plan: memory map, slots and lifetimes. It shows the session's choice, and changes it on events."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.canvas.component import PLAN, Origin, Packed, drawn_plan, pack_plan
from app.kit import arena_focus, controls, tensor_card
from app.session import state
from app.session.plan_rows import operators, origins, phases
from app.session.planning import Shown
from app.session.view_state import ALL_ARENAS, COLOURS, VIEWS
from app.session.work.jobs import memoized
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class PlanHandle:
    """A plan, and a baseline if given, that were sent to the browser under ``token``."""

    token: str
    plans: tuple[Plan, ...]


def send_plan(shown: Shown, baseline: Shown | None = None, key: str = "plan-bytes") -> PlanHandle:
    """Send the plan, and a baseline if given, to the browser. Inside a fragment, each rerun would send them again."""
    packed = _packed(shown, baseline)
    controls.canvas_component(PLAN)(key=key, data=packed.data, height="content")
    return PlanHandle(packed.token, (shown.plan,) if baseline is None else (shown.plan, baseline.plan))


@memoized
def _packed(shown: Shown, baseline: Shown | None) -> Packed:
    more: dict[str, Any] = {} if baseline is None else {"baseline": baseline.plan, "baseline_origin": _origin(baseline)}
    return pack_plan(shown.plan, _origin(shown), **more)


def _origin(shown: Shown) -> Origin:
    rows = origins(shown)
    has_layers = rows is not None and rows.modules.known_by and any(rows.layer)
    return Origin(operators(shown), rows.layer if rows is not None and has_layers else None, phases(shown))


def arenas_end_to_end(plan: Plan) -> tuple[str, ...]:
    """Return the names of the arenas in a common memory, bottom first. Arenas without reuse are below the others."""
    return tuple(arena.name for arena in sorted(plan.arenas, key=lambda a: a.max_live < a.storages))


def draw(handle: PlanHandle, on: Mapping[str, Callable[[Any], None]], *, key: str, **settings: Any) -> None:
    """Draw a plan with ``settings`` (``DEFAULTS`` in ``chart.js``). ``on``: event → function of the event's value.

    Values: ``select``: ``{id, row, how}`` of the tensor (``id=None, row=-1`` for a cleared selection);
    ``step``: the step or ``None``; ``span``: ``[first, end]`` or ``None``; ``search``: the text; ``view``: the name;
    ``colour`` and ``arena``: the name or ``None``; ``zoom``: the visible range or ``None``.
    """
    description = {"plan": handle.token, "events": sorted(on), **settings}
    controls.canvas_component(PLAN)(key=key, data=description, height="content", **state.listeners(key, on))


def canvas(
    handle: PlanHandle, *, key: str = "map", step: int | None = None, flags: Iterable[tuple[int, str]] = (), **more: Any
) -> None:
    """Draw a plan with the settings of the choice. ``step`` and ``more`` (see :func:`draw`) have priority."""
    plan, chosen = handle.plans[more.get("plan_index", 0)], state.choice()
    arena = more.get("arena", arena_focus.drawn_arena(plan))
    _, steps = drawn_plan(*handle.plans)  # drawn step → first of its plan steps; None: each drawn step is a plan step
    step = chosen.step if step is None else step
    is_hashed = plan.places == "sparse"  # offsets are hashes, so a map would show nothing

    def drawn_range(span: tuple[int, int]) -> tuple[int, int]:
        """Return the range of drawn steps that contains a range of plan steps."""
        if steps is None:
            return span
        first = int(steps.searchsorted(span[0], side="right")) - 1
        return first, max(first + 1, int(steps.searchsorted(span[1])))

    def plan_step(drawn_step: int) -> int:
        return int(drawn_step if steps is None else steps[drawn_step])

    settings: dict[str, Any] = {
        "view": "slots" if is_hashed and chosen.view == "map" else chosen.view,
        "colour": chosen.colour or None,
        "arena": arena,
        "selected": chosen.selected if chosen.selected in plan.row_of else None,
        "search": chosen.search,
        "marked": more.pop("marked", None) or tensor_card.witness_rows(plan, arena),
        "step": drawn_range((step, step + 1))[0] if step is not None and step < plan.steps else None,
        "span": chosen.span and drawn_range(chosen.span),
        "flags": [(drawn_range((t, t + 1))[0], text) for t, text in flags],
        "zoom": chosen.zoom,
        "height": 560,
        "link": "page",
    }
    callbacks: dict[str, Any] = {
        "select": select,
        "step": lambda drawn: state.choose(step=None if drawn is None else plan_step(drawn)),
        "span": lambda drawn: state.choose(span=drawn and tuple(map(plan_step, drawn))),
        "search": lambda text: state.choose(search=(text or "").strip(), marked=""),
        "view": lambda view: state.choose(view=view) if view in VIEWS else None,
        "colour": lambda colour: state.choose(colour=colour if colour in COLOURS else ""),
        "arena": lambda arena: state.choose(arena=arena or ALL_ARENAS),
        "zoom": lambda edges: state.choose(zoom=edges and tuple(round(max(0.0, edge), 3) for edge in edges)),
    }
    draw(handle, callbacks, key=key, **settings | more)


def select(event: Mapping[str, Any]) -> None:
    """Select the tensor of a canvas event ``select``; without a tensor, clear the selection."""
    state.choose(selected=event["id"] or "")
