"""Drawings of an arena as SVG in any size, light and dark."""

import xml.etree.ElementTree as ET

import pytest

from app.kit.download.downloads import PICTURES, picture
from app.report.pictures import LOOKS, Sheet, Theme
from app.session import planning
from app.session.view_state import Choice
from app.texts.palette import CATEGORIES, HUES

SHOWN = planning.make_plan(Choice(source="sample:resnet50"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("theme", LOOKS)
def test_drawing_has_the_chosen_size_and_theme(kind: str, theme: Theme) -> None:
    root = ET.fromstring(picture(SHOWN, kind, "activations", Sheet(640, 333, theme, whole=True)))
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("640", "333", "0 0 640 333")
    first = root.find(f"{SVG}rect")
    assert first is not None
    assert first.get("fill") == LOOKS[theme].ground
    assert root.get("fill") == LOOKS[theme].text
    for box in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(box.get(side, "0")) for side in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= 640.01
        assert y + h <= 333.01


@pytest.mark.parametrize(("kind", "colours"), [("map", HUES), ("slots", HUES), ("ledger", CATEGORIES)])
def test_drawing_has_the_colours_of_the_page(kind: str, colours: tuple[str, ...]) -> None:
    drawn = picture(SHOWN, kind, "activations", Sheet(whole=True))
    assert len({colour for colour in colours if f'fill="{colour}"' in drawn}) >= min(3, len(colours) // 4)


def test_text_and_lines_have_enough_contrast() -> None:
    """Contrast by WCAG 2: 4.5 for text, 3 for lines."""

    def luminance(colour: str) -> float:
        parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for look in LOOKS.values():
        for ground in (look.ground, look.panel):
            assert contrast(look.text, ground) >= 4.5
            assert contrast(look.soft, ground) >= 4.5
            assert contrast(look.ink, ground) >= 3
