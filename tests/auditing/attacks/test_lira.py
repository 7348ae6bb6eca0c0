"""LiRA against SciPy's densities, loops, and the attack that is known to be the best there is."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from tacit.auditing.attacks import Outputs, Roc, Shadows, lira, lira_each, phi, split
from tacit.errors import InvalidArgument

from .gaussians import shadows_of, toy


def random_shadows(models: int = 12, views: int = 1, examples: int = 8) -> Shadows:
    draw = np.random.default_rng(1)
    members = draw.random((models, examples)) < 0.5
    members[: 2 * views + 2] = [[True]] * (views + 1) + [[False]] * (views + 1)
    scales = draw.uniform(0.5, 3.0, size=(examples, views))
    sure = scales * draw.normal(size=(models, examples, views)) + members[..., None]
    return shadows_of(sure, members)


def random_target(shadows: Shadows) -> Outputs:
    draw = np.random.default_rng(2)
    return Outputs(draw.normal(size=shadows.logits.shape[1:]), shadows.labels)


def pooled(shadows: Shadows, inside: bool, *, joint: bool) -> np.ndarray:
    """The covariance of all deviations from the means of their examples, one after another."""
    values, rest, freedom = phi(shadows), [], 0
    for example in range(values.shape[1]):
        rows = values[shadows.members[:, example] == inside, example]
        rest += list(rows - rows.mean(axis=0))
        freedom += len(rows) - 1
    found = sum(np.outer(row, row) for row in rest) / freedom
    return np.asarray(found if joint else np.diag(np.diag(found)))


def by_scipy(
    target: Outputs, shadows: Shadows, *, online: bool, fixed_variance: bool, joint: bool
) -> list[float]:
    values, asked, scores = phi(shadows), phi(target), []
    for example in range(values.shape[1]):
        sides = {}
        for inside in (True, False):
            rows = values[shadows.members[:, example] == inside, example]
            covariance = (
                pooled(shadows, inside, joint=joint)
                if fixed_variance
                else np.cov(rows.T).reshape(values.shape[2], -1)
            )
            if not joint:
                covariance = np.diag(np.diag(covariance))
            sides[inside] = multivariate_normal(rows.mean(axis=0), covariance)
        if online:
            scores.append(
                float(sides[True].logpdf(asked[example]) - sides[False].logpdf(asked[example]))
            )
        else:  # the generalised least-squares estimate of a common rise, in standard errors
            inverse, one = np.linalg.inv(sides[False].cov), np.ones(values.shape[2])
            away = asked[example] - sides[False].mean
            scores.append(float(one @ inverse @ away / np.sqrt(one @ inverse @ one)))
    return scores


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("fixed_variance", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_against_scipy(views: int, online: bool, fixed_variance: bool, joint: bool) -> None:
    shadows = random_shadows(views=views)
    target = random_target(shadows)
    found = lira(target, shadows, online=online, fixed_variance=fixed_variance, joint=joint)
    expected = by_scipy(target, shadows, online=online, fixed_variance=fixed_variance, joint=joint)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("fixed_variance", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_each_model_with_the_others(online: bool, fixed_variance: bool, joint: bool) -> None:
    shadows = random_shadows(models=20, views=2, examples=40)
    found = lira_each(shadows, online=online, fixed_variance=fixed_variance, joint=joint)
    for model in range(6, 20):  # those before are complements of one another
        others = np.arange(20) != model
        rest = Shadows(shadows.logits[others], shadows.labels, shadows.members[others])
        expected = lira(
            shadows.model(model), rest, online=online, fixed_variance=fixed_variance, joint=joint
        )
        np.testing.assert_allclose(found[model], expected, rtol=1e-8, atol=1e-8)


def test_a_complement_is_left_out_too() -> None:
    shadows = toy(1, models=12, examples=30, shift=1.0)
    found = lira_each(shadows, fixed_variance=True)
    rest = Shadows(shadows.logits[2:], shadows.labels, shadows.members[2:])
    expected = lira(shadows.model(1), rest, fixed_variance=True)
    np.testing.assert_allclose(found[1], expected, rtol=1e-9)


def test_the_sum_over_views_is_the_sum_of_the_views() -> None:
    shadows = random_shadows(views=3)
    target = random_target(shadows)
    one_by_one = sum(
        lira(
            Outputs(target.logits[:, view], target.labels),
            Shadows(shadows.logits[:, :, view], shadows.labels, shadows.members),
        )
        for view in range(3)
    )
    np.testing.assert_allclose(lira(target, shadows), one_by_one, rtol=1e-9)


def test_one_view_twice_is_one_view() -> None:
    """Together they say what one says; as if independent they would say it twice."""
    shadows = random_shadows()
    target = random_target(shadows)
    twice = Shadows(np.repeat(shadows.logits, 2, axis=2), shadows.labels, shadows.members)
    target_twice = Outputs(np.repeat(target.logits, 2, axis=1), target.labels)
    alone = lira(target, shadows, fixed_variance=True)
    together = lira(target_twice, twice, fixed_variance=True, joint=True)
    # The ridge on a singular covariance moves both densities alike.
    np.testing.assert_allclose(together - together[0], alone - alone[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lira(target_twice, twice), 2 * lira(target, shadows), rtol=1e-9)


def test_offline_is_the_paper_s_one_sided_test() -> None:
    shadows = random_shadows()
    target = random_target(shadows)
    found = lira(target, shadows, online=False)
    values, asked = phi(shadows)[..., 0], phi(target)[:, 0]
    for example in range(8):
        rows = values[~shadows.members[:, example], example]
        above = norm.sf(asked[example], rows.mean(), rows.std(ddof=1))
        assert norm.cdf(found[example]) == pytest.approx(1.0 - above, rel=1e-9)


@pytest.mark.parametrize("fixed_variance", [True, False])
def test_the_curve_is_that_of_neyman_and_pearson(fixed_variance: bool) -> None:
    """With N(m, 1) and N(m + 1.5, 1) no attack is better than Φ(Φ⁻¹(FPR) + 1.5).

    60,000 scores a side; 400 models know each mean to 0.07, which costs less than chance.
    """
    shadows = toy(1, models=400, examples=300, shift=1.5)
    roc = Roc(split(lira_each(shadows, fixed_variance=fixed_variance), shadows.members))
    assert roc.auc().value == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=0.004)
    for fpr, within in ((0.1, 0.012), (0.01, 0.014), (0.001, 0.012)):
        best = norm.cdf(norm.ppf(fpr) + 1.5)
        assert roc.tpr_at(fpr).value == pytest.approx(best, abs=within)
        assert roc.tpr_at(fpr, 0.9999).lower < best < roc.tpr_at(fpr, 0.9999).upper


def test_unequal_variances_need_the_ratio_and_not_the_rise() -> None:
    """Members that vary less are found by LiRA as by the true densities, not by φ alone."""
    draw = np.random.default_rng(1)
    members = draw.random((300, 200)) < 0.5
    members[1::2] = ~members[0::2]
    hard = 3.0 * draw.normal(size=200)
    sure = hard + np.where(members, 0.3, 1.0) * draw.normal(size=members.shape)
    found = Roc(split(lira_each(shadows_of(sure, members)), members))
    best = Roc(split(norm.logpdf(sure, hard, 0.3) - norm.logpdf(sure, hard, 1.0), members))
    assert best.auc().value > 0.78
    assert found.auc().value == pytest.approx(best.auc().value, abs=0.005)
    rise = Roc(split(lira_each(shadows_of(sure, members), online=False), members))
    assert rise.auc().value == pytest.approx(0.5, abs=0.02)


def test_models_that_learned_nothing_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few models in pairs. Leaving out the target alone would show by the numbers left."""
    shadows = toy(1, models=6, examples=20_000, shift=0.0)
    roc = Roc(split(lira_each(shadows, fixed_variance=True), shadows.members))
    assert roc.auc(1 - 1e-6).lower < 0.5 < roc.auc(1 - 1e-6).upper
    module = sys.modules["tacit.auditing.attacks.lira"]
    monkeypatch.setattr(module, "left_out", lambda members: [[one] for one in range(len(members))])
    naive = Roc(split(lira_each(shadows, fixed_variance=True), shadows.members))
    assert naive.auc(1 - 1e-6).upper < 0.48


