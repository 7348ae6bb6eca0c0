"""The picture of secrets: every one is in it, at its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tacit.reports import secret_figure

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = {
    "many": [(29.9, True), (28.9, True), (12.0, False)],
    "once": [(0.2, False), (3.0, False), (1.0, False)],
}


def test_every_secret_is_a_point() -> None:
    (axes,) = secret_figure.draw(GROUPS, 29.9).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in points] == [29.9, 28.9, 12.0, 0.2, 3.0, 1.0]
    filled = [line.get_markerfacecolor() != "white" for line in points]
    assert filled == [True, True, False, False, False, False]
    heights = [round(float(line.get_ydata()[0])) for line in points]
    assert heights == [2, 2, 2, 1, 1, 1]


def test_rows_have_their_names_and_the_limit_is_said() -> None:
    (axes,) = secret_figure.draw(GROUPS, 29.9).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["never seen (chance)", "once", "many"]
    assert any("29.9" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_it_is_drawn_from_an_audit(tmp_path: Path, kind: str) -> None:
    rows = [
        {"model": name, "exposure": bits, "extracted": "yes" if out else "no"}
        for name, points in GROUPS.items()
        for bits, out in points
    ]
    path = tmp_path / f"picture.{kind}"
    secret_figure.draw_file({"details": rows, "settings": {"max_exposure": 29.9}}, path)
    assert path.stat().st_size > 3000


def test_one_secret_a_model_is_enough() -> None:
    secret_figure.draw({"many": [(5.0, False)]}, 10.0)
