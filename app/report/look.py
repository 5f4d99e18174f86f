"""The grounds and inks of what is taken away: light, and dark. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Theme = Literal["light", "dark"]
WIDTH, HEIGHT = 1100, 460
LEAST, MOST = 200, 8_000
"""Pixels that a picture's sides may have."""


@dataclass(frozen=True)
class Look:
    """Colours of a picture as a file of its own: no style sheet of a page reaches it there."""

    ground: str
    panel: str
    """Under the boxes."""
    ink: str
    """Lines and marks."""
    text: str
    soft: str


LOOKS: dict[Theme, Look] = {
    "light": Look("#ffffff", "#f4f6f8", "#111111", "#333c45", "#5b6570"),
    "dark": Look("#0e1117", "#1a2029", "#f2f4f6", "#d7dde3", "#a4afba"),
}


@dataclass(frozen=True)
class Sheet:
    """How large a picture is, in pixels, and on what ground."""

    width: int = WIDTH
    height: int = HEIGHT
    theme: Theme = "light"
    whole: bool = False
    """Whether it is a file of its own: then it brings its ground, its size and its patterns along."""

    @property
    def look(self) -> Look:
        """Its colours."""
        return LOOKS[self.theme]

    def opened(self, title: str) -> str:
        """The first tag, and the ground where it brings one. ``title`` is escaped."""
        size = f' width="{self.width}" height="{self.height}"' if self.whole else ""
        ground = f'<rect width="{self.width}" height="{self.height}" fill="{self.look.ground}"/>' if self.whole else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"{size} role="img" '
            f'aria-label="{title}" font-family="sans-serif" font-size="12" fill="{self.look.text}">{ground}'
        )
