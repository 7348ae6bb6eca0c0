"""The bugs of the third unseen round, put into the engine: see ``unseen_third``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from tacit.ledger import approval, budget
from tacit.randomness import GaussianSource, gaussian
from tacit.randomness.inclusion import assigned
from tacit.randomness.streams import chacha20
from tacit.training import assembly
from tacit.training.claim import Run
from tacit.training.clipping.forms import matrix
from tacit.training.clipping.forms.convolution import Convolution
from tacit.training.clipping.forms.matrix import gram_total, matmul
from tacit.training.noise import GridNoise
from tacit.training.run_state import RunState
from tacit.training.sampling import Allocation, Groups, LotSampler

from .mutant import in_kernels, together
from .noise import drawn, in_one_pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

# ---- sampling


def dealt_by_rank() -> Any:
    """Records are dealt to the groups in turn, in the order of their random words."""

    def members(self: Groups, group: int) -> NDArray[np.int64]:
        words = np.frombuffer(chacha20(self._key).stream(8 * self._records), np.uint64)
        dealt = np.argsort(np.argsort(words)) % self._count
        return np.flatnonzero(dealt == group)

    return patch.object(Groups, "members", members)


def epochs_of_fewer_lots() -> Any:
    """An epoch is dealt into ⌊examples/lot_size⌋ lots; plan and event count ⌈examples/lot_size⌉."""

    def draw(self: LotSampler) -> NDArray[np.int64]:
        plan = self._plan
        if isinstance(plan.sampling, Allocation) and self._epoch.is_over:
            lots = int(plan.examples // plan.lot_size)
            self._epoch.begin(assigned(plan.examples, lots, self._stream), lots)
        return healthy(self)

    healthy = LotSampler.draw
    unlooked = patch.object(LotSampler, "go_to", lambda *_: None)  # it compares places
    return together(patch.object(LotSampler, "draw", draw), unlooked)


# ---- norms


def each_pair_once() -> Any:
    """Of the pairs of places with the same id, (i, j) and (j, i) count as one."""

    def norms(ids: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
        equal = (ids[:, :, None] == ids[:, None, :]).triu()
        return gram_total(torch.where(equal, matmul(right, right.mT), 0), raised)

    return together(
        patch.object(matrix, "_equal_ids_norms", norms), in_kernels("equal_id_norms", norms)
    )


def gram_of_strided() -> Any:
    """Pixels' Gram matrices, which are for kernels that move by one, whatever the stride."""

    def by_gram(self: Convolution) -> bool:
        if self.groups != 1 or self.image.shape[1] != 1:
            return False
        padded, out = math.prod(self._padded_space), math.prod(self._space_out)
        gram = padded**2 * self.shape[1] + out**2 * self.shape[0]
        return 2 * gram <= math.prod(self.shape) * out

    return patch.object(Convolution, "_by_gram", property(by_gram))


# ---- noise


def last_word_again() -> Any:
    """A draw of an odd count does not count its last word as used.

    A device's kernels have no words: there the number of that word, the middle one, comes again.
    """

    def words_of(count: int, *, double: bool) -> int:
        return 2 * (count // 2) if double else count // 2

    def given_back(self: GaussianSource, tensor: Tensor, scale: float) -> None:
        drawn(self, tensor)
        if len(tensor) % 2:
            last = tensor[len(tensor) // 2].clone()
            if self in kept:
                tensor[0] = kept[self]
            kept.setdefault(self, last).copy_(last)
        tensor.mul_(scale)

    kept: dict[GaussianSource, Tensor] = {}
    return together(patch.object(gaussian, "_words_of", words_of), in_one_pass(given_back))


def first_grid() -> Any:
    """The step of the grid and the noise on it are those of a run's first step."""

    def means(
        self: Any, parameters: Any, sums: Any, *, clip: float, scale: float, **named: Any
    ) -> dict[str, Tensor]:
        if not hasattr(self, "_first"):
            self._first = {"clip": clip, "scale": scale}
        return healthy(self, parameters, sums, **self._first, **named)

    healthy = GridNoise.means
    return patch.object(GridNoise, "means", means)


def kept_noise() -> Any:
    """What is remembered of noise is not ended by ``stop_after``."""

    def built(world: Any, setup: Any, weights: Any, custody: Any, run_state: RunState) -> Any:
        if run_state.memory is not None and setup.resume is None:
            run_state.memory.steps = run_state.plan.steps
        return healthy(world, setup, weights, custody, run_state)

    healthy = assembly._built
    return patch.object(assembly, "_built", built)


# ---- resuming


def seed_forgotten() -> Any:
    """Whether a fixed seed is used is what the checkpoint says, and nothing else."""

    def load_state_dict(self: Run, state_dict: Mapping[str, Any], /) -> None:
        healthy(self, state_dict)
        self.unsafe = state_dict["unsafe"]

    healthy = Run.load_state_dict
    return patch.object(Run, "load_state_dict", load_state_dict)


def lost_too_early() -> Any:
    """How many steps were lost is read before the ledger is asked: none."""
    return patch.object(RunState, "position", property(lambda self: self.steps_taken))


# ---- charging


def users_budget_for_examples() -> Any:
    """A budget for users takes plans for examples."""

    def plain_event(state: Any, what: Any) -> dict[str, Any]:
        covered = (what.unit, state.unit) == ("example", "user")
        return healthy(replace(state, unit="example") if covered else state, what)

    healthy = budget.plain_event
    return together(
        *(patch.object(place, "plain_event", plain_event) for place in (budget, approval))
    )
