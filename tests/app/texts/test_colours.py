"""Colours with a meaning are distinguishable for everyone, and text is readable."""

import itertools

import numpy as np
import pytest

from app.report.pictures import ACCOUNT_STYLES
from app.texts.palette import CATEGORIES, ROLE_COLOURS

SIGHT = {
    "everyone": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
CLEARLY = 0.1  # minimum distance in OKLab of two colours that a reader can distinguish


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return opponents @ np.cbrt(cones @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("sight", SIGHT)
def test_role_colours_are_distinguishable(sight: str) -> None:
    colours = sorted(set(ROLE_COLOURS.values()))
    assert len(colours) == 6
    seen = {colour: oklab(SIGHT[sight] @ linear(colour)) for colour in colours}
    near = [(a, b) for a, b in itertools.combinations(colours, 2) if np.linalg.norm(seen[a] - seen[b]) < CLEARLY]
    assert near == []


@pytest.mark.parametrize("sight", SIGHT)
def test_first_operator_colours_differ_from_overflow_colour(sight: str) -> None:
    overflow = oklab(SIGHT[sight] @ linear("#D55E00"))
    for colour in CATEGORIES[:5]:
        assert np.linalg.norm(oklab(SIGHT[sight] @ linear(colour)) - overflow) >= CLEARLY, colour


def test_account_colours_are_distinct() -> None:
    assert len({colour for _, colour, _ in ACCOUNT_STYLES.values()}) == len(ACCOUNT_STYLES)
