"""The ``tmmu`` command that repeats a plan to the byte, and the files that it reads."""

from __future__ import annotations

import json
import shlex
from typing import Any

from app.say import words
from app.session.choice import arena_config, has_defaults, options_of
from app.session.opening import SAMPLES, sample_named, shelf
from app.session.planning import Shown, arenas_in_use
from tmmu_core.plan.making.instance import GIVEN
from tmmu_core.plan.model import Plan

ARENAS, SHARDS = "arenas.json", "shards.json"


def command(shown: Shown) -> str:
    """The command that makes this plan; for a finished plan the one that verifies it."""
    chosen, opened = shown.choice, shown.opened
    file = file_of(shown)
    if opened.plan is not None:
        return shlex.join(["tmmu", "verify", file])
    told = ["tmmu", "plan", file]
    if chosen.planner != GIVEN:  # offsets that came with the file are taken where no planner is named
        told += ["--planner", chosen.planner]
        for name, value in options_of(chosen).items():
            told += ["--option", f"{name}={_option(value)}"]
    if opened.graph is not None:
        told += ["--mode", chosen.mode, "--preset", chosen.preset]
    if chosen.dims:
        told += ["--dims", ",".join(f"{name}={n}" for name, n in chosen.dims)]
    if chosen.rank is not None:
        told += ["--shard", SHARDS, "--rank", str(chosen.rank)]
    if chosen.budget is not None:
        told += ["--budget", str(chosen.budget)]
    if arenas_file(shown) is not None:
        told += ["--arenas", ARENAS]
    return shlex.join([*told, "-o", f"{file_stem(opened.name)}.plan.json"])


def files(shown: Shown) -> dict[str, bytes]:
    """Name → bytes of what the command reads beside the graph."""
    found = {ARENAS: arenas_file(shown)}
    if shown.choice.rank is not None:
        found[SHARDS] = shown.choice.shard.encode()
    return {name: data for name, data in found.items() if data is not None}


def arenas_file(shown: Shown) -> bytes | None:
    """The arena configuration as the command reads it; ``None`` where nothing was chosen."""
    chosen, opened = shown.choice, shown.opened
    if opened.plan is not None or has_defaults(chosen):
        return None
    config: dict[str, dict[str, int]] | None = arena_config(chosen, arenas_in_use(chosen, opened))
    if config is None:
        return None
    if opened.problem is not None:  # here nothing said means the instance's own, not the contract's 128
        least = opened.problem.arena_alignment if chosen.alignment is None else chosen.alignment
        config = {name: {"alignment_bytes": least, **arena} for name, arena in config.items()}
    return json.dumps(config, indent=2).encode() + b"\n"


def arenas_spelled_out(plan: Plan) -> bytes:
    """The arenas of a plan with every default said, in the form that ``--arenas`` reads: what one begins with."""
    config = {}
    for arena in plan.arenas:
        said = {"alignment_bytes": arena.alignment_bytes, "page_size": arena.page_size}
        if arena.capacity_bytes < words.UNLIMITED:
            said = {"capacity_bytes": arena.capacity_bytes, **said}
        config[arena.name] = {name: n for name, n in said.items() if n}
    return json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n"


def file_of(shown: Shown) -> str:
    """The name of the file that is open, as the command line finds it."""
    kind, _, name = shown.opened.source.partition(":")
    sample = sample_named(name) if kind == "sample" else None
    if sample is not None:
        return f"{SAMPLES.name}/{sample.path.relative_to(SAMPLES).as_posix()}"
    kept = shelf().get(shown.opened.source)
    return kept[0] if kept is not None else shown.opened.name


def file_stem(name: str) -> str:
    """A file name's beginning made of a graph's name."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return safe.split(".")[0] or "plan"


def _option(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not isinstance(value, str):
        return text
    try:
        json.loads(value)
    except json.JSONDecodeError:
        return value  # read as it stands
    return text
