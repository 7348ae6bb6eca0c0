"""Checking on real data that one example moves the released sum by a bounded amount, and alone.

A small batch is passed through the loop several times under the same random numbers: as it is, with
one unit replaced by another, and with all but one replaced. Nothing but the replaced units' own
losses, norms and bounded contributions may change; otherwise the module where other rows first
change is named. Then one unit is looked at with its company and without, where rows are fewer and,
if batches are padded to their longest row, shorter: its clipped gradient must be the same; and so
must those of all in a batch as large as lots have. A batch of a lot counts only when its
repetitions have agreed with it.

This is done before the first lot, with records of the whole data set, whenever modules or their
modes have changed, and again in lots that come at random, as often as it takes less than 1 % of the
time.
"""

from __future__ import annotations

import math
import random
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch._C._dynamo import eval_frame
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from tacit.errors import UnsupportedModel
from tacit.training.clipping.recorder import LABELLED, ONLY_INLINED, wrong_label

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from types import FrameType

    from torch import Tensor, nn

    from tacit.randomness import Stream
    from tacit.training.batches import Batch
    from tacit.training.clipping.engine import Structure
    from tacit.training.clipping.sums import BatchSums

# Relative, and far above what a repetition of the same operations on the same shapes differs by.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_HALF_TOLERANCE = 1e-2
# Other shapes are computed by other kernels, which round in other ways, TF32 among them: relative
# to the gradient, and to the clip, below which a gradient is nothing but rounding.
_OTHER_SHAPE = {torch.float64: (1e-6, 1e-9), torch.float32: (2e-2, 1e-4)}
_HALF_OTHER_SHAPE = (0.1, 1e-2)
EVERY = 50  # lots, on average, from one check to the next, where that is cheap enough:
SHARE = 0.01  # of the time of a run that may go into checks after the first
_OWN_NUMBERS = (
    "random numbers from a generator of its own, which the check cannot repeat: then draw from "
    "torch's default generator"
)
_PRODUCTS = frozenset({"mul", "__mul__", "__rmul__"})
_FRAMES = 8  # of torch function modes, between an operation and who asked for it
_DROPOUTS = frozenset(
    {
        torch.dropout,
        torch.feature_dropout,
        torch.alpha_dropout,
        torch.feature_alpha_dropout,
        functional.dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.alpha_dropout,
        functional.feature_alpha_dropout,
    }
)


@final
@dataclass(frozen=True, slots=True)
class SensitivityCheck:
    """What a check found: how far replacing one unit moved the sum, and how far it may.

    SECRET: ``moved`` was computed from private data, without noise. Do not publish or log it.
    """

    units: int
    moved: float
    limit: float
    ranks: int = 1  # processes that train together, each of which checks by itself

    def __repr__(self) -> str:
        together = "" if self.ranks == 1 else f"ranks={self.ranks}, "
        return (
            f"SensitivityCheck(units={self.units}, limit={self.limit:g}, {together}moved=<secret: "
            "computed from private data without noise>)"
        )


@final
@dataclass(frozen=True, slots=True)
class _Pass:
    """What the first pass over the batch came to."""

    batch: Batch
    losses: Tensor
    result: BatchSums
    tolerance: float
    other_shape: tuple[float, float]


