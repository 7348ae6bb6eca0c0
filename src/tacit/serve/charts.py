"""Small charts as SVG: made of numbers only, in the page's own colours, without any script.

Positions are attributes, not styles, so that a strict Content-Security-Policy lets them be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]
WIDTH: Final = 420
HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 24, 26, 40


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its words, its ends, and where it has ticks with which text."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """How far along ``value`` is, from 0 to 1."""
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.0


@final
@dataclass(frozen=True, slots=True)
class Line:
    """A line through points; ``kind`` names its look in the style sheet."""

    kind: str
    points: Sequence[Point]


def graph(
    title: str,
    across: Axis,
    up: Axis,
    lines: Sequence[Line],
    marks: Sequence[Point] = (),
    dots: Sequence[Point] = (),
) -> Markup:
    """Lines over two axes, dots on them, and marks; ``title`` says in words what they show."""
    parts = [
        Markup('<svg class="graph" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            WIDTH, HEIGHT, title
        )
    ]
    for value, text in across.ticks:
        x = _x(across, value)
        parts.append(_rule(x, _TOP, x, HEIGHT - _BOTTOM))
        parts.append(_text("tick middle", x, HEIGHT - _BOTTOM + 15, text))
    for value, text in up.ticks:
        y = _y(up, value)
        parts.append(_rule(_LEFT, y, WIDTH - _RIGHT, y))
        parts.append(_text("tick end", _LEFT - 6, y + 4, text))
    parts.append(_text("axis middle", (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, across.label))
    parts.append(_text("axis", 4, 10, up.label))
    for line in lines:
        path = " ".join(f"{_x(across, x):.1f},{_y(up, y):.1f}" for x, y in line.points)
        parts.append(Markup('<polyline class="{}" points="{}"/>').format(line.kind, path))
    for kind, size, points in (("dot", 2.5, dots), ("mark", 4, marks)):
        parts += [
            Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(
                kind, _x(across, x), _y(up, y), size
            )
            for x, y in points
        ]
    return Markup("").join([*parts, Markup("</svg>")])


def bar(title: str, shares: Sequence[tuple[str, float]]) -> Markup:
    """One bar of parts that follow each other; ``shares`` are pairs of a look and a part of 1."""
    parts = [
        Markup(
            '<svg class="bar" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" '
            'aria-label="{}"><rect class="all" x="0" y="0" width="1000" height="24"/>'
        ).format(title)
    ]
    start = 0.0
    for kind, share in shares:
        end = min(1.0, start + max(0.0, share))
        parts.append(
            Markup('<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="24"/>').format(
                kind, 1000 * start, 1000 * (end - start)
            )
        )
        start = end
    return Markup("").join([*parts, Markup("</svg>")])


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.share(value) * (WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.share(value) * (HEIGHT - _TOP - _BOTTOM)


def _rule(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="rule" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        x1, y1, x2, y2
    )


def _text(kind: str, x: float, y: float, text: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        kind, x, y, escape(text)
    )
