"""Page and Markdown say everything that a report must, and every bound on its safe side."""

from __future__ import annotations

import html
import math
import re
import shlex
from typing import Any

import pytest

from tacit.accounting import ApproxDp, Exponential, epsilon
from tacit.accounting.serialization import as_dict
from tacit.cli import main
from tacit.reports.run_content import Code, markdown, page
from tacit.reports.run_folder import read
from tacit.reports.run_sections import report
from tacit.reports.run_summary import summarise

# What a report must tell, and how it does so of the example in conftest.py.
MUST_APPEAR = {
    "accuracy": "90.00 %",
    "its error": "standard error 1.50 points",
    "epsilon": "ε = 1.659",
    "delta": "δ = 1e-5",
    "in plain words": "wrongly names 1 of 100 that were not in the data. Then they find at most",
    "what is not hidden": "What the data say about everybody is not hidden",
    "the event": "The event is all that the training released about the data",
    "in words for one person": "the probability of that outcome is at most",
    "expected utility": "Score whatever may come of this release for anyone, from 0 (worst) to 1",
    "history": "ε spent by then, at most",
    "an epoch": "86.00 %",
    "privacy curve": "The privacy curve",
    "other deltas": "1e-10",
    "certified bracket": "the event's ε lies between",
    "accountant": "by the accountant 'exact'",
    "mu": "It is μ-GDP with μ = ",
    "attack at 1 %": "an attacker who guesses with 1 false alarm in 100 finds at most",
    "attack at 0.1 %": "an attacker who guesses with 1 false alarm in 1,000 finds at most",
    "threat model": "whoever sees every step",
    "unit": "one example",
    "adjacency": "two data sets are neighbours if one example is added or removed",
    "released": "the final model",
    "mechanism": "40 times (on a Poisson sample of rate 0.25: Gaussian noise of σ = 4 times",
    "sampling used": "Poisson, as drawn",
    "sampling assumed": "each record is in each sample with probability 0.25, independently of",
    "noise": "fast noise",
    "randomness": "Philox in floating point",
    "steps": "40 of 40 taken",
    "plan: lot": "lot size, on average",
    "plan: clip": "noise on each coordinate of the sum",
    "free preprocessing": "costs nothing, for it is the same for all data: inputs divided by 16",
    "charged preprocessing": "covered: a noisy mean (Gaussian noise of σ = 20 times",
    "tuning": "on other images; not charged",
    "held-out": "not covered: accuracy on them is published as it was measured",
    "ledger": "claimed: entry 7",
    "assumptions": "rows are independent",
    "not promised": "anything about losses",
    "anchor": "Doe 2020",
    "its accuracy": "91.5 %",
    "its shortcuts": "shuffled lots",
    "how to check": "tacit report .",
    "in words": "tacit.Statement.from_json(open('statement.json'",
    "recipe": "digits: a summary of one line",
    "command": "tacit train digits --epsilon 2",
    "settings": "setting: head",
    "checksum": "sha256:12",
    "version of tacit": "version: tacit",
    "version of scipy": "version: scipy",
    "notes": "weights are averaged",
    "device": "cpu",
}


def forms(summary: Any) -> dict[str, str]:
    """The texts of both forms, as a reader sees them."""
    content = report(summary)
    seen = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page(content, {}), flags=re.DOTALL)
    told = re.sub(r"\\(.)", r"\1", html.unescape(markdown(content)))
    return {"page": " ".join(html.unescape(seen).split()), "markdown": " ".join(told.split())}


def test_everything_that_must_appear_does(summary):
    for form, text in forms(summary).items():
        missing = {name for name, words in MUST_APPEAR.items() if words not in text}
        assert not missing, form
        assert summary.files.record.configuration in text


def test_a_reader_learns_what_it_means_before_how_it_is_proved(summary):
    heads = [section.title for section in report(summary, drawn=False).sections]
    assert heads[:2] == [
        "What this means for one person",
        "What is proved, and what is only claimed",
    ]


def test_the_plain_words_have_the_figure_of_the_attackers(summary):
    text = markdown(report(summary, drawn=False))
    (plain,) = re.findall(r"Then they find at most ([\d.]+) of 100 that were", text)
    (listed,) = re.findall(r"1 false alarm in 100 finds at most ([\d.]+) of 100", text)
    assert plain == listed
    assert float(plain) / 100 >= summary.figures.attack[0][1]