@final
class CheckSchedule:
    """When to check again: after a random number of lots, if there has been time enough for it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._wait = self._drawn()
        self._since: float | None = None  # the end of the first check
        self._began = self._spent = self._cost = 0.0

    def begin(self) -> None:
        """A check begins."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """It is over."""
        now = time.perf_counter()
        self._cost = now - self._began
        if self._since is None:
            self._since = now
        else:
            self._spent += self._cost

    def due(self) -> bool:
        """Whether the lot that is about to be sampled should be checked."""
        self._wait -= 1
        if self._wait > 0 or self._since is None:
            return False
        self._wait = self._drawn()
        return self._spent + self._cost <= SHARE * (time.perf_counter() - self._since)

    def _drawn(self) -> int:
        return 1 + int.from_bytes(self._stream.bytes(8), "little") % (2 * EVERY)


@final
class Verifier:
    """Watches the first batch, some at random and any that is asked for, and repeats them."""

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, Tensor],
        schedule: CheckSchedule | None,
        ranks: int = 1,
    ) -> None:
        self._model = model
        self._ranks = ranks
        self._parameters = parameters
        self._schedule = schedule
        self._armed = True
        self._met: set[tuple[bool, ...]] = set()  # the modes of modules in lots so far
        self._company: tuple[BatchSums, float] | None = None  # with its unit's norm
        self._plain: BatchSums | None = None  # of all units, in a batch of none but them
        self._chance = False  # the loop drew random numbers in the pass with company
        self._first: _Pass | None = None
        self._pending: SensitivityCheck | None = None  # the first repetition agreed
        self._random: Any = None
        self._prints: list[dict[str, Tensor]] = []
        self.report: SensitivityCheck | None = None

    def arm(self) -> None:
        """Checks the next batch, from the start."""
        self._armed, self._first, self._pending, self._prints = True, None, None, []
        self._company = self._plain = None

    def count_lot(self) -> None:
        """A lot is about to be sampled: now and then one is checked again, at random."""
        if self._schedule is not None and self._schedule.due():
            self.arm()

    def meet(self, modes: tuple[bool, ...]) -> None:
        """Checks the next batch if the modules were in these modes in no lot before.

        In another mode they may mix rows that were apart.
        """
        if modes not in self._met:
            self._met.add(modes)
            self.arm()

    def forget(self) -> None:
        """Checks again, as the modules are others now."""
        self._met.clear()

    @property
    def watches(self) -> bool:
        """Whether the current batch is one of those that are compared."""
        return self._armed

    @property
    def wants_probe(self) -> bool:
        """Whether the batch just done should be repeated with units replaced."""
        return self._first is not None

    @contextmanager
    def watching(self, batch: Batch) -> Iterator[None]:
        """Runs a forward pass under noted random numbers, and notes every module's rows."""
        if not batch.repeats:
            if self._schedule is not None:
                self._schedule.begin()
            self._random = random_state()
        else:
            set_random_state(self._random)
        prints: dict[str, Tensor] = {}
        self._prints.append(prints)
        weights: dict[Hashable, Tensor] = {}
        handles = [
            module.register_forward_hook(_noting(prints, f"{path or 'the model'}", batch, weights))
            for path, module in self._model.named_modules()
        ]
        try:
            with _Dry(dropout=not batch.is_dry):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def first(
        self,
        batch: Batch,
        losses: Tensor,
        result: BatchSums,
        structure: Structure | None,
        clip: float,
        *,
        always_one: bool = False,
    ) -> None:
        """Takes note of a batch; one unit alone mixes with nothing, and counts at once.

        If there is ``always_one``, only what is kept from batch to batch could mix units.
        """
        self._prints = self._prints[-1:]
        if len(batch.units) > 1 or always_one:
            dtypes = {losses.dtype} | {use.dtype for use in (structure.uses if structure else ())}
            tolerance = max(_TOLERANCE.get(dtype, _HALF_TOLERANCE) for dtype in dtypes)
            other = max(_OTHER_SHAPE.get(dtype, _HALF_OTHER_SHAPE) for dtype in dtypes)
            self._first = _Pass(batch, losses.detach(), result, tolerance, other)
        if len(batch.units) > 1:
            return
        self._prints = []
        released = _distance(result.sums, {})
        if not released <= clip * (1.0 + 1e-3):
            raise UnsupportedModel(
                f"one unit alone added more to the sum than the clip of {clip:.6g}: the engine is "
                "at fault, please report it"
            )

    def compare(self, batch: Batch, losses: Tensor, result: BatchSums, clip: float) -> None:
        """Compares the repetition ``batch`` with the passes before it.

        Raises:
            UnsupportedModel: if other units than the replaced changed, or the sum moved too far.
        """
        first = self._first
        assert first is not None
        if batch.is_plain:
            if self._plain is not None and not self._chance:
                self._compare_crowd(first, self._plain, result, clip)
            self._company, self._plain = None, result  # sums are as large as the model
        elif batch.only is None:
            self._compare_replaced(first, batch, losses, result, clip)
        elif self._company is None:
            self._company = result, float(_norms(result)[batch.only])
            self._chance = not same_random_state(self._random)
        elif len(first.batch.units) == 1:
            self._compare_again(first, self._company[0], result)
        elif not self._chance:
            alone = result, float(_norms(result)[batch.only])
            self._compare_alone(first, self._company, alone, clip)

    def _compare_crowd(
        self, first: _Pass, before: BatchSums, result: BatchSums, clip: float
    ) -> None:
        """All units: what a large batch does to some of them need not show in one."""
        relative, absolute = first.other_shape
        count = len(first.batch.units)
        one, other = _norms(before)[:count], _norms(result)[:count]
        finite = one.isfinite()
        same = torch.equal(finite, other.isfinite())
        if same:
            one, other = one[finite], other[finite]
            limits = relative * torch.maximum(one, other) + absolute * clip
            released = count * (relative + absolute) * clip
            same = bool(((one - other).abs() <= limits).all())
            same = same and _distance(before.sums, result.sums) <= released
        if not same:
            raise _by_company()

    def _compare_alone(
        self,
        first: _Pass,
        company: tuple[BatchSums, float],
        alone: tuple[BatchSums, float],
        clip: float,
    ) -> None:
        """The sums, and the norms before clipping: clipped, a gradient and its double are one."""
        relative, absolute = first.other_shape
        sums = [result.sums for result, _ in (company, alone)]
        norms = [norm for _, norm in (company, alone)]
        moved = _distance(*sums)
        limit = relative * max(_distance(one, {}) for one in sums) + absolute * clip
        if all(map(math.isfinite, norms)):
            same = abs(norms[0] - norms[1]) <= relative * max(norms) + absolute * clip
        else:
            same = not any(map(math.isfinite, norms))
        if not (moved <= limit and same):
            raise _by_company()

    def _compare_again(self, first: _Pass, before: BatchSums, result: BatchSums) -> None:
        """The same unit alone, twice: nothing that the first pass left may show in the second."""
        if not _close(_norms(before), _norms(result), first.tolerance):
            raise UnsupportedModel(
                "a unit's gradient is another one when it is computed again: the model or the loop "
                "keeps something of the rows before it (an average in an attribute, a queue), so "
                f"that examples are mixed; keep nothing of them; or the loop draws {_OWN_NUMBERS}"
            )

    def _compare_replaced(
        self, first: _Pass, batch: Batch, losses: Tensor, result: BatchSums, clip: float
    ) -> None:
        self._compare_rows(first, batch, losses.detach(), result)
        count = len(batch.replaced)
        moved, limit = _distance(first.result.sums, result.sums), 2.0 * clip * count
        if not moved <= limit * (1.0 + 1e-3):
            raise UnsupportedModel(
                f"replacing {_units(count)} moved the sum by more than twice the clip each, "
                f"{limit:.6g}{self._culprit(batch, first.tolerance)}"
            )
        self._prints = self._prints[:1]
        if self._pending is None:
            self._pending = SensitivityCheck(len(batch.units), moved, limit, self._ranks)

    def passed(self) -> tuple[Batch, BatchSums]:
        """Ends the check; returns the first pass, which may count now."""
        first = self._first
        assert first is not None
        if self._schedule is not None:
            self._schedule.end()
        self.report, self._pending = self._pending, None
        self._armed, self._first, self._prints = False, None, []
        self._company = self._plain = None
        return first.batch, first.result

    def _compare_rows(self, first: _Pass, batch: Batch, losses: Tensor, result: BatchSums) -> None:
        others = [at for at in range(len(batch.units)) if at not in batch.replaced]
        for what, one, other in (
            ("loss", _other_rows(batch, first.losses), _other_rows(batch, losses)),
            ("gradient norm", _norms(first.result)[others], _norms(result)[others]),
            ("clipping", first.result.scales[:, others], result.scales[:, others]),
        ):
            if not _close(one, other, first.tolerance):
                raise UnsupportedModel(
                    f"replacing {_units(len(batch.replaced))} changed the {what} of others, so "
                    "examples are mixed"
                    f"{self._culprit(batch, first.tolerance)}; remove the operation that does it "
                    "(batch norm: tacit.training.fix(model)), or write the loss per row; or the "
                    f"loop draws {_OWN_NUMBERS}"
                )

    def _culprit(self, batch: Batch, tolerance: float) -> str:
        """The first module whose result changed for other rows."""
        if len(self._prints) != 2:
            return ""
        before, after = self._prints
        for name, rows in before.items():
            if name not in after or rows.shape != after[name].shape:
                continue
            one, other = _other_rows(batch, rows), _other_rows(batch, after[name])
            if not _close(one, other, tolerance):
                return f", first seen in the result of module {name}"
        return ", after the last module (in the loss, it seems)"

    def check_reached(self, result: BatchSums) -> None:
        """Refuses a parameter that the losses of a rehearsal do not reach.

        Lots may leave some out: a layer that is dropped at random, a head that serves in turn.
        """
        for name in self._parameters:
            if name not in result.sums:
                raise UnsupportedModel(
                    f"parameter {name} got no gradient: the losses do not depend on it (or the "
                    "forward pass uses it under no_grad or reentrant checkpointing); freeze it "
                    "with requires_grad_(False), or take it out of the optimizer"
                )


