"""Pictures of audits: curves and secrets where the numbers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tacit.accounting import profile
from tacit.accounting.serialization import from_dict
from tacit.recipes.auditing.audit_file import read_plain
from tacit.reports import audit_figure
from tacit.reports.audit_figure import draw_file, draw_roc, limits

from .audit_example import example

if TYPE_CHECKING:
    from pathlib import Path


# ---- The picture of an audit: curves where the numbers are, on logarithmic axes


@pytest.fixture(scope="module")
def plain(whole: Any) -> dict[str, Any]:
    return example(*whole[:2])


def test_curves_bands_and_limits_are_drawn(plain: dict[str, Any], whole: Any) -> None:
    audit = read_plain(plain)
    statement = whole[1]
    most = limits(statement.event, statement.adjacency)
    axes = Figure().subplots()
    draw_roc(axes, audit.attacks, most)
    guessing, limit, *curves = axes.get_lines()
    assert np.array_equal(*guessing.get_data())
    curve = profile(from_dict(statement.event), statement.adjacency)
    for rate, true in list(zip(*limit.get_data(), strict=True))[::20]:
        assert true == pytest.approx(1.0 - curve.tradeoff(rate), rel=0.03)
    assert len(curves) == len(axes.collections) == 2
    for line, attack in zip(curves, audit.attacks, strict=True):
        x, y = line.get_data()
        assert x[0] == 1.0 / 300  # below it no rate of false alarms can be observed
        assert x[-1] == 1.0
        seen = {(fpr, tpr) for fpr, tpr, _, _ in attack.roc if fpr > 1.5 / 300}
        assert seen <= set(zip(x.tolist(), y.tolist(), strict=True))
    assert axes.get_xscale() == axes.get_yscale() == "log"


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_file_of_its_own(plain: dict[str, Any], tmp_path: Path, name: str) -> None:
    draw_file(plain, tmp_path / name)
    again = tmp_path / f"again-{name}"
    draw_file(plain, again)
    assert (tmp_path / name).stat().st_size > 5000
    assert (tmp_path / name).read_bytes() == again.read_bytes()


def test_without_a_claim_there_is_no_limit(plain: dict[str, Any], tmp_path: Path) -> None:
    draw_file(plain | {"claim": None, "verdict": None}, tmp_path / "a.svg")
    assert "allows" not in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("evil", [r"$\frac{$ $ _<b>", "_hidden", "a\x1b[2J <b> $\\undefined$"])
def test_a_name_is_letters_and_no_formula(plain: dict[str, Any], tmp_path: Path, evil: str) -> None:
    attacks = [one | {"name": evil} for one in plain["attacks"]]
    draw_file(plain | {"attacks": attacks}, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "\x1b" not in drawn
    assert "<b>" not in drawn


# ---- The picture of secrets: every one is in it, at its place

GROUPS = {
    "many": [(29.9, True), (28.9, True), (12.0, False)],
    "once": [(0.2, False), (3.0, False), (1.0, False)],
}


def test_every_secret_is_a_point() -> None:
    (axes,) = audit_figure.draw_secrets(GROUPS, 29.9).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in points] == [29.9, 28.9, 12.0, 0.2, 3.0, 1.0]
    filled = [line.get_markerfacecolor() != "white" for line in points]
    assert filled == [True, True, False, False, False, False]
    heights = [round(float(line.get_ydata()[0])) for line in points]
    assert heights == [2, 2, 2, 1, 1, 1]


def test_rows_have_their_names_and_the_limit_is_said() -> None:
    (axes,) = audit_figure.draw_secrets(GROUPS, 29.9).axes
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
    audit_figure.draw_secrets_file({"details": rows, "settings": {"max_exposure": 29.9}}, path)
    assert path.stat().st_size > 3000


def test_one_secret_a_model_is_enough() -> None:
    audit_figure.draw_secrets({"many": [(5.0, False)]}, 10.0)
