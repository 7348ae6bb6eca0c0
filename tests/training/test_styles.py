"""Clipping styles are plain values, and their groups never add up to more than the clip."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidArgument
from tacit.training.styles import (
    AdaptiveQuantile,
    Automatic,
    Flat,
    PerGroup,
    PerLayer,
    Style,
    groups_of,
)

_NAMES = ("embed", "features.0.weight", "features.0.bias", "features.2.weight", "head.weight")


def test_the_clip_of_groups_is_the_root_of_the_squares() -> None:
    assert PerGroup({"features": 3.0, "head": 4.0}).clip == 5.0
    assert PerGroup((("a", 1), ("b", 1), ("c", 1))).clip == pytest.approx(math.sqrt(3))


def test_a_mapping_becomes_a_plain_value() -> None:
    bounds = {"a": 1.0, "b": 2.0}
    style = PerGroup(bounds)
    bounds["a"] = 100.0
    assert style == PerGroup((("a", 1.0), ("b", 2.0)))
    assert hash(style) == hash(PerGroup({"a": 1.0, "b": 2.0}))
    assert style.clip == math.hypot(1, 2)


def test_flat_styles_have_one_group() -> None:
    for style in (Flat(), Automatic(), AdaptiveQuantile(count_noise=1.0)):
        ((_, bound, members),) = groups_of(style, 1.5, _NAMES)
        assert bound == 1.5
        assert members == _NAMES


def test_layers_share_the_clip_evenly() -> None:
    groups = groups_of(PerLayer(), 2.0, _NAMES)
    assert [group.name for group in groups] == ["", "features.0", "features.2", "head"]
    assert groups[1].parameters == ("features.0.weight", "features.0.bias")
    assert {group.bound for group in groups} == {1.0}


def test_the_longest_name_decides() -> None:
    style = PerGroup({"": 1.0, "features": 2.0, "features.2": 3.0})
    found = {group.name: group.parameters for group in groups_of(style, style.clip, _NAMES)}
    assert found == {
        "": ("embed", "head.weight"),
        "features": ("features.0.weight", "features.0.bias"),
        "features.2": ("features.2.weight",),
    }


def test_a_name_ends_at_a_dot() -> None:
    style = PerGroup({"head": 1.0, "headway": 2.0})
    assert [
        group.parameters for group in groups_of(style, style.clip, ["head.w", "headway.w"])
    ] == [
        ("head.w",),
        ("headway.w",),
    ]


@settings(deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20),
    st.floats(1e-3, 1e3),
    st.booleans(),
)
def test_groups_cover_everything_once_within_the_clip(
    bounds: list[float], clip: float, per_group: bool
) -> None:
    names = [f"layer{place}.{kind}" for place in range(len(bounds)) for kind in ("weight", "bias")]
    style: Style = PerLayer()
    if per_group:
        style = PerGroup({f"layer{place}": bound for place, bound in enumerate(bounds)})
        clip = style.clip
    groups = groups_of(style, clip, names)
    assert sorted(name for group in groups for name in group.parameters) == sorted(names)
    assert math.hypot(*(group.bound for group in groups)) <= clip * (1 + 1e-12)


def test_the_clip_moves_towards_the_quantile() -> None:
    style = AdaptiveQuantile(quantile=0.75, learning_rate=0.2, count_noise=30.0)
    # All 600 norms at or below the clip: Σ(b - ½) = 300, a share of 1.
    assert style.next_clip(2.0, 300.0, 600) == pytest.approx(2.0 * math.exp(-0.2 * 0.25))
    assert style.next_clip(2.0, -300.0, 600) == pytest.approx(2.0 * math.exp(0.2 * 0.75))
    assert style.next_clip(2.0, 150.0, 600) == pytest.approx(2.0)


def test_the_clip_stays_a_number_whatever_the_noise() -> None:
    style = AdaptiveQuantile(learning_rate=100.0, count_noise=1e6)
    assert 0.0 < style.next_clip(1.0, 1e9, 1) < 1e-6
    assert 1e6 < style.next_clip(1.0, -1e9, 1) < math.inf


def test_the_clip_finds_the_median() -> None:
    norms = [place / 100 for place in range(1, 1001)]  # median 5
    style, clip = AdaptiveQuantile(count_noise=1.0), 0.1
    for _ in range(200):
        clip = style.next_clip(clip, sum((norm <= clip) - 0.5 for norm in norms), len(norms))
    assert clip == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PerGroup({}), "bounds must name at least one group"),
        (lambda: PerGroup({"a": 0.0}), r"bounds\['a'\] must be a positive finite number, got 0.0"),
        (lambda: PerGroup({"a": math.inf}), r"bounds\['a'\] .* got inf"),
        (lambda: PerGroup((("a", 1.0), ("a", 2.0))), "bounds must name a group once, got 'a'"),
        (lambda: PerGroup(((1, 1.0),)), "bounds must be pairs of a name and a number"),
        (lambda: PerGroup(("ab",)), "bounds must be pairs of a name and a number, got 'ab'"),
        (lambda: PerGroup(1.0), "bounds must map parameters' names to numbers, got 1.0"),
        (lambda: PerGroup("head"), "bounds must map parameters' names to numbers, got 'head'"),
        (lambda: Automatic(stability=0.0), "stability must be a positive finite number, got 0.0"),
        (lambda: Automatic(stability=1e-30), "stability must be at least 1e-12, got 1e-30"),
        (lambda: AdaptiveQuantile(count_noise=0.0), "count_noise .* got 0.0"),
        (lambda: AdaptiveQuantile(count_noise=1.0, quantile=1.0), "quantile .* got 1.0"),
        (lambda: AdaptiveQuantile(count_noise=1.0, learning_rate=-1), "learning_rate .* got -1"),
        (
            lambda: groups_of(PerGroup({"features": 1.0}), 1.0, _NAMES),
            "none of which covers 'embed'; add a bound",
        ),
        (
            lambda: groups_of(PerGroup({"": 1.0, "haed": 1.0}), 1.0, _NAMES),
            "got 'haed', which decides for none",
        ),
    ],
)
def test_refusals_name_the_argument_and_its_value(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]