def _by_company() -> UnsupportedModel:
    return UnsupportedModel(
        "a unit's gradient depends on how many or how long the rows beside it are, so examples are "
        "mixed: leave padding out of averages (a mask; see tacit.losses.token_mean), put it at the "
        "ends of rows (padding_side='right'), and divide by nothing, and choose no rows, as the "
        f"batch decides; or the loop draws {_OWN_NUMBERS}"
    )


@final
class _Dry(TorchFunctionMode):
    """What a rehearsed forward pass is spared, and what is looked at before it is computed.

    Without ``dropout`` none is done: its random numbers follow the shape of the batch, so that the
    same row would have others in another one.
    """

    def __init__(self, *, dropout: bool) -> None:
        super().__init__()
        self._dropout = dropout

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if func in LABELLED:
            _check_labels(*args, **kwargs)
        if getattr(func, "__name__", "") in _PRODUCTS and _called_by("torch.amp.grad_scaler"):
            raise UnsupportedModel(
                "the losses are scaled by a GradScaler, so that every gradient would be clipped: "
                "leave the scaler out; float16 is scaled by tacit itself, see "
                "tacit.Performance(precision='float16')"
            )
        if not self._dropout and func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if not self._dropout and func is functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs = kwargs if len(args) > 4 else kwargs | {"dropout_p": 0.0}
        return func(*args, **kwargs)


