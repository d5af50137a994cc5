"""The palette of views.md: readable on its background, apart for every kind of eye."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from app.theme import DARK, FILLS, LIGHT, Theme, hatched, rgba, theme

LOOKS = [LIGHT, DARK]
# Machado, Oliveira and Fernandes 2009, severity 1, in linear RGB.
EYES = {
    "normal": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
    "protan": [
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ],
    "deutan": [
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ],
    "tritan": [
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ],
}


def linear(colour: str) -> tuple[float, float, float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    """CIELAB of linear sRGB under D65."""
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.95047, 1.0, 1.08883)
    xyz = [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in rows]
    scaled = [v / w for v, w in zip(xyz, white, strict=True)]
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in scaled]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def delta_e(one: tuple[float, ...], two: tuple[float, ...]) -> float:
    """CIEDE2000 (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = lab(one), lab(two)
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    dh = ((h2 - h1 + 180) % 360) - 180
    mean_l, mean_c = (l1 + l2) / 2, (c1 + c2) / 2
    mean_h = (h1 + dh / 2) % 360
    t = (
        1
        - 0.17 * math.cos(math.radians(mean_h - 30))
        + 0.24 * math.cos(math.radians(2 * mean_h))
        + 0.32 * math.cos(math.radians(3 * mean_h + 6))
        - 0.20 * math.cos(math.radians(4 * mean_h - 63))
    )
    sl = 1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2)
    sc, sh = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * t
    turn = 30 * math.exp(-(((mean_h - 275) / 25) ** 2))
    rt = -2 * math.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * math.sin(math.radians(2 * turn))
    lightness, chroma = (l2 - l1) / sl, (c2 - c1) / sc
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(dh / 2)) / sh
    return math.sqrt(lightness**2 + chroma**2 + hue**2 + rt * chroma * hue)


def seen(colour: str, eye: str) -> tuple[float, ...]:
    rgb = linear(colour)
    return tuple(
        min(max(sum(m * c for m, c in zip(row, rgb, strict=True)), 0.0), 1.0) for row in EYES[eye]
    )


def test_delta_e_agrees_with_the_published_pair() -> None:
    """A white and a black differ by 100, a colour and itself by 0."""
    assert delta_e((1, 1, 1), (0, 0, 0)) == pytest.approx(100, abs=0.1)
    assert delta_e((0.2, 0.4, 0.1), (0.2, 0.4, 0.1)) == 0


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
@pytest.mark.parametrize("role", FILLS)
def test_every_fill_stands_out_from_its_background(look: Theme, role: str) -> None:
    assert contrast(look.fill(role), look.background) >= 3.05


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
@pytest.mark.parametrize("role", FILLS)
def test_text_reads_on_every_fill(look: Theme, role: str) -> None:
    """4.5:1, or 3:1 where neither ink does better (the text there is 13 px bold or a label)."""
    ink = look.text_on(role)
    other = "#FFFFFF" if ink == "#111111" else "#111111"
    assert contrast(ink, look.fill(role)) >= 3.0
    assert contrast(ink, look.fill(role)) >= min(4.5, contrast(other, look.fill(role)))


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
@pytest.mark.parametrize("eye", EYES)
def test_roles_stay_apart(look: Theme, eye: str) -> None:
    for one, two in itertools.combinations(FILLS, 2):
        apart = delta_e(seen(look.fill(one), eye), seen(look.fill(two), eye))
        assert apart >= 13, (eye, one, two, apart)


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_words_read_on_the_page(look: Theme) -> None:
    assert contrast(look.text, look.background) >= 7
    assert contrast(look.muted, look.background) >= 4.5


def test_the_stylesheet_has_the_same_colours() -> None:
    from app.dashboard_files import style

    text = style()
    light = " ".join(re.findall(r":root \{(.*?)\}", text, re.DOTALL))
    dark = " ".join(re.findall(r':root\[data-look="dark"\] \{(.*?)\}', text, re.DOTALL))
    for role in FILLS:
        assert f"--ss-{role}: {LIGHT.fill(role)}" in light
        assert f"--ss-{role}: {DARK.fill(role)}" in dark


def test_an_unknown_look_is_light() -> None:
    assert theme("x<script>") is LIGHT


def test_opacity_and_hatching_keep_the_role_visible() -> None:
    assert rgba("#A52302", 0.25) == "rgba(165,35,2,0.25)"
    pattern = hatched(LIGHT.padding, LIGHT.background)
    assert pattern["shape"] == "/"
    assert pattern["fgcolor"] == LIGHT.padding
