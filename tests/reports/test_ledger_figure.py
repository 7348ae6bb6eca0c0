"""The burn-down's picture: bars that join, a real file of its kind, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from tacit.accounting import Gaussian, PoissonSampled, PureDp, Repeated
from tacit.ledger import Ledger, Release
from tacit.reports import ledger_figure
from tacit.reports.ledger_summary import account

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.reports.ledger_summary import BudgetAccount

RUN = Release(Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100))


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> BudgetAccount:
    """A budget with a run under way, one that was taken back, a release and an amendment."""
    folder = tmp_path_factory.mktemp("ledger")
    with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        budget = ledger.open("patients", 4.0, 1e-5)
        budget.reserve(RUN, steps=100, label="training").lease(25)
        budget.reserve(Release(Gaussian(5.0)), label="never begun").end()
        budget.charge(PureDp(0.5), label="mean age")
        budget.amend(epsilon=8.0, reason="a test")
        return account(ledger.history("patients"))


def opened(folder: Path, composition: str = "basic", charges: int = 0) -> BudgetAccount:
    with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        budget = ledger.open("data", 4.0, 1e-5, composition=composition)
        for number in range(charges):
            budget.charge(PureDp(0.01), label=f"count {number}")
        return account(ledger.history("data"))


def test_png_is_a_png_of_the_promised_size(used, tmp_path):
    picture = tmp_path / "burn.png"
    ledger_figure.write(used, picture)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
    assert (width, height) == (2400, 864)


def test_svg_is_well_formed(used, tmp_path):
    picture = tmp_path / "deep" / "burn.svg"
    ledger_figure.write(used, picture)
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_failure_leaves_the_old_picture_and_no_other_file(used, tmp_path, monkeypatch):
    picture = tmp_path / "burn.png"
    picture.write_bytes(b"old")

    def half(_figure: object, path: str, **_: object) -> None:
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_figure.Figure, "savefig", half)
    with pytest.raises(OSError, match="No space"):
        ledger_figure.write(used, picture)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("burn.png", b"old")]


def test_every_reservation_is_labelled_and_each_bar_begins_where_the_last_ended(used):
    rows = ledger_figure.rows_of(used)
    assert [row.label for row in rows] == [
        "3  training",
        "5  never begun",
        "6  never begun, unused",
        "7  mean age",
        "8  limits amended",
    ]
    assert rows[0].before == 1.0
    assert all(one.after == other.before for one, other in pairwise(rows))
    assert rows[-1].after == used.budget.remaining.share
    assert "25 of 100 steps" in rows[0].figures
    assert (rows[0].done, rows[3].done, rows[4].done) == (0.25, 1.0, None)


def test_the_drawn_bars_are_the_rows(used):
    charges, _ = ledger_figure.draw(used).axes
    rows = ledger_figure.rows_of(used)
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in charges.patches]
    for row in rows:
        assert any(
            span == pytest.approx((min(row.before, row.after), max(row.before, row.after)))
            for span in spans
        )
    whole = rows[0].before - rows[0].after
    assert spans[1] == pytest.approx((1.0 - 0.25 * whole, 1.0))
    assert [label.get_text() for label in charges.get_yticklabels()] == [
        *(row.label for row in rows),
        "left",
    ]


def test_the_line_over_time_is_the_burn_down(used):
    _, times = ledger_figure.draw(used).axes
    shares = [one.share for one in used.changes]
    assert list(times.lines[0].get_ydata()) == [*shares, shares[-1]]
    dashed = times.lines[2]
    assert list(dashed.get_ydata())[:-1] == [one.delta_share for one in used.changes]


def test_a_budget_whose_rule_adds_up_no_delta_has_one_line(tmp_path):
    _, times = ledger_figure.draw(opened(tmp_path, "renyi", 3)).axes
    assert len(times.lines) == 2  # the line and its points
    assert not times.texts


def test_a_budget_that_was_only_opened_can_be_drawn(tmp_path):
    charges, times = ledger_figure.draw(opened(tmp_path)).axes
    assert [label.get_text() for label in charges.get_yticklabels()] == ["left"]
    assert list(times.lines[0].get_ydata()) == [1.0, 1.0]


def test_of_many_charges_the_earliest_share_a_row(tmp_path):
    found = opened(tmp_path, charges=40)
    rows = ledger_figure.rows_of(found)
    assert len(rows) == ledger_figure.MOST_ROWS + 1
    assert rows[0].label == f"the first {40 - ledger_figure.MOST_ROWS} changes"
    assert rows[0].after == found.changes[40 - ledger_figure.MOST_ROWS].share
    assert rows[-1].label.endswith("count 39")


def test_a_clock_that_was_set_back_can_be_drawn(used, tmp_path):
    first, *rest = used.changes
    late = replace(first, at="2030-01-01T00:00:00+00:00")
    figure = ledger_figure.draw(replace(used, changes=(late, *rest)))
    low, high = figure.axes[1].get_xlim()
    moments = figure.axes[1].lines[0].get_xdata()
    assert low < min(moments) < max(moments) < high
    ledger_figure.write(replace(used, changes=(late, *rest)), tmp_path / "burn.png")


@pytest.mark.parametrize("name", [r"$\frac{$", "数据 🙂", "a" * 200, "x_{y}^2 \\ %"])
def test_any_name_can_be_drawn(tmp_path, name):
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ledger.open(name, 4.0, 1e-5).charge(PureDp(0.5), label=name)
        found = account(ledger.history(name))
    ledger_figure.write(found, tmp_path / "burn.svg")
    figure = ledger_figure.draw(found)
    shown = name if len(name) <= ledger_figure.LONGEST else f"{name[: ledger_figure.LONGEST - 1]}…"
    assert f"Budget {shown} " in figure.get_suptitle()
