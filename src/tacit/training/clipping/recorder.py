"""Seeing every use of a private weight, without touching the user's module.

A torch function mode sees each functional call that a weight enters, whichever module makes it:
tied, reused, bare and functional uses included. The call is redone with the weight detached and a
zero *tap* added to its result. The gradient with respect to the tap is the result's gradient, so
one backward to the taps yields what the rules need, and no non-private weight gradient is ever
computed. Dynamo traces this code too: where the user has compiled the model, the taps must be there
before the call, so the first batch of each shape runs uncompiled and its taps are kept.

Here is also what a rule for an operation consists of, and what rules share.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame
from torch.nn import Parameter, functional
from torch.overrides import TorchFunctionMode

from tacit.errors import InvalidArgument, ProtocolError, UnsupportedModel
from tacit.training.clipping.forms import Dense
from tacit.training.clipping.forms.matrix import accumulator, for_kernels, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tacit.training.clipping.forms import Form
    from tacit.training.clipping.structure import Rows


# Dynamo may trace such a function as part of what calls it, and never compiles it by itself, nor
# what it calls. Where a model breaks its graph, it would: guards know a getter (of ``x.shape``) by
# an address, which that of ``x.dtype`` has a moment later, and the wrong one is called.
ONLY_INLINED = eval_frame._FrameExecStrategy(
    eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP
)


class Record(Protocol):
    """Redoes a call with its weights detached and hands the pieces to ``recorder.use``.

    It takes the torch function's own arguments after the recorder, and returns the call's result,
    or ``NotImplemented`` where the rule does not apply.
    """

    def __call__(self, recorder: Recorder, /, *args: Any, **kwargs: Any) -> Any:
        """Records one call."""


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of operation is recorded, and what its per-example gradients look like.

    ``gradients`` is a pure function of what was saved and of the gradient of the result; it returns
    one form (or None) per weight slot.
    """

    name: str
    gradients: Callable[[Gradient], tuple[Form | None, ...]]


@final
@dataclass(frozen=True, slots=True)
class Gradient:
    """What a rule sees: the saved inputs, the result's gradient, and how rows lie in them."""

    saved: tuple[Tensor, ...]
    settings: Any
    grad: Tensor
    shapes: tuple[tuple[int, ...] | None, ...]  # of the weights; None: no private weight there
    rows: Rows


@final
@dataclass(frozen=True, slots=True)
class Use:
    """One recorded call: which weights entered it, and how many tensors it saved."""

    rule: Rule
    weights: tuple[Tensor | None, ...]
    saved: int
    settings: Any
    shape: tuple[int, ...]  # of the result
    dtype: torch.dtype  # of the result

    def gradients(
        self, saved: Sequence[Tensor], grad: Tensor, rows: Rows
    ) -> tuple[Form | None, ...]:
        """The per-unit gradients of this use's weights."""
        shapes = tuple(None if w is None else tuple(w.shape) for w in self.weights)
        return self.rule.gradients(Gradient(tuple(saved), self.settings, grad, shapes, rows))


