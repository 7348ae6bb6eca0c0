"""Bugs in the norms that gradients are clipped by: too small, so that too much gets through."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from tacit.training.clipping import sums
from tacit.training.clipping.forms import Convolution, Dense, OneHot
from tacit.training.clipping.rules import linear

from . import settings
from .mutant import FORMS, Mutant, in_kernels, together, unwatched

if TYPE_CHECKING:
    from torch import Tensor

_DENSE = Convolution.dense  # as it should be


def _without_cross_terms() -> Any:
    """‖a + b‖² taken for ‖a‖² + ‖b‖² where two uses share a weight."""

    def norms(forms: Any) -> Tensor:
        return torch.stack([form.squared_norms() for form in forms]).sum(0)

    return together(unwatched(), patch.object(sums, "merged_squared_norms", norms))


def _without_bias() -> Any:
    def norms(self: Dense) -> Tensor:
        return self.values.new_zeros(len(self.values))

    return together(unwatched(), patch.object(Dense, "squared_norms", norms))


def _repeated_words_apart() -> Any:
    """The gradients of a word that comes twice add up in one row; here their squares do."""

    def norms(self: OneHot) -> Tensor:
        return self.right.double().square().sum((1, 2))

    return together(unwatched(), patch.object(OneHot, "squared_norms", norms))


def _norms_in_half() -> Any:
    """Squares below 6e-8 are 0 in half precision, and with them the norm of small gradients."""

    def squared(values: Tensor) -> Tensor:
        return values.half().square().unsqueeze(-1).flatten(1).sum(1).float()

    def by_kernel(lines: Tensor, others: Tensor, *, pair: bool, both: bool = False) -> Tensor:
        own = squared(lines)
        total = own * squared(others) if pair else own
        return torch.stack([total, own] if both else [total])

    modules = ("matrix", "convolution")
    return together(
        unwatched(),
        in_kernels("_squared", by_kernel),
        *(
            patch.object(import_module(f"{FORMS}.{form}"), "squared_sum", squared)
            for form in modules
        ),
        patch.object(linear, "squared_sum", squared),
    )


def _offsets_first() -> Any:
    """The places of a kernel, written out, are taken for its channels."""

    def dense(self: Convolution) -> Tensor:
        offsets = torch.stack(list(self._by_offset()), dim=1)
        return offsets.flatten(1, 2).reshape(self.units, *self.shape)

    return together(unwatched(), patch.object(Convolution, "dense", dense))


def _sides_swapped() -> Any:
    """Of a kernel's gradient, written out, the image plays the gradient's part."""
    product = Convolution._product

    def turned(self: Convolution, grad: Tensor, window: Tensor) -> Tensor:
        return product(self, window, grad)

    def dense(self: Convolution) -> Tensor:
        with patch.object(Convolution, "_product", turned):
            return _DENSE(self)

    return together(unwatched(), patch.object(Convolution, "dense", dense))


MUTANTS = (
    Mutant(
        name="ghost norm of a tied weight",
        says="the norm of a shared weight leaves out the cross term of its two uses",
        components=("clipping",),
        setting=settings.tied,
        patch=_without_cross_terms,
    ),
    Mutant(
        name="ghost norm of a bias",
        says="the norm leaves out biases",
        components=("clipping",),
        setting=settings.tiny_inputs,
        patch=_without_bias,
    ),
    Mutant(
        name="ghost norm of an embedding",
        says="the norm takes a word that comes twice for two words",
        components=("clipping",),
        setting=settings.bag_of_words,
        patch=_repeated_words_apart,
    ),
    Mutant(
        name="half-precision norms",
        says="norms are computed in half precision, where those of small gradients are 0",
        components=("clipping",),
        setting=settings.tiny_losses,
        patch=_norms_in_half,
    ),
    Mutant(
        name="kernel offsets as channels",
        says="the norm of a weight-normed kernel is that of its entries in another order",
        components=("clipping",),
        setting=settings.normed_kernel,
        patch=_offsets_first,
    ),
    Mutant(
        name="kernel with sides swapped",
        says="the norm of a weight-normed kernel is that of its transpose",
        components=("clipping",),
        setting=settings.normed_kernel,
        patch=_sides_swapped,
    ),
)
