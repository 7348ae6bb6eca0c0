"""One batch from its forward pass to its clipped sum: recorder, rules and norms put together."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch

from tacit.errors import UnsupportedModel
from tacit.training.clipping.attribution import Origin, origin_of, reached_leaves, separate
from tacit.training.clipping.clipped import ClippedBatch, Clipping, Contribution, clip
from tacit.training.clipping.layout import Layout, Rows, candidates
from tacit.training.clipping.probing import gradients_at, layouts
from tacit.training.clipping.program import compiled_program
from tacit.training.clipping.recording import Recorder
from tacit.training.clipping.rules import EXPANSIONS, RULES, fallback
from tacit.training.clipping.scaling import margin

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from torch import Tensor

    from tacit.training.clipping.uses import Use

# Half precision underflows on small gradients; a power of two changes no digit.
_HALF_LOSS_SCALE = 1024.0
# How many shapes of batches are remembered; unpadded lots come in many.
_MOST_SHAPES = 256


@final
@dataclass(frozen=True, slots=True)
class Structure:
    """What the uses of a batch have in common with those of every batch of the same shapes."""

    uses: tuple[Use, ...]
    origins: tuple[tuple[Origin | None, ...], ...]  # of each use's weights
    layouts: tuple[Layout | None, ...]  # of each use's result; None: no loss has reached it yet
    entangled: frozenset[str]  # parameters whose uses overlap, or that enter expressions

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
        return plain and not self.entangled and None not in self.layouts


@final
@dataclass(frozen=True, slots=True)
class UseReport:
    """What ``explain`` says about one use."""

    names: tuple[str, ...]
    rule: str
    way: str
    temporary: int  # numbers


@final
class Engine:
    """Records the batches of one model and clips them.

    ``begin`` starts a batch, the forward pass follows with the recorder entered as a torch function
    mode, and ``finish`` takes the losses.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        group: Mapping[str, int],
        *,
        stability: float | None = None,
        constants: Sequence[Tensor] = (),
        compiled: bool = False,
    ) -> None:
        self.parameters = dict(parameters)
        self.recorder = Recorder(RULES, EXPANSIONS, fallback, constants)
        self.structure: Structure | None = None  # of the latest batch
        self.reports: tuple[UseReport, ...] = ()  # of the latest batch that was not compiled
        self._group = dict(group)
        self._stability = stability
        self._compiled = compiled
        self._layouts: dict[Hashable, tuple[Layout | None, ...]] = {}
        self._entangled: dict[Hashable, frozenset[str]] = {}
        self._known: dict[Hashable, tuple[Structure, list[Tensor]]] = {}
        self._programs: dict[Hashable, Callable[..., ClippedBatch]] = {}
        self._rows = Rows(0)
        self._signature: Hashable = None

    @property
    def groups(self) -> int:
        """How many groups of parameters have a bound of their own."""
        return max(self._group.values(), default=0) + 1

    def begin(self, rows: int, per_unit: int = 1, signature: Hashable = None) -> bool:
        """Starts a batch; returns whether a model that the user compiled may run compiled.

        ``signature`` stands for the shapes of the batch. Compiled code needs its taps beforehand,
        so the first batch of a signature must run uncompiled: it shows their shapes.
        """
        self._rows = Rows(rows, per_unit)
        self._signature = signature
        known = self._known.get(signature)
        if known is None:
            self.recorder.begin(rows)
        else:
            self.recorder.begin(rows, known[0].uses, known[1])
        return known is not None

    def finish(self, losses: Tensor, weights: Tensor, bounds: Tensor, mask: Tensor) -> ClippedBatch:
        """One backward pass; then norms, scales and clipped sums.

        ``weights`` multiplies the rows' losses (a view's share of its example, zero for padding),
        ``mask`` says which units are real, ``bounds`` holds the clip of each group.
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
        clipping = self._clipping(structure, losses.device)
        grads = self._backward(losses, weights, clipping.loss_scale)
        saved = recorder.saved
        if self._compiled and known is not None and structure.like(known[0]):
            program = self._program(structure, clipping, saved, grads, bounds, mask)
            result = program(saved, grads, bounds, mask)
        else:
            with torch.no_grad():
                result = self._clip(structure, clipping, saved, grads, bounds, mask)
        recorder.clear()
        return result

    def _nothing(self, mask: Tensor) -> ClippedBatch:
        none = torch.zeros(self.groups, 0, device=mask.device)
        self.structure = Structure((), (), (), frozenset())
        return ClippedBatch(none, none, {})

    def _check_complete(self, structure: Structure) -> None:
        """Every use that was met is accounted for, whether it ran compiled or not."""
        if self.recorder.count != len(structure.uses):
            raise UnsupportedModel(
                f"the forward pass used private weights {self.recorder.count} times where "
                f"{len(structure.uses)} were expected; a compiled model must take the same path "
                "for batches of the same shape (pass the model uncompiled)"
            )

    def _backward(self, losses: Tensor, weights: Tensor, scale: float) -> list[Tensor | None]:
        """The one backward pass. Compiled code recomputes nothing that the recorder should see."""
        taps = self.recorder.taps
        if not taps:
            return []
        if scale != 1.0:
            weights = weights * scale
        if not self.recorder.ran_eagerly:
            return gradients_at(losses, weights, taps)
        with self._replaying():
            return gradients_at(losses, weights, taps)

    @contextmanager
    def _replaying(self) -> Iterator[None]:
        """Backward passes run in this thread, where recomputed activations meet the recorder."""
        recorder = self.recorder
        recorder.enabled = recorder.replaying = True
        try:
            with torch.autograd.set_multithreading_enabled(False), recorder:
                yield
        finally:
            recorder.enabled = recorder.replaying = False

    def _clipping(self, structure: Structure, device: torch.device) -> Clipping:
        dtypes = {use.dtype for use in structure.uses}
        scale = _HALF_LOSS_SCALE if torch.float16 in dtypes else 1.0
        return Clipping(self._group, self.groups, self._stability, margin(dtypes, device), scale)

    def _analysed(self, losses: Tensor, weights: Tensor) -> Structure:
        """The structure of what was just recorded; layouts are probed where they are not known."""
        uses = tuple(self.recorder.uses)
        origins = tuple(
            tuple(None if w is None else self._origin(w) for w in use.weights) for use in uses
        )
        key = tuple(
            (use.rule.name, from_, len(use.shape)) for use, from_ in zip(uses, origins, strict=True)
        )
        if key not in self._entangled:
            self._entangled[key] = self._entangled_names(origins)
        places = self._layouts.get(key)
        if places is None or None in places:
            self._refuse_unseen_uses(losses)
            real = weights.nonzero().flatten().tolist()
            with self._replaying():
                found = layouts(losses, self.recorder.taps, uses, real, self._names(origins))
            places = tuple(found)
            if self._rows.count > 1:
                self._layouts[key] = places
        structure = Structure(uses, origins, places, self._entangled[key])
        if self._signature is not None and self._rows.count > 1 and structure.compilable:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            self._known[self._signature] = (structure, self.recorder.taps)
        return structure

    def _refuse_unseen_uses(self, losses: Tensor) -> None:
        """Recorded uses are cut off from their weights; a loss that reaches one was not seen."""
        reached = reached_leaves(losses)
        for name, parameter in self.parameters.items():
            if id(parameter) in reached:
                raise UnsupportedModel(
                    f"parameter {name} enters the loss through an operation that tacit cannot see "
                    "(a custom autograd function, or code outside of torch functions)"
                )

    def _origin(self, weight: Tensor) -> Origin:
        origin = origin_of(weight, self.parameters)
        if not origin.names:
            raise UnsupportedModel(
                f"a trainable parameter of shape {tuple(weight.shape)} is used, but no optimizer "
                "holds it: add it to an optimizer, or freeze it with requires_grad_(False)"
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

    def _clip(
        self,
        structure: Structure,
        clipping: Clipping,
        saved: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        bounds: Tensor,
        mask: Tensor,
    ) -> ClippedBatch:
        contributions = self.contributions(structure, saved, grads)
        return clip(self.parameters, contributions, structure.entangled, clipping, bounds, mask)

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
            rows = Rows(self._rows.count, self._rows.per_unit, layout or self._any_layout(grad))
            forms = use.gradients(inputs, grad, rows)
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
        self.reports = tuple(reports)
        return found

    def _any_layout(self, grad: Tensor) -> Layout:
        """A layout for a gradient that no row has touched: any will do, if its shape allows it."""
        return next(candidates(grad.shape, max(self._rows.count, 1)), Layout())

    def _program(
        self,
        structure: Structure,
        clipping: Clipping,
        saved: list[Tensor],
        grads: list[Tensor | None],
        bounds: Tensor,
        mask: Tensor,
    ) -> Callable[..., ClippedBatch]:
        unreached = tuple(at for at, grad in enumerate(grads) if grad is None)
        key = (self._signature, clipping.slack, clipping.loss_scale, unreached)
        if key not in self._programs:

            def plain(*inputs: Any) -> ClippedBatch:
                return self._clip(structure, clipping, *inputs)

            self._programs[key] = compiled_program(plain, saved, grads, bounds, mask)
        return self._programs[key]
