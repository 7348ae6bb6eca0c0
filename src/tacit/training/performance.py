"""Everything about a run that is not privacy: how it is computed, never what it releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument

Precision = Literal["single", "bfloat16", "float16"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """How lots are computed; nothing here changes the guarantee.

    Args:
        batch: The most rows of a physical batch, or ``"auto"``: the largest that fits in memory.
        compile: Whether norms and sums are compiled, and lots padded to few shapes for that. Left
            out, they are not: on a GPU kernels of their own find them.
        capture: Whether whole steps of ``tacit.fit`` and ``dp.accumulate`` are recorded on a GPU
            and replayed, where that is possible. Left out, it is done on a GPU. On a CPU the work
            is repeated as a recording would be, at no gain: to try code that is to run on a GPU.
        precision: The autocast precision of the forward pass inside a lot; ``"single"`` leaves it
            to the user's own ``torch.autocast``.
        workers: Processes that load examples ahead; 0 loads them in this one.
        pin_memory: Whether batches pass through page-locked memory on their way to a GPU.
        lease: How many steps are charged to a budget in advance, which is what a crash can cost;
            ``"auto"``: as few as keep the writing at 1 % of the time, and at most 5 % of the plan.
        patience: Seconds that one of several processes waits for the others before it gives up.

    >>> Performance(batch=256).batch
    256
    """

    batch: int | Literal["auto"] = "auto"
    compile: bool | None = None
    capture: bool | None = None
    precision: Precision = "single"
    workers: int = 0
    pin_memory: bool = False
    lease: int | Literal["auto"] = "auto"
    patience: float = 1800.0

    def __post_init__(self) -> None:
        if self.batch != "auto":
            object.__setattr__(self, "batch", whole("batch", self.batch))
        if self.precision not in ("single", "bfloat16", "float16"):
            raise InvalidArgument(
                f"precision must be 'single', 'bfloat16' or 'float16', got {self.precision!r}"
            )
        object.__setattr__(self, "workers", whole("workers", self.workers, at_least=0))
        if self.lease != "auto":
            object.__setattr__(self, "lease", whole("lease", self.lease))
        object.__setattr__(self, "patience", positive("patience", self.patience))
