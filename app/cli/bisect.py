"""``tmmu bisect``: which commit made the arena grow, and which tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.console import FINDING, FINE, Column, UsageFault, say, say_json, table
from app.cli.options import AsJson
from app.cli.stores import Branch, Planner, StoreUrl, only, open_store
from app.say import words

if TYPE_CHECKING:
    from tmmu_core.store.growth import Asked, Blame, Step
    from tmmu_core.store.run import Run

Model = Annotated[str, typer.Argument(metavar="MODEL", help="The model.")]
Good = Annotated[str | None, typer.Option("--good", metavar="COMMIT", help="Where it was well [the first run].")]
Bad = Annotated[str | None, typer.Option("--bad", metavar="COMMIT", help="Where it is not [the last run].")]
FigureName = Annotated[str, typer.Option("--figure", metavar="NAME", help="extent, peak or bound.")]
ArenaName = Annotated[str | None, typer.Option("--arena", metavar="NAME", help="One arena [all together].")]
Limit = Annotated[int, typer.Option(min=0, help="How many tensors to list.")]


def command(
    model: Model,
    store: StoreUrl = None,
    good: Good = None,
    bad: Bad = None,
    figure: FigureName = "extent",
    arena: ArenaName = None,
    branch: Branch = None,
    planner: Planner = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> int:
    """Find the commit since which a model takes more than it did, and the tensors that are why.

    One branch is looked at. A commit with several runs counts by those of the latest run's planner, mode and preset.

    Exit code: 0 it takes no more, 1 it does.
    """
    keeper = open_store(store)
    from tmmu_core.store import growth

    if figure not in growth.FIGURES:
        raise UsageFault(f"there is no figure {figure!r}.", f"Choose {', '.join(growth.FIGURES)}.")
    runs = _series(keeper.known(model), branch, planner)
    if not runs:
        raise UsageFault(f"{model} has no run of that branch and planner.", "tmmu history lists them.")
    chosen = growth.between(runs, good, bad)
    if arena is not None and all(arena not in {a.name for a in run.arenas} for run in chosen):
        raise UsageFault(f"no run has an arena {arena!r}.", f"The last has {_arenas(chosen[-1])}.")
    asked = growth.Asked(figure, arena)
    found = growth.culprit(chosen, asked)
    blamed: list[Blame] = []
    if found is not None:
        before, after = keeper.plan(found.before), keeper.plan(found.after)
        names = (arena,) if arena is not None else growth.grown_arenas(found.before, found.after, figure)
        blamed = [growth.blame(before, after, name) for name in names]
    if json:
        steps = [_step(step) for step in growth.steps_of(chosen, asked)]
        record: dict[str, Any] = {"model": model, "figure": figure, "arena": arena, "runs": len(chosen)}
        culprit = None if found is None else _step(found)
        say_json({**record, "culprit": culprit, "steps": steps, "arenas": [_blame(b, limit) for b in blamed]})
    else:
        _in_words(chosen, asked, found, blamed, limit)
    return FINE if found is None else FINDING


def _series(runs: tuple[Run, ...], branch: str | None, planner: str | None) -> tuple[Run, ...]:
    """The runs of one branch, main where none is named and it has any, that can be held to the latest of them."""
    from tmmu_core.store.growth import like_the_latest

    here = only(runs, branch, planner)
    if branch is None and here:
        here = only(here, "main", None) or only(here, here[-1].branch, None)
    return like_the_latest(here)


def _arenas(run: Run) -> str:
    return ", ".join(arena.name for arena in run.arenas)


# --- in words ----------------------------------------------------------------------------------------------------


def _in_words(runs: tuple[Run, ...], asked: Asked, found: Step | None, blamed: list[Blame], limit: int) -> None:
    what = f"{asked.figure} of {asked.arena}" if asked.arena else f"the {asked.figure}"
    run = runs[-1]
    say(f"{words.count(len(runs), 'run')} of {run.model} on {run.branch}, {run.planner}, {run.mode}")
    if found is None:
        say(f"{what} did not grow from {runs[0].commit} to {run.commit}")
        return
    say(
        f"{found.after.commit} made {what} grow by {words.delta_bytes(found.grown_bytes)}: "
        f"{words.change(words.full_bytes(found.before_bytes), words.full_bytes(found.after_bytes))}",
        f"recorded {found.after.at}; the run before is {found.before.commit}, {found.before.at}",
    )
    for one in blamed:
        before, after = one.peak_bytes
        say(
            "",
            f"{one.arena}: extent {words.delta_bytes(one.grown_bytes)} = peak {words.delta_bytes(after - before)} "
            f"+ between tensors {words.delta_bytes(one.slack_bytes)}",
        )
        rows = [
            [share.tensor_id, words.delta_bytes(share.grown_bytes), _both(share.before_bytes, share.after_bytes)]
            for share in one.shares[:limit]
        ]
        if rows:
            table((Column("alive at the peak"), Column("change", True), Column("bytes", True)), rows)
            say(words.of(len(rows), len(one.shares), "changed tensor"))


def _both(before: int, after: int) -> str:
    return words.change(*(words.full_bytes(n) if n else "–" for n in (before, after)))


# --- as JSON -----------------------------------------------------------------------------------------------------


def _step(step: Step) -> dict[str, Any]:
    sides = {"before": step.before.record(), "after": step.after.record()}
    figures = {"before_bytes": step.before_bytes, "after_bytes": step.after_bytes, "grown_bytes": step.grown_bytes}
    return {**sides, **figures}


def _blame(one: Blame, limit: int) -> dict[str, Any]:
    return {
        "arena": one.arena,
        "extent_bytes": list(one.extent_bytes),
        "peak_bytes": list(one.peak_bytes),
        "peak_steps": list(one.peak_steps),
        "grown_bytes": one.grown_bytes,
        "slack_bytes": one.slack_bytes,
        "tensors": [{**vars(share), "grown_bytes": share.grown_bytes} for share in one.shares[:limit]],
        "changed_tensors": len(one.shares),
    }
