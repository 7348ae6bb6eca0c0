"""Whitening against matrix powers in double precision, and what it never does: mix examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power

from tacit.errors import InvalidArgument
from tacit.models import (
    Whitening,
    whitening,
    wide_resnet,
    with_plain_filters,
    with_whitened_inputs,
)

SIZE = 216


def rows(count: int = 300, seed: int = 0) -> torch.Tensor:
    """Correlated, of different strengths, and none of them with a mean of 0."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(9)) / 10
    strengths = torch.logspace(0, -2, SIZE)
    found = torch.randn(count, SIZE, generator=generator) * strengths @ mix + 0.03
    return torch.nn.functional.normalize(found)


def truth(public: torch.Tensor, private: torch.Tensor, power: float, ridge: float) -> np.ndarray:
    """The angles between whitened rows, which no choice of a basis changes."""
    given = public.double().numpy()
    moments = given.T @ given / len(given)
    total = moments + ridge * np.trace(moments) * np.eye(SIZE)
    white = private.double().numpy() @ np.real(fractional_matrix_power(total, -power / 2))
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    return white @ white.T


@pytest.mark.parametrize(("power", "ridge"), [(1.0, 1e-3), (0.5, 1e-4), (2.0, 1e-2)])
def test_angles_are_those_of_the_matrix_power(power: float, ridge: float) -> None:
    public, private = rows(), rows(20, seed=1)
    found = Whitening.of(public, power=power, ridge=ridge)(private)
    angles = (found @ found.T).double().numpy()
    assert np.abs(angles - truth(public, private, power, ridge)).max() < 1e-5
    assert np.abs(angles - truth(public, private, power * 1.1, ridge)).max() > 1e-3
    assert np.abs(angles - truth(public, private, power, ridge * 2)).max() > 1e-3


def test_power_0_leaves_the_angles_as_they_are() -> None:
    private = rows(20, seed=1)
    found = Whitening.of(rows(), power=0, ridge=1e-3)(private)
    assert (found @ found.T - private @ private.T).abs().max() < 1e-5


def test_whitened_rows_are_equally_strong_in_all_directions() -> None:
    public = rows(2000)
    made = Whitening.of(public, power=1.0, ridge=1e-6)
    projected = public.double() @ made.directions.double().T
    strong = made.strengths > 1e-3 * made.strengths.sum()
    assert strong.sum() > 50
    assert projected.square().mean(0)[strong].numpy() == pytest.approx(1, abs=0.01)


def test_what_all_rows_have_in_common_is_held_down() -> None:
    public = torch.nn.functional.normalize(rows() + 1.0)
    whitened = Whitening.of(public, power=1.0, ridge=1e-3)(public)
    assert (public @ public.T).mean() > 0.9
    assert (whitened @ whitened.T).mean() < 0.3


def test_the_strongest_directions_come_first_and_alone_if_asked() -> None:
    public, private = rows(), rows(20, seed=1)
    every = Whitening.of(public, power=0.5, ridge=1e-3)
    few = Whitening.of(public, power=0.5, ridge=1e-3, keep=30)
    assert few(private).shape == (20, 30)
    signs = (few.directions * every.directions[:30]).sum(1).sign()
    assert torch.allclose(few.directions * signs[:, None], every.directions[:30], atol=1e-5)
    first = every(private)[:, :30] * signs
    assert torch.allclose(few(private), torch.nn.functional.normalize(first, dim=1), atol=1e-5)
    assert (every.strengths[:-1] >= every.strengths[1:]).all()