@final
class Recorder(TorchFunctionMode):
    """Records uses of private weights while it is entered and ``enabled``.

    ``rows`` is the number of rows of the current batch. Weights are the trainable parameters and
    whatever is computed from them and constants alone (``derived``).
    """

    def __init__(
        self,
        rules: Mapping[Callable[..., Any], Record],
        expansions: Mapping[Callable[..., Any], Record],
        fallback: Callable[..., Any],
        constants: Sequence[Tensor] = (),
    ) -> None:
        super().__init__()
        self._rules = rules
        self._expansions = expansions
        self._fallback = fallback
        self._constants = list(constants)
        self._lasting = len(self._constants)
        self._rowless: set[int] = set()  # ids of constants that have no entry for any row
        self._numbers: set[int] = set()  # ids of constants, from the first on
        self._numbered = 0
        self._ranges: list[tuple[Tensor, int, int]] = []  # constants first, first + 1, …
        self.rows = 0
        self.enabled = False
        self.replaying = False
        self.uses: list[Use] = []
        self.taps: list[Tensor] = []
        self.expected: tuple[Use, ...] = ()  # the uses of an earlier batch of these shapes,
        self.given: list[Tensor] = []  # and their taps, which serve again
        self.saved: list[Tensor] = []
        self.derived: list[Tensor] = []
        self._notes: list[tuple[Tensor, int, tuple[Any, ...]]] = []  # of derived weights, by rules
        self.count = 0
        self.met: list[Parameter | None] = []  # by slots of uses in compiled code; None elsewhere
        self.eagerly = 0  # how many of them ran outside of compiled code
        self._saves_otherwise = False
        self._versions: list[tuple[Tensor, int]] = []
        self._cast: _Cast | None = None  # of the latest input that autocast takes in half precision

    def begin(
        self, rows: int, expected: tuple[Use, ...] = (), taps: list[Tensor] | None = None
    ) -> None:
        """Starts a batch of ``rows`` rows.

        ``expected`` and ``taps`` were kept from a batch of the same shapes. As long as the uses
        turn out the same, nothing is noted again, and ``uses`` stays empty.
        """
        self.rows = rows
        self.clear()
        self.taps = []
        self.expected, self.given = expected, [] if taps is None else taps
        self.count = 0
        self.enabled, self.replaying = True, False
        self.eagerly, self._saves_otherwise = 0, False

    def clear(self) -> None:
        """Lets go of everything that was recorded but the taps."""
        self.uses, self.saved, self.derived, self._versions = [], [], [], []
        self._notes, self.met, self._ranges = [], [], []
        self._cast = None
        del self._constants[self._lasting :]
        self._numbers, self._numbered = set(), 0
        self._rowless = set(map(id, self._constants))  # buffers: as long as they were, always

    def check_saved(self) -> None:
        """Refuses a model that changed, in place, what a gradient needs.

        It says no shape: that of a batch tells how many rows were drawn.
        """
        for tensor, version in self._versions:
            if tensor._version != version:
                raise UnsupportedModel(
                    f"a tensor of {tensor.ndim} dimensions that enters an operation with private "
                    "weights is changed in place afterwards; use the operation that returns a new "
                    "tensor"
                )

    @property
    def may_recompute(self) -> bool:
        """Whether the backward pass may compute a use again, as checkpoints do.

        They have hooks for what autograd saves, which compiled code does not show.
        """
        return self.eagerly > 0 and (self._saves_otherwise or self.eagerly < self.count)

    def is_weight(self, value: object) -> bool:
        """Whether ``value`` is a private parameter or derived from private parameters alone."""
        kind = type(value)  # asked first: an instance check against Parameter runs Python code
        if kind is Parameter:
            return value.requires_grad  # type: ignore[attr-defined, no-any-return]
        if not isinstance(value, Tensor):
            return False
        if kind is not Tensor and isinstance(value, Parameter):
            return value.requires_grad
        for one in self.derived:  # noqa: SIM110 - Dynamo traces the loop, not the generator
            if one is value:
                return True
        return False

    def derive(self, weight: Tensor, note: tuple[Any, ...]) -> None:
        """Takes ``weight``, computed from weights alone, for one; ``note`` is for another rule."""
        self.derived.append(weight)
        self._notes.append((weight, _version(weight), note))

    def note_of(self, weight: Tensor) -> tuple[Any, ...] | None:
        """What a rule noted of a derived weight; None once anything was written into it."""
        for one, version, note in self._notes:
            if one is weight:
                return note if _version(one) == version else None
        return None

    def as_computed(self, value: Tensor) -> Tensor:
        """``value`` as a matrix product under autocast takes it, so that this copy serves both.

        It also serves the next use of the same input: queries, keys and values are made of one.
        """
        kind = value.device.type
        if not torch.is_autocast_enabled(kind) or value.dtype != torch.float32:
            return value
        dtype = torch.get_autocast_dtype(kind)
        if torch.compiler.is_compiling() or self.replaying or type(value) is not Tensor:
            return value.to(dtype)
        if torch._C._are_functorch_transforms_active():
            return value.to(dtype)
        known = self._cast
        if known is not None and known.serves(value, dtype):
            again: Tensor = _SameCast.apply(value, known.cast)  # type: ignore[no-untyped-call]
            return again
        cast = value.to(dtype)
        self._cast = _Cast(weakref.ref(value), value._version, cast.detach())
        return cast

    def use(
        self,
        rule: Rule,
        weights: tuple[Tensor | None, ...],
        saved: tuple[Tensor, ...],
        settings: Any,
        result: Tensor,
    ) -> Tensor:
        """Notes one use and returns its result with a tap added.

        ``result`` must be a new tensor that its own backward pass does not need: outside of
        compiled code the tap is added in place.
        """
        if self.replaying:
            return result + result.new_zeros(()).expand(result.shape).requires_grad_()
        for weight in weights:
            if weight is not None and weight.requires_grad and not self.is_weight(weight):
                raise UnsupportedModel(
                    f"the weight of a {rule.name} operation is computed from data, or from what "
                    "tacit cannot tell from data; write the product out (torch.einsum), or compute "
                    "the weight from parameters and buffers alone"
                )
        for one in saved:
            # Detached: compiled code would otherwise be asked for a gradient of each of them.
            self.saved.append(one.detach())
        at = self.count
        self.count = at + 1
        if torch.compiler.is_compiling():
            for weight in weights:
                self.met.append(weight if type(weight) is Parameter else None)
            return _compiled_tap(result, self._given(at, result))
        self.met.extend([None] * len(weights))  # compared below
        self.eagerly += 1
        self._saves_otherwise = self._saves_otherwise or _saved_tensors_hooks(True) is not None
        latest = self.saved[len(self.saved) - len(saved) :]
        self._versions.extend((one, one._version) for one in latest)
        if not self.uses:
            if self._is_expected(at, rule, weights, settings, result):
                return _laid_alike(_tapped(result, self.given[at]))
            # It went another way than the batch whose taps were kept: note everything from here.
            self.uses, self.taps = list(self.expected[:at]), list(self.given[:at])
        if torch._C._are_functorch_transforms_active():
            raise UnsupportedModel(
                "a private weight is used inside of torch.func (vmap, grad or another transform), "
                "where its uses cannot be seen; write that part for a whole batch"
            )
        tap = result.new_zeros(()).expand(result.shape).requires_grad_()
        self.taps.append(tap)
        slots = tuple(w if self.is_weight(w) else None for w in weights)
        self.uses.append(Use(rule, slots, len(saved), settings, tuple(result.shape), result.dtype))
        return _laid_alike(_tapped(result, tap))

    def _is_expected(
        self, at: int, rule: Rule, weights: tuple[Tensor | None, ...], settings: Any, result: Tensor
    ) -> bool:
        if at >= len(self.expected):
            return False
        use = self.expected[at]
        return (
            use.rule is rule
            and use.shape == tuple(result.shape)
            and use.dtype == result.dtype
            and use.settings == settings
            and all(
                (own is weight and (own is None or own.requires_grad))
                or self._is_same_weight(own, weight)
                for own, weight in zip(use.weights, weights, strict=True)
            )
        )

    def _is_same_weight(self, own: Tensor | None, weight: Tensor | None) -> bool:
        """Whether a weight is the same view of the same parameter as that of an expected use.

        Views are made again in every pass. What is expected has no weights that are computed.
        """
        if own is None or weight is None:
            return own is None and not self.is_weight(weight)
        return self.is_weight(weight) and _same_view(own, weight)

    def _given(self, at: int, result: Tensor) -> Tensor:
        """The tap kept for this use; compiled code is traced again if anything about it changes."""
        known = at < len(self.given)
        if (
            not known
            or self.given[at].shape != result.shape
            or self.given[at].dtype != result.dtype
        ):
            raise UnsupportedModel(
                "the compiled model computes other shapes or precisions than at first for a batch "
                "of the same shape; keep autocast and the model's mode the same inside lots"
            )
        return self.given[at]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if self.enabled and func in _COPIES and not torch.compiler.is_compiling():
            return self._copied(func, args, kwargs)
        if self.enabled and func is Tensor.register_hook and self.is_weight(args[0]):
            raise UnsupportedModel(
                "the forward pass puts a hook on a private weight, or on what it computes of one: "
                "it is given gradients without noise, and may change them after they are clipped; "
                "leave it out"
            )
        if not self.enabled or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if func is Tensor.backward:
            raise ProtocolError(
                "loss.backward() inside a lot would bypass clipping and noise; pass one loss per "
                "row to dp.backward()"
            )
        if func is torch.autograd.grad and kwargs.get("create_graph"):
            raise UnsupportedModel(
                "a loss with a gradient in it (torch.autograd.grad with create_graph=True) needs "
                "second derivatives with respect to private weights, for which there is no rule"
            )
        if func in LABELLED and not torch.compiler.is_compiling():
            try:
                return self.call(func, *args, **kwargs)
            except IndexError:  # whose message holds the label
                raise wrong_label() from None
        return self.call(func, *args, **kwargs)

    def _copied(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A copy: none from the host to a device while a batch is recorded, or as if it were."""
        seen = torch.is_grad_enabled()
        result = self.call(func, *args, **kwargs) if seen else func(*args, **kwargs)
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        source = given[-1 if func is Tensor.copy_ else 0]
        if source.device.type == "cpu" and result.device.type != "cpu" and _is_under_way():
            raise HostCopy
        return result

    def call(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """One call under the mode; rules that break an operation up use it for the pieces."""
        weights, others = self._inputs(args, kwargs)
        if weights and others == 1 and func is Tensor.__setitem__ and self._fills(*args):
            others = 0
        if weights == 0:
            result = func(*args, **kwargs)
            if others and not torch.compiler.is_compiling():
                self._note_written(func, args, kwargs)
            if func not in _MAY_HOLD_DATA and (others == 0 or self._are_listed(args, kwargs)):
                for one in result if isinstance(result, (list, tuple)) else (result,):
                    if isinstance(one, Tensor):
                        self._constants.append(one)
                if func in _MAKE_RANGES and not torch.compiler.is_compiling():
                    self._note_range(func, args, kwargs, result)
            return result
        record = self._rules.get(func) if others else self._expansions.get(func)
        if record is not None and not (others and _any_complex(args, kwargs)):
            result = record(self, *args, **kwargs)
            if result is not NotImplemented:
                return result
        if getattr(func, "__name__", "") == "__set__":  # of an attribute, as in weight.data = ...
            raise UnsupportedModel(
                "the forward pass assigns to a private weight; compute a new tensor instead"
            )
        if others == 0:
            return self._derive(func, args, kwargs)
        return self._fallback(self, func, args, kwargs)

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, int]:
        """How many private weights, and how many tensors that may hold data, enter a call."""
        weights = others = 0
        rest: list[Tensor] = []
        for value in (*args, *kwargs.values()):
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, Tensor):
                    if self.is_weight(one):
                        weights += 1
                    else:
                        rest.append(one)
        for one in rest:
            if not self._is_constant(one, meets_weights=weights > 0):
                others += 1
        return weights, others

    def _note_range(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], made: Tensor
    ) -> None:
        """Remembers numbers that follow one another: to look would be to wait for a device."""
        first: int | None = None
        if func is not torch.arange:
            alike = made.numel() == args[0].numel() and made.dtype == args[0].dtype
            first = self.range_of(args[0]) if alike else None
        elif {type(one) for one in args} == {int} and not {"start", "end", "step"} & {*kwargs}:
            start, step = (0, 1) if len(args) == 1 else (args[0], [*args, 1][2])
            first = start if step == 1 else None
        if first is not None and made.dtype in (torch.int64, torch.int32):
            self._ranges.append((made, made._version, first))

    def range_of(self, value: Tensor) -> int | None:
        """Where a constant that counts one by one begins, if that is known from how it was made."""
        for one, version, first in self._ranges:
            if one is value and one._version == version:
                return first
        return None

    def _note_written(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """A constant that data are written into is none any more: zeros, filled step by step."""
        name = getattr(func, "__name__", "")
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        target = kwargs.get("out", args[0] if in_place and args else None)
        if not isinstance(target, Tensor):
            return
        base = target if target._base is None else target._base
        if self._is_listed(target) or self._is_listed(base):
            made = self._constants[self._lasting :]
            kept = [one for one in made if one is not target and not _same_memory(one, base)]
            self._constants[self._lasting :] = kept
            self._numbers, self._numbered = set(), 0
            self._rowless -= {id(target), id(base)}

    def _fills(self, target: Tensor, places: Any, value: Any) -> bool:
        """Whether a weight is written into a constant entry by entry, and not once for every row.

        Then the constant has as many entries as there are rows by chance: the weight has, too.
        """
        if torch.compiler.is_compiling() or not (self.is_weight(value) and self._is_listed(target)):
            return False
        with torch.no_grad():
            return bool(target[places].numel() == value.numel())

    def _is_constant(self, value: Tensor, *, meets_weights: bool) -> bool:
        """Frozen parameters, buffers, and what is made from them or from nothing: no example's."""
        if type(value) is not Tensor and isinstance(value, Parameter):
            return True
        if torch.compiler.is_compiling():
            for at in range(self._lasting):
                if self._constants[at] is value:
                    return True
        elif id(value) in self._rowless:
            return True
        return self._is_listed(value) and not self._has_rows(value, meets_weights=meets_weights)

    def _are_listed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether nothing but constants enters a call: of one with rows the first is taken, say."""
        for value in (*args, *kwargs.values()):
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, Tensor) and not self._is_listed(one):
                    return False
        return True

    def _is_listed(self, value: Tensor) -> bool:
        """Whether a tensor is among the constants: a model may make thousands of them."""
        if torch.compiler.is_compiling():  # Dynamo traces the loop, and knows no id of a tensor
            for one in self._constants:  # noqa: SIM110
                if one is value:
                    return True
            return False
        if self._numbered != len(self._constants):
            self._numbers.update(map(id, self._constants[self._numbered :]))
            self._numbered = len(self._constants)
        return id(value) in self._numbers

    def _has_rows(self, value: Tensor, *, meets_weights: bool) -> bool:
        """Whether a constant has an entry for every row: a recurrence's zeros, say."""
        if value.ndim < 2 or self.rows < 2 or self.rows not in value.shape[:2]:
            return False
        square = value.shape[0] == value.shape[1]
        if not meets_weights and (square or 1 in value.shape[:2]):
            return False  # it may be on the way to relative positions; that shows where it is used
        if value.is_floating_point() or value.is_complex():
            return True
        if value.shape[0] == 1:
            return False  # positions, as (1, time): as many as rows by chance
        if not square or torch.compiler.is_compiling():
            return True
        # A square of ids: positions repeated for every row, or relative positions, which are not.
        return bool((value == value[:1]).all()) or bool((value == value[:, :1]).all())

    def _derive(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A weight made from weights: kept in the autograd graph, known as a weight from now on."""
        # Dynamo ends a graph where a name is looked at. The first batch of its shapes, which ran
        # uncompiled, has shown the names.
        name = "" if torch.compiler.is_compiling() else getattr(func, "__name__", "")
        if name.endswith("_") and not name.endswith("__") and name not in _HARMLESS:
            raise UnsupportedModel(
                f"the forward pass changes a private weight in place ({name}); "
                "compute a new tensor instead"
            )
        result = func(*args, **kwargs)
        made = result if isinstance(result, (list, tuple)) else (result,)
        if func is Tensor.__setitem__:  # into a constant: zeros, of which some are a weight's
            made = (args[0],) if torch.compiler.is_compiling() else (args[0], args[0]._base)
        for one in made:
            if isinstance(one, Tensor) and not self.is_weight(one):
                (self.derived if one.requires_grad else self._constants).append(one)
                if not (one.requires_grad or torch.compiler.is_compiling()):
                    self._rowless.add(id(one))  # a sign, a rounding, a detached copy
        return result


eval_frame.set_code_exec_strategy(Recorder.__torch_function__.__code__, ONLY_INLINED)


class HostCopy(Exception):
    """Numbers would be copied from the host into a recording, which reads that memory later."""


_COPIES = frozenset({Tensor.to, Tensor.cuda, Tensor.copy_})
_saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks


@final
class _Cast(NamedTuple):
    """A tensor in half precision, and whose copy it is: as long as that has not changed."""

    of: weakref.ref[Tensor]  # it is let go as early as without the copy
    version: int
    cast: Tensor

    def serves(self, value: Tensor, dtype: torch.dtype) -> bool:
        """Whether it is what ``value`` is in this precision."""
        same = self.of() is value and self.version == value._version
        return same and self.cast.dtype == dtype


@final
class _SameCast(torch.autograd.Function):
    """``value.to(cast.dtype)`` once more, without a copy; its gradient is that of another."""

    @staticmethod
    def forward(value: Tensor, cast: Tensor) -> Tensor:  # noqa: ARG004 - they are the same
        return cast.view_as(cast)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gradients[0].to(ctx.dtype), None


@final
class _Tap(torch.autograd.Function):
    """``result.add_(tap)`` for a tap of zeros: changed in name only, so that nothing is computed.

    Whoever changes the result in place afterwards may, as if it had been added to.
    """

    @staticmethod
    def forward(result: Tensor, tap: Tensor) -> Tensor:  # noqa: ARG004 - it is zero
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        (gradient,) = gradients
        return gradient, gradient


@final
class _CompiledTap(torch.autograd.Function):
    """``result + tap`` for a tap of zeros: a copy, which compilers leave out."""

    @staticmethod
    def forward(result: Tensor, tap: Tensor) -> Tensor:  # noqa: ARG004 - it is zero
        return result.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        (gradient,) = gradients
        return gradient, gradient


@final
class _CompiledImageTap(torch.autograd.Function):
    """The same with a gradient whose channels come last: see ``_laid_alike``."""

    @staticmethod
    def forward(result: Tensor, tap: Tensor) -> Tensor:  # noqa: ARG004 - it is zero
        return result.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        (gradient,) = gradients
        laid = gradient.contiguous(memory_format=torch.channels_last)
        return laid, laid


def _compiled_tap(result: Tensor, tap: Tensor) -> Tensor:
    kind = _CompiledImageTap if channels_last(result) else _CompiledTap
    tapped: Tensor = kind.apply(result, tap)  # type: ignore[no-untyped-call]
    return tapped


def _tapped(result: Tensor, tap: Tensor) -> Tensor:
    """A result with its tap added in place; in a recording, whose launches count, by name only."""
    plain = type(result) is Tensor and not result._is_view()
    if not plain or not _is_recorded(result) or torch._C._are_functorch_transforms_active():
        return result.add_(tap)
    tapped: Tensor = _Tap.apply(result, tap)  # type: ignore[no-untyped-call]
    return tapped


def _version(weight: Tensor) -> int:
    """How often a tensor was written into; in compiled code the uncompiled batch before tells."""
    return 0 if torch.compiler.is_compiling() else weight._version


def _same_view(one: Tensor, other: Tensor) -> bool:
    return (
        one._base is not None
        and one._base is other._base
        and one.dtype == other.dtype
        and (one.shape, one.stride()) == (other.shape, other.stride())
        and one.storage_offset() == other.storage_offset()
    )


def _same_memory(one: Tensor, base: Tensor) -> bool:
    """Whether ``one`` is ``base`` or a view of it."""
    return one is base or one._base is base


def _any_complex(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether complex numbers enter: rules add up squares and products of real ones."""
    for value in (*args, *kwargs.values()):
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, Tensor) and one.is_complex():
                return True
    return False


def _is_recorded(result: Tensor) -> bool:
    return result.is_cuda and torch.cuda.is_current_stream_capturing()


def _is_under_way() -> bool:
    """Whether something is recorded on a GPU, or run as if it were."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _laid_alike(result: Tensor) -> Tensor:
    """``result``, with a gradient that is laid as it is: rule and backward pass share one copy.

    Normalisations over groups give gradients with the channels first. A convolution whose channels
    come last would copy them for itself.
    """
    if channels_last(result):
        # By a hook: the model may change the result in place, which a function's view forbids.
        result.register_hook(_with_channels_last)
    return result


def _with_channels_last(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)


def channels_last(value: Tensor) -> bool:
    """Whether an image, or the weight of its convolution, has its channels last in memory."""
    if value.ndim != 4 or value.shape[1] == 1:
        return False
    return value.stride(1) == 1 and value.stride(3) >= value.shape[1]


LABELLED = frozenset({functional.cross_entropy, functional.nll_loss})


def wrong_label() -> InvalidArgument:
    """The refusal of a label that names no class. It does not say which: labels are private."""
    return InvalidArgument(
        "labels must be numbers of classes, from 0 to one less than the model has outputs; one "
        "(which is secret) is not: count the classes of the data, or start their numbers at 0"
    )


# Tensors made from Python or NumPy values: nothing says that these values are not the data's.
_MAY_HOLD_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy})
_HARMLESS = frozenset({"requires_grad_", "retain_grad_"})
_MAKE_RANGES = frozenset({  # or keep the numbers of one and their order
    torch.arange, torch.unsqueeze, torch.squeeze, torch.reshape, torch.flatten, Tensor.unsqueeze,
    Tensor.squeeze, Tensor.reshape, Tensor.flatten, Tensor.view, Tensor.to, Tensor.contiguous,
})  # fmt: skip


# ---- what rules share


def detached(weight: Tensor | None) -> Tensor | None:
    """``weight`` outside the autograd graph, if there is one."""
    return None if weight is None else weight.detach()


def wide(value: Tensor) -> Tensor:
    """``value`` in at least single precision."""
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


def rows_first(of: Gradient, what: str) -> None:
    """Refuses rows elsewhere than in the first dimension, where a rule looks for them.

    In another one they would be taken for its channels or pixels, wherever the sizes allow it.
    """
    if of.rows.layout.dim != 0:
        raise UnsupportedModel(
            f"{what} has the rows of the batch elsewhere than in the first dimension of its input, "
            "where its rule needs them; move them there (x.movedim), or freeze its weights"
        )


def reduced(of: Gradient, grad: Tensor, factor: Tensor | None = None) -> tuple[Form | None, ...]:
    """The gradient of a weight that was broadcast: ``grad`` added up, by unit, to its shape.

    With ``factor`` it is the products of both that are added up.
    """
    (shape,) = of.shapes
    assert shape is not None
    aligned = (1,) * (grad.ndim - len(shape)) + shape
    if of.rows.count > 1 and _along_the_last(of, aligned, grad, factor):
        factors = None if factor is None else of.rows.terms(factor)
        sums = summed(of.rows.terms(grad), factors)
        return (Dense(sums.values.view(-1, *shape), sums.squares),)
    values = grad if factor is None else wide(grad) * factor
    kind = accumulator(values.dtype)
    if of.rows.count == 1:
        return (Dense(values.to(kind).sum_to_size(aligned).reshape(1, *shape)),)
    dim = of.rows.layout.dim
    if aligned[dim] != 1:
        raise UnsupportedModel(
            f"a private weight of shape {shape} has an entry for every row of the batch; "
            "per-example gradients need weights that do not depend on the batch"
        )
    split = of.rows.split(values)  # (units, entries, *the dimensions but the rows')
    rest = aligned[:dim] + aligned[dim + 1 :]
    spread = [at + 2 for at, size in enumerate(rest) if size == 1 and split.shape[at + 2] != 1]
    if split.shape[1] == 1 and not spread:  # every row has its own: nothing is added up
        return (Dense(split.to(kind).reshape(len(split), *shape)),)
    return (Dense(split.sum((1, *spread), dtype=kind).reshape(len(split), *shape)),)


def _along_the_last(
    of: Gradient, aligned: tuple[int, ...], grad: Tensor, factor: Tensor | None
) -> bool:
    """Whether a kernel may add up: the weight has an entry for each of the last dimension alone."""
    last = grad.ndim - 1
    plain = of.rows.layout.dim < last and aligned == (1,) * last + (grad.shape[-1],)
    if factor is None:
        return plain and for_kernels(grad)
    return plain and factor.shape == grad.shape and for_kernels(grad, factor)