eval_frame.set_code_exec_strategy(_Dry.__torch_function__.__code__, ONLY_INLINED)


def _check_labels(
    input: Any,  # noqa: A002 - PyTorch's name
    target: Any,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    *_: Any,
    **__: Any,
) -> None:
    """Refuses labels out of range, which stop a GPU for good, before they are used."""
    del weight, size_average
    if not (isinstance(input, torch.Tensor) and isinstance(target, torch.Tensor)):
        return  # PyTorch says what is amiss
    if target.is_floating_point() or input.ndim == 0:
        return
    outside = (target < 0) | (target >= input.shape[min(1, input.ndim - 1)])
    if bool((outside & (target != ignore_index)).any()):
        raise wrong_label()


def _called_by(module: str) -> bool:
    """Whether the current operation was called by a function of ``module``."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def _noting(
    prints: dict[str, Tensor], name: str, batch: Batch, weights: dict[Hashable, Tensor]
) -> Any:
    """A forward hook that keeps one number for each row of a module's result.

    ``weights`` are those of the pass by their number: many results have the same size.
    """

    def note(module: nn.Module, args: Any, result: Any) -> None:
        del args
        with torch._C.DisableTorchFunction():  # nobody records or watches what is done here
            tensor = next((r for r in tree_leaves(result) if _has_rows(r)), None)
            if tensor is not None:
                rows = tensor.detach().float().unsqueeze(-1).flatten(1)
                size = (rows.shape[1], rows.device)
                if size not in weights:
                    weights[size] = _uneven(*size)
                prints.setdefault(f"{name} ({type(module).__name__})", rows @ weights[size])

    def _has_rows(value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.ndim > 0
            and value.shape[0] == len(batch.rows)
        )

    return note


def _uneven(count: int, device: torch.device) -> Tensor:
    """Weights between ½ and 1½, no two alike: a change of a row shows in its weighted sum."""
    places = torch.arange(count, device=device, dtype=torch.float64)
    return ((places * 0.6180339887).frac() + 0.5).float()


def _other_rows(batch: Batch, rows: Tensor) -> Tensor:
    """``rows`` without those of replaced units and of padding."""
    return rows[torch.from_numpy(batch.kept_rows).to(rows.device)]


def _units(count: int) -> str:
    return "one unit" if count == 1 else f"{count} units"


def _norms(result: BatchSums) -> Tensor:
    return result.squared_norms.sum(0).sqrt()


def _close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Equal up to rounding, and not finite in the same places."""
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return False
    size = one.abs()[finite]
    if not len(size):
        return True
    difference = (one - other).abs()[finite]
    return bool((difference <= tolerance * (size + size.mean()) + 1e-12).all())


