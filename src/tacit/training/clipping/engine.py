"""One batch from its forward pass to its clipped sum: recorder, rules and norms put together."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch.overrides import _get_current_function_mode

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.training.clipping.forms import Nothing
from tacit.training.clipping.forms.matrix import tf32_convolutions, tf32_matrices
from tacit.training.clipping.program import compiled_program
from tacit.training.clipping.recorder import Recorder
from tacit.training.clipping.rules import EXPANSIONS, RULES, fallback
from tacit.training.clipping.structure import (
    Layout,
    Origin,
    Rows,
    candidates,
    gradients_at,
    layouts,
    left_open,
    mixed,
    origin_of,
    reached_leaves,
    separate,
    strays,
    told_apart,
    touched,
)
from tacit.training.clipping.sums import (
    BatchSums,
    Contribution,
    Scaling,
    clipped_sums,
    fine_products,
    margin,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from tacit.training.clipping.forms import Form
    from tacit.training.clipping.recorder import Use
    from tacit.training.clipping.sums import Sink

# Half precision underflows on small gradients; a power of two changes no digit.
_HALF_LOSS_SCALE = 1024.0
_SAME_PATH = (
    "a compiled model must take the same path for batches of the same shape (pass the model "
    "uncompiled)"
)
# How many shapes of batches are remembered; unpadded lots come in many.
_MOST_SHAPES = 256


@final
@dataclass(frozen=True, slots=True)
class Structure:
    """What the uses of a batch have in common with those of every batch of the same shapes."""

    uses: tuple[Use, ...]
    origins: tuple[tuple[Origin | None, ...], ...]  # of each use's weights
    layouts: tuple[Layout | None, ...]  # of each use's result; None: no loss has shown it
    entangled: frozenset[str]  # parameters whose uses overlap, or that enter expressions
    settled: bool  # whether the layouts are the only ones that batches of these shapes can have

    def like(self, other: Structure) -> bool:
        """Whether the same program serves both."""
        return self is other or (
            self.origins == other.origins
            and self.layouts == other.layouts
            and all(
                (a.rule, a.settings, a.shape, a.dtype) == (b.rule, b.settings, b.shape, b.dtype)
                for a, b in zip(self.uses, other.uses, strict=True)
            )
        )

    @property
    def compilable(self) -> bool:
        """Whether norms and sums are functions of saved tensors and gradients alone."""
        plain = all(use.rule.name != "fallback" for use in self.uses)
        return plain and not self.entangled and self.settled


@final
@dataclass(frozen=True, slots=True)
class UseReport:
    """What ``explain`` says about one use."""

    names: tuple[str, ...]
    rule: str
    way: str
    temporary: int  # numbers

    def cells(self) -> tuple[str, str, str, str]:
        """A row of the table that ``explain`` shows."""
        memory = f"{self.temporary * 4 / 2**20:.2f} MiB"
        return ", ".join(self.names), self.rule, self.way, memory


@final
@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a rehearsal showed of the rules: of a few units, as many as the plan alone decides.

    Its size is public: the memory of a lot would give away the size of the lot.
    """

    units: int
    reports: tuple[UseReport, ...]
    entangled: frozenset[str]

    def describe(self, unit: str) -> str:
        """Which rule serves each operation, and what it costs in memory."""
        rows = [("parameters", "rule", "norms by", f"temporary for {self.units} {unit}s")]
        rows += [report.cells() for report in self.reports]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        padded = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
        lines = ["  ".join(cells).rstrip() for cells in padded]
        slow = {name for one in self.reports if one.rule == "fallback" for name in one.names}
        if slow:
            lines += ["", f"By the exact but slower fallback: {', '.join(sorted(slow))}."]
        if self.entangled:
            names = ", ".join(sorted(self.entangled))
            lines += ["", f"Written out in slices, since their uses overlap: {names}."]
        return "\n".join(lines)


