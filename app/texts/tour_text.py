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
        ".tm-headline",
        "Does it fit?",
        "This line shows what the plan needs, the excess over the memory limit, and why. One click finds the best "
        "plan. Every page begins with it.",
    ),
    Stop(
        ".st-key-toolbar",
        "Your model, your memory",
        "Open a file, or drop it anywhere on the page. Then set the memory limit of your device, such as 8GiB.",
    ),
    Stop(
        ".tmmu-canvas",
        "Arena map",
        "Steps to the right, bytes upwards, one box per tensor; red is above the limit. The wheel zooms, drag pans, "
        "/ searches, p goes to the peak. The other views show the peak, all arenas in one memory, and the waste.",
    ),
    Stop(
        '[class*="st-key-beside"]',
        "Tensor details",
        "Click a box: producer, readers, live range, idle steps, the reason for its offset, and what would free it "
        "earlier. Every name is a link.",
    ),
    Stop(
        '[data-testid="stTopNavLink"][href*="/fix"], [data-testid="stHeader"]',
        "Make it fit",
        "Fix ranks changes and combines them until the plan fits, or proves that none does. Compare shows two plans. "
        "Export writes reports, pictures, plans and C code.",
    ),
)


def stops() -> list[dict[str, str]]:
    """Return the stops as JSON-ready values."""
    return [asdict(stop) for stop in STOPS]