def test_every_part_of_the_statement_appears(summary):
    statement = summary.statement
    for text in forms(summary).values():
        for words in (statement.threat_model, statement.sampling, statement.noise):
            assert words in text
        for words in (*statement.releases, *statement.assumptions, *statement.not_promised):
            assert words in text


def test_upper_bounds_are_rounded_up(summary):
    text = forms(summary)["markdown"]
    for false, found in re.findall(r"1 false alarm in ([\d,]+) finds at most ([\d.]+) of", text):
        among = int(false.replace(",", ""))
        (exact,) = (true for rate, true in summary.figures.attack if round(1 / rate) == among)
        assert exact <= float(found) / among <= exact * 1.01
    told = float(re.search(r"with ε = ([\d.]+) and δ", text)[1])
    assert summary.statement.epsilon <= told <= summary.statement.epsilon * 1.001
    most, least = re.search(
        r"at most ([\d.]+) \(e\^ε\).*at least ([\d.]+) \(e\^-ε\)", text
    ).groups()
    assert math.exp(summary.statement.epsilon) <= float(most)
    assert float(least) <= math.exp(-summary.statement.epsilon)


def test_the_words_of_a_wrong_reading_are_not_there(summary):
    for text in forms(summary).values():
        assert "with probability 1" not in text
        assert "probability 1-δ" not in text
        assert "anonym" not in text


def test_the_command_for_the_plan_gives_the_same_epsilon(make, capsys):
    plan: dict[str, Any] = {"preprocessing": ()}
    folder = make({}, plan | {"event": _plan_event(), "epsilon": 1.8})
    content = report(summarise(read(folder)))
    (line,) = (
        line
        for section in content.sections
        for block in section.blocks
        if isinstance(block, Code)
        for line in block.lines
        if line.startswith("tacit plan")
    )
    assert main([*shlex.split(line)[1:], "--json"]) == 0
    found = float(re.search(r'"epsilon": ([\d.]+),\s*"interval"', capsys.readouterr().out)[1])
    assert found == pytest.approx(summarise(read(folder)).figures.upper, rel=1e-9)


def _plan_event() -> dict[str, Any]:
    from tacit.training.plan import Plan  # noqa: PLC0415

    plan = Plan(examples=1000, lot_size=250, steps=40, noise_multiplier=4.0, clip=1.0)
    return as_dict(plan.event)


def test_with_preprocessing_no_plan_of_its_own_is_offered(summary):
    assert "tacit plan" not in forms(summary)["markdown"]


def test_warnings(make):
    told = {"epsilon": 0.5, "delta": 0.01}
    lines: list[dict[str, Any]] = []
    stated = {"void": True}
    for text in forms(summarise(read(make(told, stated, lines)))).values():
        assert "This voids the guarantee" in text
        assert "digits: 90.00 % without a guarantee" in text
        assert "was to spend ε = 0.5 and spent more" in text
        assert "δ = 0.01 is not below 1/1,000" in text
        assert "has no epochs" in text


def test_a_release_without_a_guarantee_says_so(make):
    stated = _plain_event(ApproxDp(1.0, 0.5), math.inf)
    for text in forms(summarise(read(make({"plan": None}, stated, [])))).values():
        assert "This release has no guarantee: its ε at δ = 1e-5 is infinite." in text
        assert "digits: 90.00 % without a guarantee" in text
        assert "differentially private with" not in text


def test_limits_from_one_pair_are_named_as_such(make):
    stated = _plain_event(Exponential(0.5), epsilon(Exponential(0.5), 1e-5))
    for text in forms(summarise(read(make({"plan": None, "anchors": ()}, stated, [])))).values():
        assert "follow from the one pair (ε, δ)" in text
        assert "No μ is claimed" in text
        assert "Nobody has published a figure" in text


def _plain_event(event: Any, loss: float) -> dict[str, Any]:
    return {
        "event": as_dict(event), "epsilon": loss, "plan": None, "steps_planned": None,
        "steps_taken": None, "preprocessing": (),
    }  # fmt: skip


def test_a_search_is_told_with_what_it_chose(make):
    told = {"plan": None, "search": {"candidates": {"lr": [0.5, 2.0]}}, "winner": {"lr": 2.0}}
    stated = _plain_event(Exponential(0.5), epsilon(Exponential(0.5), 1e-5))
    for text in forms(summarise(read(make(told, stated)))).values():
        assert "chosen: lr" in text
        assert '{"candidates": {"lr": [0.5, 2.0]}}' in text
        assert "no moment of it has an ε of its own" in text