def test_a_row_depends_on_itself_alone_and_has_norm_1(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = Whitening.of(rows(), power=1.0, ridge=1e-3), rows(7, seed=2)
    given[4] = 0.0  # says nothing
    together = made(given)
    assert together.norm(dim=1) == pytest.approx([1, 1, 1, 1, 0, 1, 1], abs=1e-5)
    monkeypatch.setattr(whitening, "ROWS", 3)  # in pieces
    assert torch.allclose(made(given), together, atol=1e-6)
    changed = given.clone()
    changed[5] = 3.0
    assert torch.allclose(made(changed)[:5], together[:5], atol=1e-6)


def test_the_statistics_come_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Whitening.of(rows(), power=1.0, ridge=1e-3)
    monkeypatch.setattr(whitening, "ROWS", 64)
    pieces = Whitening.of(rows(), power=1.0, ridge=1e-3)
    assert torch.allclose(whole.strengths, pieces.strengths, atol=1e-9)


@pytest.mark.parametrize("precision", [8192, 1])
def test_few_directions_are_found_alone_in_either_precision(
    precision: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = Whitening.of(rows(), power=0.5, ridge=1e-3)
    monkeypatch.setattr(whitening, "DOUBLE", precision)
    few = Whitening.of(rows(), power=0.5, ridge=1e-3, keep=5)
    signs = (few.directions * every.directions[:5]).sum(1).sign()
    assert torch.allclose(few.directions * signs[:, None], every.directions[:5], rtol=0, atol=2e-4)
    assert torch.allclose(few.strengths, every.strengths[:5], rtol=1e-5)


def test_it_moves_and_stays_the_same() -> None:
    made = Whitening.of(rows(), power=1.0, ridge=1e-3)
    moved = made.to("cpu")
    assert torch.equal(moved(rows(3)), made(rows(3)))
    assert made.directions.dtype == torch.float32
    assert made.strengths.dtype == torch.float64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"power": -1}, "power must be a finite number, zero or above"),
        ({"ridge": 0}, "ridge must be a positive finite number"),
        ({"keep": 217}, "keep must be at most the 216 features, got 217"),
        ({"rows": torch.zeros(1, 5)}, r"2 images or more, got \(1, 5\)"),
        ({"rows": torch.zeros(9, 54, 2)}, r"got \(9, 54, 2\)"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], message: str) -> None:
    settings = {"rows": rows(30), "power": 1.0, "ridge": 1e-3} | given
    with pytest.raises(InvalidArgument, match=message):
        Whitening.of(**settings)


def network_and_images() -> tuple[torch.nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    network = with_plain_filters(wide_resnet(depth=10, width=1))
    return network.double(), torch.rand(200, 3, 8, 8).double() + 0.5


@pytest.mark.parametrize("layers", ["all", "last"])
def test_a_network_with_whitened_inputs_computes_what_it_did(layers: str) -> None:
    network, images = network_and_images()
    before = network(images)
    names = [name for name, _ in network.named_parameters()]
    changed = with_whitened_inputs(network, images[:100], ridge=1e-3, layers=layers)  # type: ignore[arg-type]
    assert torch.allclose(changed(images), before, atol=1e-7)
    maps = [one for one in changed.modules() if isinstance(one, whitening.FixedMap)]
    assert len(maps) == (1 if layers == "last" else 11)  # the stem, three blocks of three, the head
    assert len(list(changed.parameters())) == len(names)  # a map is not learned


def test_layers_are_given_white_channels_of_the_strength_in_all_that_they_had() -> None:
    network, images = network_and_images()
    given: dict[torch.nn.Module, torch.Tensor] = {}
    layers = [one for one in network.modules() if isinstance(one, torch.nn.Conv2d)] + [network[-1]]

    def strengths() -> list[torch.Tensor]:
        hooks = [
            one.register_forward_pre_hook(lambda layer, x: given.update({layer: x[0]}))
            for one in layers
        ]
        network(images)
        for hook in hooks:
            hook.remove()
        flat = (given[one].movedim(1, -1).flatten(0, -2) for one in layers)
        return [torch.linalg.eigvalsh(x.T @ x / len(x)) for x in flat]

    before = strengths()
    with_whitened_inputs(network, images, ridge=1e-9)
    for one, other in zip(before, strengths(), strict=True):
        assert torch.allclose(one.sum(), other.sum(), rtol=1e-5)
        there = other[one > 1e-6 * one.sum()]  # means of a normalised group add up to 0
        assert torch.allclose(there, there.mean().expand_as(there), rtol=0.02)
        assert one.max() > 1.5 * one.mean()  # they were far from it


def test_images_that_do_not_reach_a_layer_are_refused() -> None:
    network, images = network_and_images()
    with pytest.raises(InvalidArgument, match="images must reach every layer"):
        with_whitened_inputs(network, torch.zeros_like(images), ridge=1e-3)


def test_only_a_network_with_a_last_linear_layer_is_whitened() -> None:
    with pytest.raises(InvalidArgument, match=r"network must end with nn\.Linear, got ReLU"):
        with_whitened_inputs(torch.nn.Sequential(torch.nn.ReLU()), torch.zeros(2, 3), ridge=1e-3)
