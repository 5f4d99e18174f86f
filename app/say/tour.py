"""The tour of the first minute: five things to look at, each with what it tells. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Stop:
    """One thing to look at."""

    at: str
    """What is framed, as a CSS selector; the first that is there."""
    title: str
    text: str


STOPS = (
    Stop(
        ".st-key-over, .tm-claim",
        "Does it fit?",
        "Where a capacity is given, this line answers in bytes, and says what to do next. Here the activations of "
        "ResNet-50 do not fit the 8 MiB that were given to them; one click finds a plan that does.",
    ),
    Stop(
        ".tm-strip",
        "A row per arena",
        "Lower bound: no plan is smaller. Extent: what this plan takes. What lies between the two is what another "
        "planner may win. Rest the pointer on any term: its definition comes.",
    ),
    Stop(
        ".tmmu-canvas",
        "Where every tensor lies",
        "Steps to the right, bytes upwards, a box per tensor; red is what lies above the capacity. The wheel zooms, "
        "drag pans, / searches, p goes to the peak.",
    ),
    Stop(
        '[class*="st-key-beside"]',
        "Why",
        "Click a box: who made it, who holds its bytes, for how many steps unused, why it lies here, and what would "
        "free it earlier. Every name is a link.",
    ),
    Stop(
        '[data-testid="stTopNavLink"][href*="/fit"], [data-testid="stHeader"]',
        "Make it fit",
        "Fit searches for moves until it fits, or proves that nothing does. Compare lays two plans over one another, "
        "Report takes it away. Your own model: the button with the folder.",
    ),
)


def stops() -> list[dict[str, str]]:
    """The tour as the script takes it."""
    return [asdict(stop) for stop in STOPS]
