"""Interactive-GNMax: its law on tiny crowds for all neighbours, its charge, its run."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from tacit.accounting import delta, epsilon
from tacit.errors import InvalidArgument
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import InteractiveGNMax, Votes, label_interactively

SETTING = InteractiveGNMax(threshold=2.0, screening_sigma=1.5, sigma=1.2, confidence=0.6)


def away(counts, scores):
    return max(counts - counts.sum() * scores)


def law(counts, scores, setting=SETTING, far=away):
    """The chance of each outcome of one query: an answer, a reinforced label, or nothing."""
    counts = np.asarray(counts, dtype=float)
    asked = float(ndtr((far(counts, scores) - setting.threshold) / setting.screening_sigma))
    x = np.linspace(-12.0, 24.0, 721)
    wins = []
    for j, own in enumerate(counts):
        density = norm.pdf(x, own, setting.sigma)
        for k, other in enumerate(counts):
            density = density if k == j else density * ndtr((x - other) / setting.sigma)
        wins.append(float(np.trapezoid(density, x)))
    kept = "reinforced" if scores.max() > setting.confidence else "nothing"
    return np.array([*(asked * np.array(wins) / sum(wins)), 1 - asked]), kept


def neighbours(teachers, classes):
    rows = [one for one in product(range(teachers + 1), repeat=classes) if sum(one) == teachers]
    for one, other in product(rows, rows):
        if sum(abs(a - b) for a, b in zip(one, other, strict=True)) == 2:
            yield np.array(one), np.array(other)


STUDENTS = [np.array(p) for p in ([1 / 3] * 3, [0.8, 0.1, 0.1], [0.0, 1.0, 0.0], [0.3, 0.0, 0.7])]


def divergence(p, q, order):
    return math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)


def worst_ratio(far):
    """The largest Rényi divergence over what is charged, by all neighbours and students."""
    found = 0.0
    for order in (1.5, 2.0, 4.0):
        charged = order / (2 * SETTING.screening_sigma**2) + order / SETTING.sigma**2
        for one, other in neighbours(4, 3):
            for scores in STUDENTS:
                p, q = law(one, scores, far=far)[0], law(other, scores, far=far)[0]
                found = max(found, divergence(p, q, order) / charged)
    return found


def test_no_neighbours_are_further_apart_than_charged():
    assert worst_ratio(away) <= 1.0


def test_a_check_alone_costs_a_gaussian_of_sensitivity_one_and_no_less():
    """Two outcomes of a Gaussian at distance 1; a check that moved by 2 would be found out."""

    def worst(far, at):
        found = 0.0
        for one, other in neighbours(7, 3):
            for scores in STUDENTS:
                p, q = (
                    float(ndtr((far(n.astype(float), scores) - 2.0) / 1.5)) for n in (one, other)
                )
                found = max(found, p - math.exp(at) * q, (1 - p) - math.exp(at) * (1 - q))
        return found

    for at in (0.0, 0.2, 0.5):
        charged = delta(SETTING.charges.screening, at)
        assert worst(away, at) <= charged
        assert worst(lambda n, p: np.abs(n - n.sum() * p).sum(), at) > charged
    assert worst(away, 0.0) > 0.8 * delta(SETTING.charges.screening, 0.0)


@pytest.mark.parametrize("runs", [1000, pytest.param(2000, marks=pytest.mark.slow)])
def test_outcomes_have_their_law(runs):
    """A thousand equal queries, against the law above; two thousand in ``make test-slow``."""
    counts, scores = np.array([6, 3, 1]), np.array([0.3, 0.65, 0.05])
    setting = InteractiveGNMax(threshold=2.5, screening_sigma=2.0, sigma=3.0, confidence=0.6)
    told, taught = label_interactively(
        Votes(np.tile(counts, (runs, 1))),
        setting,
        lambda labels: np.tile(scores, (len(labels), 1)),
        every=runs,
        stream=UnsafeSeededStream(1, "test"),
    )
    expected, _ = law(counts, scores, setting)
    by_teachers = np.bincount(told.labels[taught], minlength=3)
    found = np.array([*by_teachers, runs - taught.sum()])
    assert (told.labels[~taught] == 1).all()  # the student's own label, reinforced
    statistic = float(((found - runs * expected) ** 2 / (runs * expected)).sum())
    assert statistic < 40  # χ² with 3 degrees of freedom: 1e-8
    wrong, _ = law(counts, scores[[1, 0, 2]], setting)  # another student's
    assert float(((found - runs * wrong) ** 2 / (runs * wrong)).sum()) > 80


def test_an_unsure_student_is_not_reinforced():
    told, taught = label_interactively(
        Votes(np.tile([9, 1], (4, 1))),
        InteractiveGNMax(threshold=1000.0, screening_sigma=1.0, sigma=1.0, confidence=0.9),
        lambda _: np.array([[0.9, 0.1], [0.95, 0.05], [0.05, 0.95], [0.5, 0.5]]),
        every=2,
        stream=UnsafeSeededStream(0, "test"),
    )
    assert told.labels.tolist() == [-1, 0, 1, -1]
    assert not taught.any()
    assert told.asked.all()


def test_the_student_is_asked_anew_with_what_was_told():
    seen = []

    def student(labels):
        seen.append(labels.tolist())
        return np.full((len(labels), 2), 0.5)

    setting = InteractiveGNMax(threshold=10.0, screening_sigma=0.1, sigma=0.1, confidence=0.9)
    told, taught = label_interactively(
        Votes(np.tile([90, 10], (5, 1))),
        setting,
        student,
        every=2,
        answers=4,
        stream=UnsafeSeededStream(0, "test"),
    )
    assert seen == [[-1] * 5, [0, 0, -1, -1, -1]]
    assert told.labels.tolist() == [0, 0, 0, 0, -1]  # the cap ends it
    assert taught.tolist() == [True] * 4 + [False]
    assert told.complete


def test_charged_before_and_resumed_without_asking_twice(tmp_path):
    votes = Votes(np.tile([60, 25, 15], (8, 1)))
    setting = InteractiveGNMax(threshold=20.0, screening_sigma=1.0, sigma=1.0, confidence=0.5)
    budget = Ledger(f"sqlite:///{tmp_path / 'a.db'}").open("b", 100.0, 1e-5, composition="renyi")

    def student(labels):
        return np.tile([0.1, 0.8, 0.1], (len(labels), 1))

    class CutOff(Exception):
        pass

    def progress(asked, _):
        if asked == 3:
            raise CutOff

    given = {"every": 4, "budget": budget, "journal": tmp_path / "journal"}
    with pytest.raises(CutOff):
        label_interactively(votes, setting, student, progress=progress, **given)
    spent = budget.spent().epsilon
    told, taught = label_interactively(votes, setting, student, **given)
    assert told.labels.tolist() == [0] * 8
    assert taught.all()
    assert budget.spent().epsilon == spent  # the whole was charged at once, and once
    assert budget.reservation(told.entry).granted == 16
    assert told.event == setting.declared(queries=8)


def test_what_is_declared():
    setting = InteractiveGNMax(threshold=100, screening_sigma=150, sigma=40, confidence=0.9)
    event = setting.declared(queries=640, answers=286)
    assert epsilon(event, 1e-5) == pytest.approx(2.5426, abs=5e-5)  # as Confident-GNMax
    assert epsilon(event, 1e-5, adjacency="replace-one") == epsilon(event, 1e-5)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((2, 3)) / 3, "shape"),
        (np.ones((2, 2)), "add up to 1"),
        (np.array([[np.nan, 1.0], [0.5, 0.5]]), "add up to 1"),
        (np.array([[-0.5, 1.5], [0.5, 0.5]]), "zero or above"),
    ],
)
def test_scores_are_checked(scores, message):
    with pytest.raises(InvalidArgument, match=message):
        label_interactively(Votes(np.array([[3, 1], [2, 2]])), SETTING, lambda _: scores, every=1)


@pytest.mark.parametrize("name", ["threshold", "screening_sigma", "sigma", "confidence"])
def test_settings_are_checked(name):
    good = {"threshold": 2.0, "screening_sigma": 1.5, "sigma": 1.2, "confidence": 0.6}
    with pytest.raises(InvalidArgument, match=name):
        InteractiveGNMax(**(good | {name: -1.0}))
