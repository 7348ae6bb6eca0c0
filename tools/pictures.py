"""Draws the pictures of docs/concepts.md, as small SVG files, from formulas and fixed layouts.

python tools/pictures.py [FOLDER]    # docs/figures unless you name another
"""

import math
import random
import sys
from collections.abc import Iterable
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
WIDE = 440
INK, SOFT, BLUE, RED, PALE = "#1f2937", "#6b7280", "#1b6ca8", "#c8553d", "#e5e7eb"


def text(x: float, y: float, words: str, *, size: int = 14, colour: str = INK, at: str = "start"):
    """One line of words."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{at}">{words}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str = SOFT, *, width=1.5, dash=""):
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 2):
    """A line with a head."""
    angle = math.atan2(y2 - y1, x2 - x1)
    ends = [
        (x2 - 8 * math.cos(angle + turn), y2 - 8 * math.sin(angle + turn)) for turn in (-0.45, 0.45)
    ]
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *ends])
    shaft = line(x1, y1, x2, y2, colour, width=width)
    return f'{shaft}<polygon points="{head}" fill="{colour}"/>'


def dot(x: float, y: float, colour: str, radius: float = 6):
    """A disc."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'


def box(x: float, y: float, wide: float, high: float, fill: str = "none", edge: str = SOFT):
    """A rectangle with round corners."""
    return (
        f'<rect x="{x}" y="{y}" width="{wide:.1f}" height="{high}" rx="6" fill="{fill}" '
        f'stroke="{edge}"/>'
    )


