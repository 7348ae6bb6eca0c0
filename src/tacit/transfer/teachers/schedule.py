"""How each teacher is trained, in public numbers; the same by a loop, a batch or a cluster.

Nothing here depends on more than one teacher: how many steps it takes follows from its own size,
its first weights and the order of its records from a public seed and its own number.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor


MOMENTUM = 0.9


@final
@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The steps of one teacher: Nesterov's momentum, at a rate that falls linearly to 0.

    Of few records, plain steps learn more than Adam's: a linear teacher of 240 images was right on
    94.2% of others instead of 93.8% (``benchmarks/teachers.py``'s features).

    Args:
        epochs: How often a teacher sees each of its records.
        batch_size: Records in a step; the last batch of an epoch is filled up from its first.
        lr: The rate at first.
        weight_decay: λ of λ/2·‖w‖², which is added to the loss.
        seed: Public. Of first weights and orders; it hides nobody, and need not.
    """

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    seed: int

    def steps(self, size: int) -> int:
        """How many steps a teacher with ``size`` records takes.

        >>> Schedule(epochs=2, batch_size=32, lr=1e-3, weight_decay=0.0, seed=0).steps(70)
        6
        """
        return self.epochs * -(-size // self.batch_size)

    def seed_of(self, teacher: int) -> int:
        """The seed of a teacher's first weights, and of whatever randomness its model has."""
        return int(np.random.SeedSequence([self.seed, teacher]).generate_state(1)[0])

    def batches(self, teacher: int, size: int) -> Iterator[NDArray[np.int64]]:
        """Which of its own records a teacher sees in each step."""
        random = np.random.default_rng([self.seed, teacher, 1])
        for _ in range(self.epochs if size else 0):
            shape = self.steps(size) // self.epochs, self.batch_size
            yield from np.resize(random.permutation(size), shape)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A random state of torch's that this seed begins; afterwards it is what it was before."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield


def made(make_model: Callable[[], Any], schedule: Schedule, teacher: int) -> Any:
    """A teacher's model with its first weights."""
    with seeded(schedule.seed_of(teacher)):
        return make_model()


def pixels(inputs: Tensor) -> Tensor:
    """Inputs as a network takes them: uint8 are pixels, and become numbers between 0 and 1."""
    return inputs.float() / 255.0 if inputs.dtype == torch.uint8 else inputs