@final
class Engine:
    """Records the batches of one model and clips them.

    ``begin`` starts a batch, the forward pass follows between ``enter`` and ``stop``, and
    ``finish`` takes the losses.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        group: Mapping[str, int],
        *,
        stability: float | None = None,
        constants: Sequence[Tensor] = (),
        few_shapes: bool = False,
        compiled: bool = False,
    ) -> None:
        self.parameters = dict(parameters)
        self.recorder = Recorder(RULES, EXPANSIONS, fallback, constants)
        self.structure: Structure | None = None  # of the latest batch
        self.reports: tuple[UseReport, ...] = ()  # of the latest batch without a signature
        self._group = dict(group)
        self._stability = stability
        self._few_shapes, self._compiled = few_shapes or compiled, compiled
        self._layouts: dict[Hashable, tuple[tuple[Layout, ...], ...]] = {}  # that are left open
        self._entangled: dict[Hashable, frozenset[str]] = {}
        self._known: dict[Hashable, tuple[Structure, list[Tensor]]] = {}
        self._programs: dict[Hashable, Callable[..., BatchSums]] = {}
        self._rows = Rows(0)
        self._finite = torch.empty(0)  # of each unit: 0, or NaN if its loss is not
        self._signature: Hashable = None
        self._end_to_end = False
        self._entered = False

    @property
    def compiles(self) -> bool:
        """Whether norms and sums are compiled."""
        return self._compiled

    @property
    def groups(self) -> int:
        """How many groups of parameters have a bound of their own."""
        return max(self._group.values(), default=0) + 1

    def begin(
        self, rows: int, per_unit: int = 1, signature: Hashable = None, *, end_to_end: bool = False
    ) -> bool:
        """Starts a batch; returns whether a model that the user compiled may run compiled.

        ``signature`` stands for the shapes of the batch. Compiled code needs its taps beforehand,
        so the first batch of a signature must run uncompiled: it shows their shapes. Where rows
        lie ``end_to_end``, how many entries each has may be otherwise in every batch.
        """
        self._rows = Rows(rows, per_unit)
        self._end_to_end = end_to_end and rows > 1
        self._signature = signature
        known = self._known.get(signature)
        if known is None:
            self.recorder.begin(rows)
        else:
            self.recorder.begin(rows, known[0].uses, known[1])
        return self._few_shapes and known is not None

    def knows(self, signature: Hashable) -> bool:
        """Whether norms and sums of such a batch follow from saved tensors and gradients alone."""
        return signature in self._known

    def known(self, signature: Hashable) -> object:
        """What is kept of such batches, and read by those that come: a recording must hold it."""
        return self._known[signature]

    def enter(self) -> None:
        """Records from now on: puts the recorder on torch's stack of function modes.

        What is recorded is the caller's code: entering and leaving are two calls, no ``with``.
        """
        mode: AbstractContextManager[object] = self.recorder
        mode.__enter__()
        self._entered = True

    def stop(self) -> None:
        """Takes the recorder off the stack of modes, unless the caller has put others on top."""
        self.recorder.enabled = False
        if self._entered and _get_current_function_mode() is self.recorder:
            self._entered = False
            self.recorder.__exit__(None, None, None)

    def finish(
        self,
        losses: Tensor,
        weights: Tensor,
        bounds: Tensor,
        mask: Tensor,
        sink: Sink | None = None,
    ) -> BatchSums:
        """One backward pass; then norms, scales and clipped sums.

        ``weights`` multiplies the rows' losses (a view's share of its example, zero for padding),
        ``mask`` says which units are real, ``bounds`` holds the clip of each group. Sums go to
        ``sink`` as they are complete, if there is one; compiled code has none.
        """
        recorder = self.recorder
        recorder.enabled = False
        if self._rows.count == 0:
            return self._nothing(mask)
        recorder.check_saved()
        known = self._known.get(self._signature)
        if known is not None and not recorder.uses:  # as expected, or the user's model ran compiled
            structure, recorder.taps = known
        else:
            structure = self._analysed(losses, weights)
        self._check_complete(structure)
        self.structure = structure
        if self._end_to_end:
            self._check_apart(structure, losses)
        if None in structure.layouts:
            marks: Tensor = losses.detach().float() * 0.0
            self._finite = marks.unflatten(0, (self._rows.units, self._rows.per_unit)).sum(1)
        scaling = self._scaling(structure, losses.device)
        grads = self._backward(losses, weights, scaling.loss_scale)
        saved = recorder.saved
        with fine_products(losses.device):
            if self._compiled and known is not None and structure.like(known[0]):
                program = self._program(structure, scaling, saved, grads, bounds, mask)
                result = program(saved, grads, bounds, mask)
            else:
                # What watches a rehearsal's forward pass has nothing to see here.
                with torch.no_grad(), torch._C.DisableTorchFunction():
                    result = self._summed(structure, scaling, saved, grads, bounds, mask, sink)
        recorder.clear()
        return result

    def _nothing(self, mask: Tensor) -> BatchSums:
        none = torch.zeros(self.groups, 0, device=mask.device)
        self.structure = Structure((), (), (), frozenset(), settled=True)
        return BatchSums(none, none, {})

    def _check_complete(self, structure: Structure) -> None:
        """Every use that was met is accounted for, whether it ran compiled or not."""
        if self.recorder.count != len(structure.uses):
            raise UnsupportedModel(
                f"the forward pass used private weights {self.recorder.count} times where "
                f"{len(structure.uses)} were expected; {_SAME_PATH}"
            )
        if self.recorder.eagerly == self.recorder.count:
            return
        expected = [weight for use in structure.uses for weight in use.weights]
        met = self.recorder.met
        if len(met) != len(expected) or any(
            one is not None and one.requires_grad and one is not weight
            for one, weight in zip(met, expected, strict=False)
        ):
            raise UnsupportedModel(
                f"the forward pass used a private weight where it had used another; {_SAME_PATH}"
            )

    def _backward(self, losses: Tensor, weights: Tensor, scale: float) -> list[Tensor | None]:
        """The one backward pass. Compiled code recomputes nothing that the recorder should see."""
        taps = self.recorder.taps
        if not taps:
            return []
        if scale != 1.0:
            weights = weights * scale
        if not self.recorder.eagerly:
            return gradients_at(losses, weights, taps)
        with self._replaying():
            return gradients_at(losses, weights, taps)

    @contextmanager
    def _replaying(self) -> Iterator[None]:
        """Backward passes run in this thread, where recomputed activations meet the recorder.

        Where there are none it stays away: hooks that gather weights would go by it, call by call.
        """
        recorder = self.recorder
        here = torch.autograd.set_multithreading_enabled(False)
        if not recorder.may_recompute:
            with here:
                yield
            return
        recorder.enabled = recorder.replaying = True
        try:
            with here, recorder:
                yield
        finally:
            recorder.enabled = recorder.replaying = False

    def _scaling(self, structure: Structure, device: torch.device) -> Scaling:
        dtypes = {use.dtype for use in structure.uses}
        slack, scale = margin(dtypes, device), _loss_scale(structure.uses)
        return Scaling(self._group, self.groups, self._stability, slack, scale)

    def _analysed(self, losses: Tensor, weights: Tensor) -> Structure:
        """The structure of what was just recorded; layouts are probed where they are not known."""
        uses = tuple(self.recorder.uses)
        origins, key = self._kind(uses)
        if key not in self._entangled:
            self._entangled[key] = self._entangled_names(origins)
        open_ = self._open(uses, key)
        unknown = [at for at, one in enumerate(open_) if len(one) != 1]
        if key not in self._layouts or self._reaches(losses, unknown):
            self._refuse_unseen_uses(losses)
            found = self._probed(losses, weights, unknown, open_, self._names(origins))
            self._remember(key, found)
        else:
            found = dict.fromkeys(unknown, ())
        open_ = [found.get(at, one) for at, one in enumerate(open_)]
        places = tuple(one[0] if one else None for one in open_)
        settled = all(len(one) == 1 for one in open_)
        structure = Structure(uses, origins, places, self._entangled[key], settled)
        if self._signature is not None and structure.compilable:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            self._known[self._signature] = (structure, self.recorder.taps)
        return structure

    def _open(self, uses: Sequence[Use], key: Hashable) -> list[Sequence[Layout]]:
        """The layouts that each use's result can have, as far as batches before have shown."""
        rows = self._rows.count
        if rows <= 1:
            return [(Layout(),)] * len(uses)
        known = self._layouts.get(key, ((),) * len(uses))
        return [left_open(one, use.shape, rows) for one, use in zip(known, uses, strict=True)]

    def _remember(self, key: Hashable, found: Mapping[int, Sequence[Layout]]) -> None:
        """Keeps what a batch has shown, for others of its kind and of any size."""
        uses, rows = self.recorder.uses, self._rows.count
        if rows <= 1:
            return
        known = list(self._layouts.get(key, ((),) * len(uses)))
        for at, fitting in found.items():
            if fitting:
                known[at] = told_apart(fitting, uses[at].shape, rows)
        self._layouts[key] = tuple(known)

    def _reaches(self, losses: Tensor, uses: Sequence[int]) -> bool:
        """Whether a loss reaches the result of one of these uses, whose layouts are not known.

        Behind an adapter's matrix of zeros nothing has a gradient in a whole first lot.
        """
        taps = [self.recorder.taps[at] for at in uses]
        return bool(taps) and bool(touched(self._unweighted(losses, taps)))

    def _unweighted(self, losses: Tensor, taps: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of a sum of losses, as large as those that count: what vanishes must."""
        scale = _loss_scale(self.recorder.uses)
        with self._replaying():
            return gradients_at(losses, torch.full_like(losses, scale), taps, keep=True)

    def _probed(
        self,
        losses: Tensor,
        weights: Tensor,
        unknown: Sequence[int],
        open_: Sequence[Sequence[Layout]],
        names: Sequence[str],
    ) -> dict[int, Sequence[Layout]]:
        """The layouts of the uses for which none is known, or several are open.

        The gradients of those are held at the same time, beside all activations.
        """
        if not unknown:
            return {}
        shapes = [self.recorder.uses[at].shape for at in unknown]
        rows, real = self._rows.count, weights.nonzero().flatten().tolist()
        given = [
            open_[at] or list(candidates(shape, rows))
            for at, shape in zip(unknown, shapes, strict=True)
        ]
        taps, described = [self.recorder.taps[at] for at in unknown], [names[at] for at in unknown]
        found = layouts(losses, taps, given, real, described, self._unweighted)
        return dict(zip(unknown, found, strict=True))

    def _check_apart(self, structure: Structure, losses: Tensor) -> None:
        """Refuses entries that belong to the neighbours of the rows which they are taken for.

        Where the layout would put an entry into the next row, or into the one before: the losses
        of every other row alone must reach no entry of those between them.
        """
        taps = self.recorder.taps
        every_other = torch.arange(len(losses), device=losses.device) % 2
        with self._replaying():
            grads = gradients_at(losses, every_other.to(losses.dtype), taps, keep=True)
        for origins, layout, grad in zip(structure.origins, structure.layouts, grads, strict=True):
            if grad is not None and layout is not None and strays(layout, grad, every_other):
                raise mixed(" and ".join(self._names([origins])), 1, could_keep_rows=True)

    def _kind(
        self, uses: Sequence[Use]
    ) -> tuple[tuple[tuple[Origin | None, ...], ...], tuple[Hashable, ...]]:
        """Where the weights of these uses come from, and what batches that are used alike share."""
        origins = tuple(
            tuple(None if w is None else self._origin(w) for w in use.weights) for use in uses
        )
        key = tuple(
            (use.rule.name, from_, len(use.shape)) for use, from_ in zip(uses, origins, strict=True)
        )
        return origins, key

    def needs_weights(self, storages: set[int]) -> bool:
        """Whether ``finish`` does more than one backward pass, or reads weights after it.

        ``storages`` are those of weights that may be gone by then.
        """
        recorder = self.recorder
        if any(one.untyped_storage()._cdata in storages for one in recorder.saved):
            return True
        if self._end_to_end:
            return True
        if not recorder.uses:  # as an earlier batch of these shapes, which was neither
            return False
        origins, key = self._kind(recorder.uses)
        probed = all(len(one) == 1 for one in self._open(recorder.uses, key))
        expressed = any(one is not None and one.expression for each in origins for one in each)
        slow = any(use.rule.name == "fallback" for use in recorder.uses)
        return not probed or slow or expressed or bool(self._entangled.get(key, True))

    def _refuse_unseen_uses(self, losses: Tensor) -> None:
        """Recorded uses are detached from their weights; a loss that reaches one was not seen."""
        reached = reached_leaves(losses)
        for name, parameter in self.parameters.items():
            if id(parameter) in reached:
                if self.recorder.eagerly < self.recorder.count:  # compiled code reaches its inputs
                    raise UnsupportedModel(
                        f"parameter {name} is used in a compiled part of the model, and private "
                        f"weights before it otherwise than in the first batch; {_SAME_PATH}"
                    )
                raise UnsupportedModel(
                    f"parameter {name} enters the loss through an operation that tacit cannot see "
                    "(a custom autograd function, or code outside of torch functions): freeze it "
                    "with requires_grad_(False), and train other layers (PEFT: LoraConfig)"
                )

    def _origin(self, weight: Tensor) -> Origin:
        origin = origin_of(weight, self.parameters)
        if not origin.names:
            raise UnsupportedModel(
                f"a trainable parameter of shape {tuple(weight.shape)} is used, but no optimizer "
                "holds it: add it to an optimizer, freeze it with requires_grad_(False), or call "
                "its module under torch.no_grad()"
            )
        return origin

    def _entangled_names(self, origins: Sequence[Sequence[Origin | None]]) -> frozenset[str]:
        of_name: dict[str, list[Origin]] = {}
        for origin in (one for each in origins for one in each if one is not None):
            for name in origin.names:
                of_name.setdefault(name, []).append(origin)
        entangled = {n for n, each in of_name.items() if not separate(each, self.parameters[n])}
        return frozenset(entangled)

    def _names(self, origins: Sequence[Sequence[Origin | None]]) -> list[str]:
        return [
            " and ".join(name for one in each if one is not None for name in one.names)
            for each in origins
        ]

    def _summed(
        self,
        structure: Structure,
        scaling: Scaling,
        saved: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        bounds: Tensor,
        mask: Tensor,
        sink: Sink | None = None,
    ) -> BatchSums:
        contributions = self.contributions(structure, saved, grads)
        return clipped_sums(
            self.parameters, contributions, structure.entangled, scaling, bounds, mask, sink
        )

    def contributions(
        self, structure: Structure, saved: Sequence[Tensor], grads: Sequence[Tensor | None]
    ) -> list[Contribution]:
        """The per-unit gradients of every weight of every use."""
        found: list[Contribution] = []
        reports: list[UseReport] = []
        at = 0
        for use, origins, layout, grad in zip(
            structure.uses, structure.origins, structure.layouts, grads, strict=True
        ):
            inputs, at = saved[at : at + use.saved], at + use.saved
            if grad is None:
                continue
            forms = self._forms(use, layout, inputs, grad)
            if self._signature is None:
                reports += [
                    UseReport(origin.names, use.rule.name, form.way, form.temporary)
                    for origin, form in zip(origins, forms, strict=True)
                    if origin is not None and form is not None
                ]
            for weight, origin, form in zip(use.weights, origins, forms, strict=True):
                if origin is not None and form is not None:
                    tangled = origin.expression or (
                        origin.view is not None and bool(structure.entangled & set(origin.names))
                    )
                    found.append(Contribution(origin, form, weight if tangled else None))
        if self._signature is None:
            self.reports = tuple(reports)
        return found

    def _forms(
        self, use: Use, layout: Layout | None, inputs: Sequence[Tensor], grad: Tensor
    ) -> Sequence[Form | None]:
        """The gradients of a use's weights; zeros where no loss has shown which row has what.

        There the gradient vanishes, save where a row is not finite: of a guessed row, that would
        take another's part out of the sum, or everybody's. Whose is not is read off the losses.
        """
        if layout is None:
            return [None if one is None else Nothing(self._finite, one) for one in use.weights]
        return use.gradients(inputs, grad, Rows(self._rows.count, self._rows.per_unit, layout))

    def _program(
        self,
        structure: Structure,
        scaling: Scaling,
        saved: list[Tensor],
        grads: list[Tensor | None],
        bounds: Tensor,
        mask: Tensor,
    ) -> Callable[..., BatchSums]:
        unreached = tuple(at for at, grad in enumerate(grads) if grad is None)
        # Written down with what TF32 rounds, or without; the library's products go by the switch.
        tf32 = (tf32_matrices(), tf32_convolutions())
        key = (self._signature, scaling.slack, scaling.loss_scale, unreached, tf32)
        if key not in self._programs:

            def plain(*inputs: Any) -> BatchSums:
                return self._summed(structure, scaling, *inputs)

            self._programs[key] = compiled_program(plain, saved, grads, bounds, mask)
        return self._programs[key]


def _loss_scale(uses: Iterable[Use]) -> float:
    return _HALF_LOSS_SCALE if any(use.dtype == torch.float16 for use in uses) else 1.0


# ---- one batch by itself: what tests, benchmarks and researchers ask for


@final
@dataclass(frozen=True, slots=True)
class UseRecord:
    """One operation that private parameters entered, and the rule that served it."""

    rule: str
    parameters: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Clipped:
    """The norms, scales and clipped sum of one batch. All of it is private: no noise was added."""

    norms: Tensor  # (units,)
    scales: Tensor  # (units,)
    sums: dict[str, Tensor]
    uses: tuple[UseRecord, ...]


def clipped_gradients(
    parameters: Mapping[str, torch.nn.Parameter],
    losses: Callable[[], Tensor],
    *,
    rows: int,
    clip: float,
    views: int = 1,
    constants: Sequence[Tensor] = (),
) -> Clipped:
    """Per-example gradient norms of one batch, and the sum of its gradients clipped to ``clip``.

    ``losses`` runs the forward pass and returns one loss for each of ``rows`` rows; ``views``
    consecutive rows are views of one example, whose gradients are averaged before clipping.
    ``constants`` are tensors that hold no example's data, such as the model's buffers.

    Guarantee:
        Each example's part of ``sums`` has an L2 norm of at most ``clip``. Nothing here is private:
        noise is added by ``tacit.private``, not by this function.
    """
    positive("clip", clip)
    per_unit = whole("views", views)
    engine = Engine(parameters, dict.fromkeys(parameters, 0), constants=constants)
    engine.begin(rows, per_unit)
    engine.enter()
    try:
        values = losses()
    finally:
        engine.stop()
    if values.shape != (rows,) or rows % per_unit:
        raise InvalidArgument(
            f"losses must return shape (rows,) = ({rows},) with rows a multiple of views={views}, "
            f"got shape {tuple(values.shape)}"
        )
    weights = torch.full_like(values, 1.0 / per_unit).detach()
    mask = torch.ones(rows // per_unit, dtype=torch.bool, device=values.device)
    bounds = torch.tensor([float(clip)], device=values.device)
    batch = engine.finish(values, weights, bounds, mask)
    assert engine.structure is not None
    uses = tuple(
        UseRecord(use.rule.name, tuple(n for o in each if o is not None for n in o.names))
        for use, each in zip(engine.structure.uses, engine.structure.origins, strict=True)
    )
    sums = {name: batch.sums.get(name, torch.zeros_like(p)) for name, p in parameters.items()}
    return Clipped(batch.squared_norms[0].sqrt(), batch.scales[0], sums, uses)
