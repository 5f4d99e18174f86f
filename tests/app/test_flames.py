"""The flame graph of bytes by module."""

from __future__ import annotations

from app.pages.plan.module_figure import ROOT, Flames, flames

NAMES = ("a", "b", "<b>c</b>", "d")
PATHS = {0: ("m", "h0"), 1: ("m", "h0"), 2: ("m", "h1"), 3: ()}
STORAGES = [(0, 400), (1, 300), (2, 200), (3, 100)]


def boxes(drawn: Flames) -> dict[str, tuple[float, float, str]]:
    """Of every box, by what it is called: width, height of its foot, tensor."""
    (bar,) = drawn.figure.data
    rows = zip(bar.customdata, bar.width, bar.base, strict=True)
    return {data[1]: (round(width + 2), base, data[0]) for data, width, base in rows}


def test_widths_are_bytes_and_leaves_are_storages() -> None:
    drawn = flames(STORAGES, PATHS.__getitem__, NAMES)
    found = boxes(drawn)
    assert {name: width for name, (width, _, _) in found.items()} == {
        ROOT: 1000,
        "m": 900,
        "h0": 700,
        "h1": 200,
        "a": 400,
        "b": 300,
        "<b>c</b>": 200,
        "d": 100,
    }
    assert [tensor for _, _, tensor in found.values() if tensor] == ["a", "b", "<b>c</b>", "d"]
    assert found[ROOT][1] > found["m"][1] > found["h0"][1] > found["a"][1]
    assert drawn.left_out == 0


def test_zoomed_module_has_the_full_width_inside_its_parents() -> None:
    drawn = flames(STORAGES, PATHS.__getitem__, NAMES, ("m", "h0"))
    found = boxes(drawn)
    assert {name: width for name, (width, _, _) in found.items()} == {
        ROOT: 1000,
        "m": 1000,
        "h0": 1000,
        "a": 571,
        "b": 429,
    }
    assert drawn.modules[:3] == ((), ("m",), ("m", "h0"))


def test_zoom_into_an_empty_module_is_reset() -> None:
    assert boxes(flames(STORAGES, PATHS.__getitem__, NAMES, ("m", "gone"))).keys() >= {ROOT, "m", "h0", "h1"}


def test_narrow_boxes_are_counted() -> None:
    assert flames([(0, 10**6), (1, 1)], PATHS.__getitem__, NAMES).left_out == 1


def test_deep_tree_is_drawn() -> None:
    path = tuple([f"p{k}" for k in range(2000)])
    drawn = flames([(0, 8)], lambda row: path, NAMES)
    assert (len(drawn.modules), drawn.left_out) == (13, 1)
    assert flames([(0, 8)], lambda row: path, NAMES, path).tensors[-1] == "a"