def page(title: str, high: int, parts: Iterable[str]) -> str:
    """A whole picture, as wide as a telephone, on white: readable there and in the dark as well."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" width="{WIDE}" '
        f'height="{high}" font-family="system-ui, sans-serif" role="img"><title>{title}</title>'
        f'<rect width="{WIDE}" height="{high}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def most_found(epsilon: float, false_alarms: float, delta: float) -> float:
    """The largest true-positive rate of any test of two (ε, δ)-close laws (Kairouz et al. 2015)."""
    grown = math.exp(epsilon) * false_alarms + delta
    rest = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
    return min(grown, rest)


def odds() -> str:
    """What ε limits: how many insiders the best attacker finds."""
    title = "With 1 false alarm in 100, how many insiders can any attacker find?"
    parts = [
        text(16, 28, "With 1 false alarm in 100,", size=16),
        text(16, 49, "how many insiders can any attacker find?", size=16),
    ]
    for at, epsilon in enumerate((0.1, 0.5, 1, 2, 3, 4, 6, 8)):
        y, found = 66 + 34 * at, most_found(epsilon, 0.01, 1e-5)
        parts += [
            text(64, y + 17, f"ε = {epsilon:g}", at="end"),
            box(74, y, 205, 24, PALE, PALE),
            box(74, y, max(4, 205 * found), 24, BLUE, BLUE),
            text(287, y + 17, f"at most {math.ceil(1000 * found) / 10:g} of 100"),
        ]
    parts.append(text(16, 358, "δ = 1e-5. Guessing alone finds 1 of 100.", size=13, colour=SOFT))
    return page(title, 372, parts)


def bell(centre: float, floor: float, spread: float, colour: str) -> str:
    """A Gaussian curve, as high as it is narrow."""
    high = 125 * 40 / spread
    points = " ".join(
        f"{centre + x:.1f},{floor - high * math.exp(-0.5 * (x / spread) ** 2):.1f}"
        for x in range(-195, 196, 5)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>'


def noise() -> str:
    """Clip and noise: two worlds that must look alike."""
    title = "Clip and noise: the sum with you and without you"
    parts, step, middle = [], 36.0, WIDE / 2
    for top, floor, sigma, words in (
        (28, 150, 2.0, "easy to confuse"),
        (222, 394, 1.0, "easier to tell apart"),
    ):
        spread = sigma * step
        parts += [
            text(16, top, f"σ = {sigma:g}: noise {sigma:g} times the clip", size=16),
            text(16, top + 20, words, size=13, colour=SOFT),
            bell(middle - step / 2, floor, spread, SOFT),
            bell(middle + step / 2, floor, spread, BLUE),
            line(8, floor, WIDE - 8, floor, INK),
            arrow(middle - step / 2, floor + 16, middle + step / 2, floor + 16, RED),
            text(middle, floor + 36, "one clip: the most you can add", size=13, colour=RED,
                 at="middle"),
        ]  # fmt: skip
    parts += [
        text(16, 462, "grey: without your record", colour=SOFT),
        text(216, 462, "blue: with it", colour=BLUE),
    ]
    return page(title, 478, parts)


def step() -> str:
    """One step of training, from records to a noisy sum."""
    title = "One step: a coin for each record, a lot, clipped gradients, one noisy sum"
    heads = ("1. a coin for each", "2. the lot, in batches", "3. gradients, clipped", "4. one sum")
    parts = [
        text(16 + 220 * (at % 2), 28 + 262 * (at // 2), words, size=16)
        for at, words in enumerate(heads)
    ]
    return page(title, 505, [*parts, *_sampled(), *_clipped(110.0, 390.0), *_summed()])


def _sampled() -> Iterable[str]:
    """All records, and the batches of those whose coin fell so."""
    drawn = {3, 8, 10, 17, 20, 29, 31}
    for at in range(35):
        x, y = 32 + 30 * (at % 5), 58 + 27 * (at // 5)
        yield dot(x, y, BLUE if at in drawn else PALE, 9)
    for batch, (count, y) in enumerate(((4, 60), (3, 145))):
        yield box(240, y, 150, 52)
        yield text(248, y + 70, f"batch {batch + 1}", size=13, colour=SOFT)
        yield from (dot(264 + 34 * at, y + 26, BLUE, 9) for at in range(count))


def _clipped(x: float, y: float, clip: float = 55.0) -> Iterable[str]:
    """Gradients around a point, in a circle."""
    ring = f'stroke="{RED}" stroke-dasharray="5 4"'
    yield f'<circle cx="{x}" cy="{y}" r="{clip}" fill="none" {ring}/>'
    lengths = ((0.3, 80), (1.3, 40), (2.2, 70), (3.3, 50), (4.2, 34), (5.3, 85), (5.9, 45))
    for angle, length in lengths:
        across, down = math.cos(angle), math.sin(angle)
        if length > clip:
            ends = (x + clip * across, y + clip * down, x + length * across, y + length * down)
            yield line(*ends, SOFT, dash="3 3")
        kept = min(length, clip)
        yield arrow(x, y, x + kept * across, y + kept * down, BLUE)
    yield text(x, 484, "none is longer than the clip", size=13, colour=RED, at="middle")


def _summed() -> Iterable[str]:
    """The arrow of the sum, in a cloud of noise."""
    cloud = random.Random(7)
    for _ in range(120):
        yield dot(335 + cloud.gauss(0, 22), 365 + cloud.gauss(0, 22), "#f1c9bf", 2.5)
    yield arrow(262, 428, 335, 365, BLUE, width=3)
    yield text(240, 465, "the sum, plus noise,", size=13, colour=RED)
    yield text(240, 484, "divided by the plan’s lot size", size=13, colour=SOFT)


def unit() -> str:
    """One record, or one person."""
    title = "The unit: one record, or one person with all of their records"
    owners = ("Ann", "Ann", "Ann", "Ben", "Cem", "Cem")
    visits = ("2 March", "9 March", "4 May", "1 April", "2 June", "8 June")
    parts = []
    for left, name, words, rows in (
        (12, "example", "one row may change", {1}),
        (228, "user", "a person’s rows may change", {0, 1, 2}),
    ):
        parts += [text(left, 26, f'unit = "{name}"', size=16), text(left, 46, words, size=13)]
        for at, (owner, day) in enumerate(zip(owners, visits, strict=True)):
            y, changed = 60 + 32 * at, at in rows
            fill, edge = ("#f9e3dd", RED) if changed else ("#f3f4f6", PALE)
            parts += [
                box(left, y, 196, 26, fill, edge),
                text(left + 12, y + 18, owner),
                text(left + 90, y + 18, day, colour=SOFT),
            ]
    parts.append(text(12, 274, "red: what the guarantee hides", colour=RED))
    return page(title, 288, parts)


def main(folder: Path) -> None:
    """Draws all of them."""
    for name, drawn in {"odds": odds(), "noise": noise(), "step": step(), "unit": unit()}.items():
        (folder / f"concept-{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES)
