"""Themes and sizes of exported pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Theme = Literal["light", "dark"]
WIDTH, HEIGHT = 1100, 460
LEAST, MOST = 200, 8_000
"""Minimum and maximum side of a picture in pixels."""


@dataclass(frozen=True)
class Look:
    """Colours of a picture that is a file of its own."""

    ground: str
    panel: str
    """Background of the drawing area."""
    ink: str
    """Colour of lines and marks."""
    text: str
    soft: str


LOOKS: dict[Theme, Look] = {
    "light": Look("#ffffff", "#f4f6f8", "#111111", "#333c45", "#5b6570"),
    "dark": Look("#0e1117", "#1a2029", "#f2f4f6", "#d7dde3", "#a4afba"),
}


@dataclass(frozen=True)
class Sheet:
    """Size in pixels and theme of a picture."""

    width: int = WIDTH
    height: int = HEIGHT
    theme: Theme = "light"
    whole: bool = False
    """Whether the picture is a file of its own, with background, size and patterns."""

    @property
    def look(self) -> Look:
        """Return the colours of the theme."""
        return LOOKS[self.theme]

    def opened(self, title: str) -> str:
        """Return the opening tag and, for a separate file, the background. ``title`` is escaped."""
        size = f' width="{self.width}" height="{self.height}"' if self.whole else ""
        ground = f'<rect width="{self.width}" height="{self.height}" fill="{self.look.ground}"/>' if self.whole else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"{size} role="img" '
            f'aria-label="{title}" font-family="sans-serif" font-size="12" fill="{self.look.text}">{ground}'
        )

    def level(self, y: float, left: int, right: int, dash: str = "") -> str:
        """Return a horizontal line between the left and right margins."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        line = f'stroke="{self.look.ink}" stroke-width="1.6"{dashes} fill="none"'
        return f'<path d="M{left} {y:.1f}H{self.width - right}" {line}/>'