def test_scale_and_place_of_an_example_do_not_matter() -> None:
    shadows = random_shadows()
    target = random_target(shadows)
    draw = np.random.default_rng(3)
    scale, place = 2.0 ** draw.integers(-2, 3, size=8), draw.integers(-4, 5, size=8)
    sure, asked = phi(shadows)[..., 0], phi(target)[:, 0]
    moved = shadows_of((scale * sure + place).astype(np.float32), shadows.members)
    moved_target = shadows_of((scale * asked + place).astype(np.float32)[None], moved.members[:1])
    for online in (True, False):
        np.testing.assert_allclose(
            lira(moved_target.model(0), moved, online=online),
            lira(target, shadows, online=online),
            rtol=1e-4,
            atol=1e-4,
        )


def test_order_of_models_and_examples_does_not_matter() -> None:
    shadows = random_shadows()
    target = random_target(shadows)
    models, examples = np.random.default_rng(4).permutation(12), np.arange(8)[::-1]
    mixed = Shadows(
        shadows.logits[models][:, examples],
        shadows.labels[examples],
        shadows.members[models][:, examples],
    )
    found = lira(Outputs(target.logits[examples], target.labels[examples]), mixed)
    np.testing.assert_allclose(found, lira(target, shadows)[examples], rtol=1e-9)


def test_models_that_agree_to_the_last_digit() -> None:
    members = np.array([[True], [True], [False], [False]])
    shadows = shadows_of(np.where(members, 2.0, 1.0), members)
    target = shadows_of(np.array([[2.0]]), members[:1]).model(0)
    assert np.isfinite(lira(target, shadows)).all()
    assert lira(target, shadows)[0] > 0.0


def test_too_few_models() -> None:
    members = np.array([[True, True], [True, False], [False, False]])
    shadows = shadows_of(np.zeros((3, 2)), members)
    target = shadows.model(0)
    with pytest.raises(InvalidArgument, match=r"2 models not trained on .* fixed_variance=True"):
        lira(target, shadows)
    assert np.isfinite(lira(target, shadows, fixed_variance=True)).all()
    one_sided = shadows_of(np.zeros((3, 2)), np.zeros((3, 2), dtype=bool))
    with pytest.raises(InvalidArgument, match=r"1 model trained on .* online=False"):
        lira(target, one_sided, fixed_variance=True)
    assert np.isfinite(lira(target, one_sided, online=False)).all()
    two = shadows_of(np.zeros((2, 2)), np.array([[True, True], [False, False]]))
    with pytest.raises(InvalidArgument, match="no variance: train more"):
        lira(target, two, fixed_variance=True)
    with pytest.raises(InvalidArgument, match="at least 3 models"):
        views = Shadows(np.zeros((3, 2, 2, 2)), [0, 0], members)
        lira(views.model(0), views, joint=True)
