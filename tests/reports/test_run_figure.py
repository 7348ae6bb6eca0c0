"""The drawings: SVG that parses, in the page's colours, with nothing of the run's texts in it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from tacit.reports import run_figure
from tacit.reports.run_figure import drawings
from tacit.reports.run_folder import read
from tacit.reports.run_summary import summarise

NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn(summary) -> dict[str, str]:
    return drawings(summary)


def test_all_three_are_well_formed(drawn):
    assert list(drawn) == ["accuracy", "curve", "attack"]
    for text in drawn.values():
        root = ElementTree.fromstring(text)
        assert root.tag == f"{NAMESPACE}svg"
        assert {"width", "height"} & set(root.keys()) == set()
        assert root.get("viewBox")
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert not re.search(r"<!DOCTYPE|<\?xml|<metadata|http-equiv|<script|<image", text)


def test_the_last_word_of_an_axis_is_not_cut(drawn):
    width = float(ElementTree.fromstring(drawn["attack"]).get("viewBox", "").split()[2])
    words = re.findall(r'text-anchor: middle[^>]* x="([\d.]+)"[^>]*>(\d+ %)<', drawn["attack"])
    place, longest = words[-1]
    assert longest == "100 %"
    assert float(place) + 0.5 * len(longest) * 7.0 < width  # a letter of 11 px is at most 7 wide


def test_colours_are_the_pages(drawn):
    for text in drawn.values():
        left = set(re.findall(r"#[0-9a-f]{6}\b", text)) - {"#000000"}
        assert left == set(), "a colour that does not change in the dark"
        assert "var(--accent)" in text


def test_identifiers_are_each_drawings_own(drawn):
    found: dict[str, set[str]] = {
        name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in drawn.items()
    }
    for name, own in found.items():
        assert own
        assert all(one.startswith(f"{name}-") for one in own)
        used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawn[name]))
        assert {one for pair in used for one in pair if one} <= own


def test_the_figures_are_in_the_drawings(drawn):
    assert "released model 90.00 %" in drawn["accuracy"]
    assert "◆ published" in drawn["accuracy"]
    assert "ε = 1.659, δ = 1e-5" in drawn["curve"]
    assert re.search(r"[\d.]+ % at 1 %", drawn["attack"])


def test_texts_of_the_run_are_not_drawn(make):
    evil = "<script>$x$</script>"
    anchors = ({"epsilon": 1, "accuracy": 90.0, "source": evil, "shortcuts": evil},)
    told: dict[str, Any] = {"anchors": anchors, "summary": evil, "device": evil}
    for text in drawings(summarise(read(make(told)))).values():
        assert "script" not in text


def test_the_same_run_is_drawn_the_same(summary, drawn):
    assert drawings(summary) == drawn


def test_what_there_is_nothing_to_draw_for_is_left_out(make):
    assert list(drawings(summarise(read(make(lines=[]))))) == ["curve", "attack"]


def test_a_history_without_epsilons_is_drawn_against_steps(summary):
    unknown = tuple(replace(one, epsilon=None) for one in summary.moments)
    text = run_figure.drawings(replace(summary, moments=unknown))["accuracy"]
    assert "steps" in text
    assert "ε spent" not in text
