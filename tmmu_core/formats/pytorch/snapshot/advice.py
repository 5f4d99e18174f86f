"""What a snapshot suggests: code to checkpoint, settings of the allocator, a static plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tmmu_core.formats.pytorch.caching_allocator import UNLIMITED
from tmmu_core.formats.pytorch.snapshot.allocator_replay import replayed_peak
from tmmu_core.formats.pytorch.snapshot.history import History
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import BACKWARD

MOST_MODULES = 3
SPLITS = (512 << 20, 128 << 20)
"""Values of ``max_split_size_mb`` that are tried, in bytes."""


@dataclass(frozen=True)
class Setting:
    """The reserved peak (bytes) that the model of the allocator computes under a setting."""

    name: str
    reserved: int
    change: int
    """Bytes compared with the model under the recorded settings, whose error is the same."""


@dataclass(frozen=True)
class Module:
    """Activations of a function that are live at the peak: what checkpointing it can free at most."""

    name: str
    size: int
    count: int


def modules_to_checkpoint(history: History) -> list[Module]:
    """Return the functions with the most activations at the peak that the forward pass saved."""
    found: dict[str, list[int]] = {}
    for row in history.live_at(history.peak_step).tolist():
        if history.categories[row] == "activation" and history.phase[row] != BACKWARD and history.stack[row]:
            total = found.setdefault(history.name("module", row), [0, 0])
            total[0] += int(history.size[row])
            total[1] += 1
    ordered = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return [Module(name, *total) for name, total in ordered if total[1] > 1][:MOST_MODULES]


def model_error(history: History) -> tuple[int, int]:
    """Return ``(reserved peak of the model, recorded reserved peak)`` in bytes under the recorded settings."""
    return replayed_peak(history, history.settings), history.reserved.peak[1]


def settings_to_try(history: History) -> Iterator[Setting]:
    """Yield other settings of ``PYTORCH_CUDA_ALLOC_CONF`` and the reserved peak of the model under each.

    Segments at the beginning of a trace are of the recorded settings. So the change to expandable segments, or from
    them, is that of two replays which begin with no segment.
    """
    recorded = history.settings
    now = replayed_peak(history, recorded)
    tried = [("expandable_segments:True", replace(recorded, expandable_segments=True, max_split_size=UNLIMITED))]
    tried += [(f"max_split_size_mb:{most >> 20}", replace(recorded, max_split_size=most)) for most in SPLITS]
    for name, settings in tried:
        if settings != recorded:
            is_same_kind = settings.expandable_segments == recorded.expandable_segments
            change = replayed_peak(history, settings, from_segments=is_same_kind) - (
                now if is_same_kind else replayed_peak(history, recorded, from_segments=False)
            )
            yield Setting(name, now + change, change)
