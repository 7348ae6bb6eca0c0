"""The plan's picture: a real file of its kind, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from tacit.reports import plan_figure
from tacit.reports.plan_summary import AccountedRun, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.reports.plan_summary import PlanSummary

SETTING = AccountedRun(rate=0.05, steps=1000, sigma=4.0, delta=1e-5)


@pytest.fixture(scope="module")
def summary() -> PlanSummary:
    return summarise(SETTING)


@pytest.fixture(scope="module")
def figure(summary) -> Figure:
    return plan_figure.draw(summary)


@pytest.fixture
def drawn(summary, figure, monkeypatch) -> PlanSummary:
    """The summary, for which the figure is at hand: ``write`` need not draw it again."""
    monkeypatch.setattr(plan_figure, "draw", lambda _: figure)
    return summary


def test_png_is_a_png_of_the_promised_size(drawn, tmp_path):
    picture = tmp_path / "plan.png"
    plan_figure.write(drawn, picture)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
    assert (width, height) == (2400, 864)


def test_svg_is_well_formed(drawn, tmp_path):
    picture = tmp_path / "deep" / "plan.svg"
    plan_figure.write(drawn, picture)
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_failure_leaves_the_old_picture_and_no_other_file(drawn, tmp_path, monkeypatch):
    picture = tmp_path / "plan.png"
    picture.write_bytes(b"old")

    def half(_figure: object, path: str, **_: object) -> None:
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan_figure.Figure, "savefig", half)
    with pytest.raises(OSError, match="No space"):
        plan_figure.write(drawn, picture)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("plan.png", b"old")]


def test_panels_show_the_accountants_the_curve_and_the_attacker(figure):
    over_time, curve, attacker = figure.axes
    named = {text.get_text().split()[0] for text in over_time.texts}
    assert {"exact", "rdp", "moments"} <= named
    assert any("not a bound" in text.get_text() for text in over_time.texts)
    assert curve.get_yscale() == "log"
    limit, guessing = attacker.lines[0], attacker.lines[1]
    assert all(limit.get_ydata() >= guessing.get_ydata())


def test_the_attackers_line_is_the_curves_own_limit(summary, figure):
    line = figure.axes[2].lines[0]
    for false, true in summary.odds.catches:
        drawn = float(plan_figure.np.interp(false, line.get_xdata(), line.get_ydata()))
        assert drawn == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize(
    "setting",
    [
        replace(SETTING, steps=1),
        replace(SETTING, rate=1.0, steps=2),
        replace(SETTING, rate=0.0),
        replace(SETTING, delta=1e-20),
    ],
    ids=["one step", "no sampling", "nobody sampled", "tiny delta"],
)
def test_unusual_runs_can_be_drawn(setting):
    assert len(plan_figure.draw(summarise(setting)).axes) == 3


@pytest.mark.parametrize("gap", [0.05, 0.3])
def test_labels_stand_apart_and_in_order(gap):
    placed = plan_figure._apart([0.1, 0.11, 0.12, 0.5, 0.9], gap)
    assert placed == sorted(placed)
    assert min(b - a for a, b in pairwise(placed)) >= gap - 1e-12