def _distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    total = 0.0
    for name in {**one, **other}:
        sides = [side[name].double() for side in (one, other) if name in side]
        difference = sides[0] - sides[1] if len(sides) == 2 else sides[0]
        total += float(difference.square().sum())
    return math.sqrt(total)


def random_state() -> Any:
    """The states of the generators that models and data sets draw from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda, random.getstate(), np.random.get_state()  # noqa: NPY002


def same_random_state(state: Any) -> bool:
    """Whether no random number was drawn since ``random_state`` returned ``state``."""
    host, cuda, python, numpy = state
    now_host, now_cuda, now_python, now_numpy = random_state()
    return (
        torch.equal(host, now_host)
        and all(map(torch.equal, cuda or (), now_cuda or ()))
        and python == now_python
        and all(np.array_equal(one, other) for one, other in zip(numpy, now_numpy, strict=True))
    )


def set_random_state(state: Any) -> None:
    """Puts back what ``random_state`` returned."""
    host, cuda, python, numpy = state
    torch.set_rng_state(host)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002 - the legacy state is what data sets draw from


@final
class Chance:
    """Those generators inside of a session: dropout's masks and augmentations are drawn from them.

    Rows draw in turn, so that one row more moves what all rows after it draw. Whoever knows the
    seed sees that, far beyond one record's clip; trainers and scripts seed with numbers that
    everybody knows. From a seed that nobody knows, all rows draw alike, whoever is there.

    Guarantee:
        Lots, and batches that were loaded, begin with seeds of ``stream``, also after a loop, a
        metric, a callback or a data set has seeded any of them. Processes that train together have
        one each. Generators of one's own are not seen, nor what seeds between a batch and its
        losses. Without a stream nothing is seeded.
    """

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream
        self._before: Any = None
        self._seed = 0

    def enter(self) -> None:
        """From now on nobody knows what will be drawn."""
        if self._stream is not None:
            self._before = random_state()
            self._renew_torch(self._stream)
            self._renew_others(self._stream)

    def begin(self) -> None:
        """Draws from other seeds; of torch's only if it was seeded since, for only it tells.

        A data set that seeds by the number of a row would leave the last row's seed to dropout.
        """
        if self._before is None or self._stream is None:
            return
        if self._was_seeded:
            self._renew_torch(self._stream)
        self._renew_others(self._stream)

    def leave(self) -> None:
        """Puts the generators back where the session found them."""
        if self._before is not None:
            set_random_state(self._before)
            self._before = None

    @property
    def _was_seeded(self) -> bool:
        """Whether torch has another seed than it was given here, on the CPU or on a GPU."""
        seeds = {torch.initial_seed()}
        if torch.cuda.is_initialized():
            seeds.add(torch.cuda.initial_seed())
        return seeds != {self._seed}

    def _renew_torch(self, stream: Stream) -> None:
        self._seed = int.from_bytes(stream.bytes(8)) >> 1
        torch.manual_seed(self._seed)

    @staticmethod
    def _renew_others(stream: Stream) -> None:
        random.seed(stream.bytes(32))
        np.random.seed(np.frombuffer(stream.bytes(32), np.uint32))  # noqa: NPY002 - as above
