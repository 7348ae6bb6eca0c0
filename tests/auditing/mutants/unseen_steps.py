"""Unseen bugs from the clipped sum on: noise, update, charge and resumed runs; see ``unseen``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from tacit.statement import claim as statements
from tacit.training import charging, claim
from tacit.training.charging import StepCharges
from tacit.training.clipping import engine, sums
from tacit.training.lot import Computation
from tacit.training.noise import FastNoise
from tacit.training.session import Session

from .mutant import unwatched
from .noise import noise_and_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# ---- noise


def of_one_length() -> Any:
    """The noise is scaled to the length that it has on average: it always is σ·clip·√d long."""

    def means(self: FastNoise, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        noise, mean = noise_and_mean(self, parameters, sums, **given)
        flat = torch.cat([value.flatten() for value in noise.values()])
        wanted = given["scale"] / given["lot_size"] * len(flat) ** 0.5
        factor = float(wanted / flat.norm().clamp(min=1e-30))
        return {name: mean[name] + factor * noise[name] for name in parameters}

    return patch.object(FastNoise, "means", means)


def never_backwards() -> Any:
    """Noise that would turn a step against its own gradient is drawn again."""

    def means(self: FastNoise, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        while True:
            noise, mean = noise_and_mean(self, parameters, sums, **given)
            noisy = {name: mean[name] + noise[name] for name in parameters}
            along = sum(float((noisy[name] * mean[name]).sum()) for name in parameters)
            if not along < 0.0:
                return noisy

    return patch.object(FastNoise, "means", means)


# ---- update


@contextmanager
def error_feedback() -> Iterator[None]:
    """What clipping removed from one lot's gradients is added to the next lot's sum."""
    clip_batch, finish = Computation._summed, Computation.finished
    clip: Any = sums.clipped_sums
    cut: dict[str, Tensor] = {}

    def in_use(self: Any, *given: Any) -> Any:
        nonlocal cut
        self._cut = cut = getattr(self, "_cut", {})
        return clip_batch(self, *given)

    def noting(*given: Any) -> Any:
        *most, bounds, mask, _ = given
        found = clip(*most, bounds, mask)
        whole = clip(*most, torch.full_like(bounds, 1e12), mask)
        for name, value in whole.sums.items():
            cut[name] = cut.get(name, 0.0) + value - found.sums[name]
        return found

    def finished(self: Any) -> dict[str, Tensor]:
        sums = finish(self)
        before, self._before = getattr(self, "_before", {}), getattr(self, "_cut", {})
        self._cut = {}
        names = [*sums, *(name for name in before if name not in sums)]
        return {name: sums.get(name, 0.0) + before.get(name, 0.0) for name in names}

    with (
        unwatched(),
        patch.object(engine, "clipped_sums", noting),
        patch.object(Computation, "_summed", in_use),
        patch.object(Computation, "finished", finished),
    ):
        yield


# ---- charging


@contextmanager
def one_reservation_a_plan() -> Iterator[None]:
    """A plan that the ledger has seen is taken for a repeated request, and not charged again."""
    begin, take = StepCharges.begin, StepCharges.take

    def begun(self: Any, plan: Any, last_step: int, steps_taken: int) -> None:
        budget, detail = self._budget, charging.detail_of(plan, last_step)
        known = budget.ledger.refresh().reservations.values() if budget is not None else ()
        new = self._reservation is None
        self._seen = new and any((one.budget, one.detail) == (budget.name, detail) for one in known)
        if not self._seen:
            begin(self, plan, last_step, steps_taken)

    def taken(self: Any) -> bool:
        return self._seen or take(self)

    with patch.multiple(StepCharges, begin=begun, take=taken):
        yield


# ---- resuming


@contextmanager
def only_since_resumed() -> Iterator[None]:
    """The steps that a statement counts start again where a run is resumed."""
    prepare, state, epsilon = Session._prepare, Session.statement, claim.epsilon
    before = 0

    def prepared(self: Any, *given: Any) -> None:
        prepare(self, *given)
        self._before = self.steps_taken  # of the checkpoint

    def stated(self: Any, delta: float) -> Any:
        nonlocal before
        before = self._before
        try:
            return state(self, delta)
        finally:
            before = 0

    def counted(plan: Any, steps: int, delta: float) -> float:
        return epsilon(plan, max(1, steps - before), delta)

    with (
        patch.multiple(Session, _prepare=prepared, statement=stated),
        patch.object(claim, "epsilon", counted),
        patch.object(statements, "check_claim", lambda _: None),  # it would refuse to say so
    ):
        yield
