"""The programs' hues: told apart by everybody, from red, from the card, and with text on them.

CIEDE2000 by Sharma, Wu and Dalal (2005), with pairs of their test data; simulated colour blindness
by the matrices of Machado, Oliveira and Fernandes (2009) at full severity; contrast by WCAG 2.2.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from clusters.palette import HUES

CSS = (Path(__file__).parents[1] / "static" / "allotment.css").read_text()
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1, 1.08883])
BLIND = {
    "nobody": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
THEMES = ("light", "dark")


def tokens(theme: str) -> dict[str, str]:
    """The theme's colours by name."""
    block = CSS[CSS.index(f"[data-bs-theme={theme}] {{") :]
    return dict(re.findall(r"--al-([a-z0-9-]+): (#[0-9a-f]{6});", block[: block.index("}")]))


def linear(colour: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(colour: str, seen_by: str = "nobody") -> tuple[float, float, float]:
    x, y, z = np.clip(BLIND[seen_by] @ linear(colour), 0, 1) @ TO_XYZ.T / WHITE
    f = [np.cbrt(v) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def apart(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """CIEDE2000."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 1.5 - 0.5 * np.sqrt(chroma**7 / (chroma**7 + 25**7))
    c1, c2 = np.hypot(g * a1, b1), np.hypot(g * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, g * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    mean_l, mean_c = (l1 + l2) / 2, (c1 + c2) / 2
    mean_h = h1 + h2 if c1 * c2 == 0 else h1 + turn / 2
    t = 1 + sum(
        part * np.cos(np.radians(times * mean_h + shift))
        for part, times, shift in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63))
    )
    off = (mean_l - 50) ** 2
    dl = (l2 - l1) / (1 + 0.015 * off / np.sqrt(20 + off))
    dc = (c2 - c1) / (1 + 0.045 * mean_c)
    dh = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * mean_c * t)
    rotate = 60 * np.exp(-((((mean_h % 360) - 275) / 25) ** 2))
    r = -2 * np.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * np.sin(np.radians(rotate))
    return float(np.sqrt(dl**2 + dc**2 + dh**2 + r * dc * dh))


def contrast(one: str, other: str) -> float:
    high, low = sorted((float(TO_XYZ[1] @ linear(c)) for c in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("one", "other", "known"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_that_of_its_authors(one, other, known):
    assert apart(one, other) == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("seen_by", BLIND)
def test_everybody_can_tell_programs_apart(theme, seen_by):
    known = tokens(theme)
    seen = [lab(known[f"h{n}"], seen_by) for n in range(1, HUES + 1)]
    first, all_twelve = (26, 14) if seen_by == "nobody" else (12.5, 7)
    assert min(apart(a, b) for a, b in combinations(seen[:4], 2)) >= first
    assert min(apart(a, b) for a, b in combinations(seen, 2)) >= all_twelve


@pytest.mark.parametrize("theme", THEMES)
def test_hues_stand_out_from_the_card_and_are_not_red(theme):
    known = tokens(theme)
    for n in range(1, HUES + 1):
        hue = known[f"h{n}"]
        assert contrast(hue, known["surface"]) >= 3, n
        assert apart(lab(hue), lab(known["red"])) >= 24, n
        assert contrast(known["ink"], known[f"h{n}-t"]) >= 7, n  # text on the tint


@pytest.mark.parametrize("theme", THEMES)
def test_text_on_a_hue_can_be_read(theme):
    known = tokens(theme)
    chosen = dict(re.findall(r"\.hue-(\d+) \{.*?--hue-on: var\(--al-([a-z0-9-]+)\)", CSS))
    for n in range(1, HUES + 1):
        assert contrast(known[chosen[str(n)]], known[f"h{n}"]) >= 4.5, n
