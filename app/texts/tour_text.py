"""Texts of the tour. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Stop:
    """One part of the page and its explanation."""

    at: str
    """CSS selector; the first match is highlighted."""
    title: str
    text: str


STOPS = (
    Stop(
        ".st-key-over, .tm-claim",
        "Does it fit?",
        "With a memory limit, this line shows the bytes over it and the next action. Here the activations of ResNet-50 "
        "exceed their limit of 8 MiB; one click finds a plan that fits.",
    ),
    Stop(
        ".tm-strip",
        "A row per arena",
        "Lower bound: no plan is smaller. Arena size: what this plan reserves. Another planner can save at most the "
        "difference. Hover over a term for its definition.",
    ),
    Stop(
        ".tmmu-canvas",
        "Arena map",
        "Steps to the right, bytes upwards, one box per tensor; red is above the limit. The wheel zooms, drag pans, "
        "/ searches, p goes to the peak.",
    ),
    Stop(
        '[class*="st-key-beside"]',
        "Tensor details",
        "Click a box: producer, readers, live range, idle steps, the reason for its offset, and what would free it "
        "earlier. Every name is a link.",
    ),
    Stop(
        '[data-testid="stTopNavLink"][href*="/fit"], [data-testid="stHeader"]',
        "Make it fit",
        "Fit searches for changes until the plan fits, or proves that none does. Compare overlays two plans. Report "
        "exports. To open your own model, use the folder button.",
    ),
)


def stops() -> list[dict[str, str]]:
    """Return the stops as JSON-ready values."""
    return [asdict(stop) for stop in STOPS]
