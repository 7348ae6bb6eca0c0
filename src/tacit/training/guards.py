"""What must hold of the model and the optimizers throughout training, and after it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, is_, methodcaller
from threading import RLock
from typing import TYPE_CHECKING, Any, final

from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._pytree import tree_leaves

from tacit.errors import Diverged, ProtocolError, TacitError, UnsupportedModel
from tacit.randomness import this_process
from tacit.training.distributed.sharded import at_rest, local, sharding_modules
from tacit.training.fingerprint import Fingerprint, new_key, tags
from tacit.training.updates import REPLAYED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.optim import Optimizer


@final
class Guard:
    """Notices changes to parameters, buffers and gradients that came from no private step.

    It looks at identities (a parameter or module that was replaced, an optimizer that was given
    others), at the versions that autograd counts, at every optimizer's step anywhere in the
    process, and at the values themselves, for what leaves no other trace.

    Guarantee:
        Values are compared once a lot before its noise is drawn, and before anything is signed or
        saved (on the CPU also before each lot is charged): what was changed by any other means than
        a private step or in ``dp.public()`` is refused, and nothing is signed. Not noticed is what
        is changed and changed back in between; what the optimizers and their hooks do while
        ``dp.step()`` runs them, which counts as the update; what is done to the optimizers' own
        state and settings, such as a learning rate that follows private data; and data kept where
        no ``state_dict`` takes it from, such as plain attributes. A released gradient that somebody
        else is to step (``expect_step``) must reach each optimizer as it was released, and once.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        optimizers: Sequence[Optimizer],
    ) -> None:
        self._model = model
        self._parameters = dict(parameters)
        self._optimizers = tuple(optimizers)
        self._key = new_key()
        self._open = False
        self._awaited: _AwaitedStep | None = None
        self._held = self._holdings()
        self._versions: list[int] = []  # of what is watched, in order
        self._buffers: list[tuple[nn.Module, str, str, Tensor, int]] = []
        self.note_all()
        hook = _weakly(self._before_step)
        setattr(hook, REPLAYED, True)  # a step that is replayed is the session's own
        before = register_optimizer_step_pre_hook(hook)
        self._unhook = [weakref.finalize(self, before.remove)]

    def close(self) -> None:
        """Stops watching optimizers."""
        for unhook in self._unhook:
            unhook()

    def allow(self, *, allowed: bool) -> None:
        """Whether optimizers may step now."""
        self._open = allowed

    # ---- a step that somebody else takes

    def expect_step(self) -> None:
        """Lets each optimizer step once, by the gradients that the parameters have now."""
        if len(self._unhook) == 1:  # only now: with such a hook no step is replayed
            after = register_optimizer_step_post_hook(_weakly(self._after_step))
            self._unhook.append(weakref.finalize(self, after.remove))
        gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
        self._awaited = _AwaitedStep(
            [*self._optimizers],
            {name: (one, one._version) for name, one in gradients.items() if one is not None},
        )

    def _check_awaited(
        self, optimizer: Optimizer, awaited: _AwaitedStep, given: tuple[object, ...]
    ) -> None:
        """Raises unless ``optimizer`` is about to step exactly what was released, once.

        A closure among what its ``step`` was ``given`` would come after this look at the gradients.
        """
        if any(callable(one) for one in given if one is not optimizer):
            raise ProtocolError(
                f"{type(optimizer).__name__}.step() was given a closure after dp.release(): the "
                "gradient that it computes would be stepped, which got no noise; call "
                "optimizer.step() without one"
            )
        if optimizer not in awaited.optimizers:
            raise ProtocolError(
                f"{type(optimizer).__name__}.step() was called twice for one release; each "
                "optimizer steps once after dp.release()"
            )
        self._check_versions()
        self.compare_values()
        self._check_values(wait=True)
        for name, parameter in self._stepped.items():
            released, version = awaited.gradients.get(name, (None, 0))
            same = parameter.grad is released and (released is None or released._version == version)
            if not same:
                raise ProtocolError(
                    f"the gradient of {name} was changed after dp.release(), and the optimizer "
                    "would step what got no noise; leave it as it is (no clip_grad_norm_, no "
                    "loss.backward()) until optimizer.step()"
                )

    def _after_step(self, optimizer: Optimizer, given: tuple[object, ...]) -> None:
        """Called after any optimizer in the process stepped: a private step may be complete."""
        del given
        awaited = self._awaited
        if awaited is None or optimizer not in awaited.optimizers:
            return
        awaited.optimizers.remove(optimizer)
        self.note_step()
        if not awaited.optimizers:
            self._awaited = None
            self.clear_gradients()

    def _check_stepped(self) -> None:
        if self._awaited is not None:
            raise ProtocolError(
                "the lot's gradient was released, and not every optimizer has stepped it; call "
                "optimizer.step() once after dp.release()"
            )

    # ---- taking things as they are

    def note_all(self) -> None:
        """Takes parameters, buffers, modules and optimizers as they are for right."""
        at_rest(self._model)
        self._in_pieces = sharding_modules(self._model)
        self._places = _Places(self._model)
        self._keepers = keepers(self._model)
        self._extra = extra_state(self._keepers, self._key)
        self._watched = {**dict(self._model.named_parameters()), **self._parameters}
        self._own = {id(p): name for name, p in self._watched.items()}
        held = (p for o in self._optimizers for group in o.param_groups for p in group["params"])
        # What an optimizer holds it steps, frozen or not, wherever it finds a gradient.
        self._stepped = self._watched | {
            f"(of an optimizer) {at}": p for at, p in enumerate(held) if id(p) not in self._own
        }
        self._weights = Fingerprint(self._watched, finite=frozenset(self._parameters))
        self._statistics = Fingerprint(dict(self._model.named_buffers()))
        # Looking at all values is one device's work then, so that a recording may hold it.
        together = not (self._statistics.on_the_cpu and not self._weights.on_the_cpu)
        recordable = self._weights.is_recordable and self._statistics.is_recordable
        self.is_recordable = recordable and together
        self._versions = self._counted()
        self._buffers = [
            (module, path, name, buffer, buffer._version)
            for path, module in self._model.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def note_step(self) -> None:
        """Takes the parameters as a private step left them for right."""
        self._versions = self._counted()
        self._weights.note()

    def _counted(self) -> list[int]:
        """The changes of each parameter that autograd has counted."""
        return list(map(_version, self._watched.values()))

    # ---- looking

    def check_parameters(self) -> None:
        """Raises if autograd counts a change of a parameter, or a gradient was set."""
        self._check_stepped()
        self._check_versions()
        check_hooks(self._parameters)
        for name, parameter in self._stepped.items():
            if parameter.grad is not None:
                if bool((parameter.grad != 0).any()):
                    raise ProtocolError(
                        f"the gradient of {name} was set by hand, or by loss.backward(), and the "
                        "optimizer would step it without noise; pass the losses to dp.backward(), "
                        "which keeps its sums elsewhere (optimizer.zero_grad() clears old ones)"
                    )
                parameter.grad = None

    def _check_versions(self) -> None:
        now = self._counted()
        if now == self._versions:
            return
        found = zip(self._watched, now, self._versions, strict=True)
        name = next(name for name, one, before in found if one != before)
        raise ProtocolError(
            f"parameter {name} was changed in place inside the private context; only dp.step() may "
            "change it (use `with dp.public():` for public updates)"
        )

    @property
    def freezes(self) -> bool:
        """Whether a private parameter is frozen now: it gets no gradient, and stays."""
        return not all(map(_requires_grad, self._parameters.values()))

    def clear_gradients(self) -> None:
        """Leaves no gradient that an optimizer would step."""
        for parameter in self._stepped.values():
            parameter.grad = None

    def check_before_lot(self) -> None:
        """Raises if anything was changed, or training has diverged, before a lot is charged.

        What a device has not yet answered is found before the next lot, or at the end.
        """
        self.check_parameters()
        self._check_places()
        if not self._weights.lags:
            self.compare_values()
        if self._is_alarmed:
            self._check_values(wait=False)
            self.check_finite(wait=False)

    @property
    def modules(self) -> list[nn.Module]:
        """The modules that the model has."""
        return self._places.modules

    @property
    def modes(self) -> tuple[bool, ...]:
        """Which of them are in training mode."""
        return tuple(map(_training, self._places.modules))

    def check_before_step(self, *, compare: bool = True) -> None:
        """Raises if a value was changed since the last private step, as far as is known yet.

        Without ``compare`` values are compared by the recorded update (``compare_values``).
        """
        self.check_parameters()
        self._check_optimizers()
        if compare:
            self.compare_values()
        else:
            self._weights.check_places()
            self._statistics.check_places()
        if self._is_alarmed:
            self._check_values(wait=False)

    def compare_values(self) -> None:
        """Compares all values with those noted, also as the first part of a recorded update."""
        self._weights.compare()
        self._statistics.compare()

    def check_all(self) -> None:
        """Raises if anything was changed by anything but a private step."""
        self.check_parameters()
        self._check_places()
        self._check_optimizers()
        self.compare_values()
        self._check_values(wait=True)

    def check_finite(self, *, wait: bool) -> None:
        """Raises if a step left a parameter that is not finite."""
        for name in self._weights.not_finite(wait=wait):
            raise Diverged(
                f"parameter {name} is no longer finite: training has diverged, and nothing more is "
                "charged; start again with a smaller learning rate"
            )

    def check_buffers(self) -> None:
        """Raises if the forward pass changed a buffer: it would hold data that got no noise."""
        for module, path, name, buffer, version in self._buffers:
            if module._buffers.get(name) is not buffer or buffer._version != version:
                raise _changed_buffer(name, path, module)

    @property
    def _is_alarmed(self) -> bool:
        """Whether a comparison has found anything, as far as is known; what, others ask."""
        return self._weights.is_alarmed or self._statistics.is_alarmed

    def _check_values(self, *, wait: bool) -> None:
        """Raises if a comparison so far has found a change."""
        for name in self._changed_statistics(wait=wait):
            path, _, own = name.rpartition(".")
            raise _changed_buffer(own, path, self._model.get_submodule(path))
        for name in self._weights.changed(wait=wait):
            raise ProtocolError(
                f"parameter {name} was changed inside the private context past autograd (through "
                ".data, a fused optimizer, NumPy or another view of its memory); only dp.step() "
                "may change it (use `with dp.public():` for public updates)"
            )

    def _changed_statistics(self, *, wait: bool) -> list[str]:
        return self._statistics.changed(wait=wait)

    def _check_optimizers(self) -> None:
        if self._holdings() != self._held:
            raise ProtocolError(
                "an optimizer was given other parameters inside the private context; its "
                "parameters are fixed when tacit.private() is called"
            )

    def _check_places(self) -> None:
        for sharding in self._in_pieces:
            sharding.reshard()  # a module that is computed holds other parameters meanwhile
        self._places.check()
        if self._keepers and extra_state(self._keepers, self._key) != self._extra:
            raise UnsupportedModel(
                "the extra state of a module (get_extra_state) was changed inside the private "
                "context, by the forward pass it seems: it would keep private data without noise; "
                "keep no data there, or change it in dp.public()"
            )

    def _holdings(self) -> list[list[int]]:
        return [
            [id(p) for group in optimizer.param_groups for p in group["params"]]
            for optimizer in self._optimizers
        ]

    def _before_step(self, optimizer: Optimizer, given: tuple[object, ...]) -> None:
        """Called before any optimizer in the process steps, with what it was ``given``."""
        if self._open:
            return
        if self._awaited is not None and optimizer in self._optimizers:
            self._check_awaited(optimizer, self._awaited, given)
            return
        if optimizer in self._optimizers:
            raise ProtocolError(
                f"{type(optimizer).__name__}.step() was called inside the private context; call "
                "dp.step(), which adds the noise and steps"
            )
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) in self._own:
                raise ProtocolError(
                    f"{type(optimizer).__name__}.step() of an optimizer that tacit.private() was "
                    f"not given would change parameter {self._own[id(parameter)]} inside the "
                    "private context; call dp.step(), or use `with dp.public():` on public data"
                )


@final
@dataclass(slots=True)
class _AwaitedStep:
    """Who has not stepped yet, and by what: each gradient with its version."""

    optimizers: list[Optimizer]
    gradients: dict[str, tuple[Tensor, int]]


def _weakly(
    method: Callable[[Optimizer, tuple[object, ...]], None],
) -> Callable[[Optimizer, Any, Any], None]:
    """A hook that torch may keep for all optimizers: it keeps no context that was let go of."""
    still = weakref.WeakMethod(method)

    def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if (there := still()) is not None:
            there(optimizer, (*args, *kwargs.values()))

    return hook


@final
class _Places:
    """The modules of a model, and what each held by which name."""

    def __init__(self, model: nn.Module) -> None:
        self._each = [_Place(*one) for one in model.named_modules()]
        self.modules = [place.module for place in self._each]
        held = list(chain.from_iterable(map(_held, self.modules)))
        self._sizes = list(map(len, held))
        self._values = list(chain.from_iterable(map(_values, held)))

    def check(self) -> None:
        """Raises unless all hold the same: before every lot, so no line is run for a module."""
        held = list(chain.from_iterable(map(_held, self.modules)))
        if list(map(len, held)) == self._sizes:
            now = chain.from_iterable(map(_values, filter(None, held)))
            if all(map(is_, now, self._values)):
                return
        raise next(place.change() for place in self._each if not place.is_unchanged)


@final
class _Place:
    """A module, and what it held by which name."""

    def __init__(self, path: str, module: nn.Module) -> None:
        self._path, self.module = path, module
        self._before = {kind: dict(getattr(module, kind)) for kind in _HELD}

    @property
    def is_unchanged(self) -> bool:
        """Whether it holds the same, in the same order."""
        return all(
            len(now) == len(before) and all(map(is_, now.values(), before.values()))
            for now, before in zip(_held(self.module), self._before.values(), strict=True)
        )

    def change(self) -> Exception:
        """Says what it does not hold any more, or holds now."""
        for kind, before in self._before.items():
            now: dict[str, Any] = getattr(self.module, kind)
            key = next((k for k in [*before, *now] if now.get(k) is not before.get(k)), None)
            if key is None:
                continue
            if kind == "_buffers":
                return _changed_buffer(key, self._path, self.module)
            name = f"{self._path}.{key}" if self._path else key
            what = "parameter" if kind == "_parameters" else "module"
            return ProtocolError(
                f"{what} {name} was replaced, added or removed inside the private context; what is "
                "trained is fixed when tacit.private() is called"
            )
        return ProtocolError(
            f"{self._path or 'the model'} holds the same in another order than before; what is "
            "trained is fixed when tacit.private() is called"
        )


_HELD = ("_parameters", "_modules", "_buffers")
_held, _values, _version = attrgetter(*_HELD), methodcaller("values"), attrgetter("_version")
_training, _hooks = attrgetter("training"), attrgetter("_backward_hooks")
_requires_grad = attrgetter("requires_grad")


def check_hooks(parameters: Mapping[str, Tensor]) -> None:
    """Refuses hooks of gradients: they are given what has no noise, and may undo the clipping.

    Norms are those of what a hook makes of each unit's gradient, and the sum is what it makes of
    the sum: the same only if the hook is linear.
    """
    if not any(map(_hooks, parameters.values())):
        return
    name = next(name for name, one in parameters.items() if _hooks(one))
    raise UnsupportedModel(
        f"parameter {name} has a hook (register_hook), which is given gradients without noise, and "
        "may change them after they are clipped; remove it (what dp.release() leaves in .grad may "
        "be looked at)"
    )


def _changed_buffer(name: str, path: str, module: nn.Module) -> UnsupportedModel:
    return UnsupportedModel(
        f"buffer {name} of {path or 'the model'} ({type(module).__name__}) was changed inside the "
        "private context, by the forward pass it seems: it would keep private data without noise; "
        "remove it, put the module into eval mode (tacit.training.fix(model) replaces batch norm), "
        "or change it in dp.public()"
    )


def keepers(model: nn.Module) -> list[nn.Module]:
    """The modules that add to their ``state_dict`` something beside parameters and buffers."""
    plain = nn.Module.get_extra_state
    return [one for one in model.modules() if type(one).get_extra_state is not plain]


def extra_state(modules: Sequence[nn.Module], key: bytes) -> list[bytes]:
    """A tag of what these ``keepers`` add."""
    found: list[bytes] = []
    for module in modules:
        leaves = tree_leaves(module.get_extra_state())
        tensors = {str(at): one for at, one in enumerate(leaves) if isinstance(one, Tensor)}
        found += tags(tensors, key).values()
        found += [repr(one).encode() for one in leaves if not isinstance(one, Tensor)]
    return found


@final
class Seal:
    """The weights as a private context left them, or as a checkpoint held them.

    Moving the model to another device does not break it. Anything that changes what a
    ``state_dict`` holds does.
    """

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
        inside = {id(p) for p in model.parameters()}
        outside = {f"parameter {n}": p for n, p in parameters.items() if id(p) not in inside}
        self._model, self._outside = model, outside
        self._key = new_key()
        self._tags = self._tagged()

    def check(self) -> None:
        """Raises if the weights are others by now."""
        now = self._tagged()
        for name in [*self._tags, *now]:
            if now.get(name) != self._tags.get(name):
                raise ProtocolError(
                    f"{name} was changed outside of the private context, and the claim is not "
                    "about what it holds now; make the statement before you change the model, and "
                    "change it in `with dp.public():` if private training goes on"
                )

    def _tagged(self) -> dict[str, bytes]:
        extra = b" ".join(extra_state(keepers(self._model), self._key))
        return tags(self._values(), self._key) | {"the extra state of a module": extra}

    def _values(self) -> dict[str, Tensor]:
        at_rest(self._model)
        kept = {f"parameter {n}": p for n, p in self._model.named_parameters()}
        buffers = {
            f"buffer {path}.{name}" if path else f"buffer {name}": buffer
            for path, module in self._model.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and name not in module._non_persistent_buffers_set
        }
        return {name: local(one) for name, one in {**kept, **self._outside, **buffers}.items()}


@final
class Custody:
    """Watches the weights of one session: by a guard inside its context, by a seal outside.

    Guarantee:
        ``check`` lets pass only weights that private steps led to, or ``dp.public()``, within what
        a ``Guard`` notices, and only in the process that made the session.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        optimizers: Sequence[Optimizer],
    ) -> None:
        self._model, self._parameters, self._optimizers = model, parameters, optimizers
        self._guard: Guard | None = None
        self._seal: Seal | None = None
        self._spoiled: TacitError | None = None  # why nothing can be claimed any more
        self._home = this_process()
        self.still = RLock()  # nobody looks at weights that are being stepped

    @property
    def is_at_home(self) -> bool:
        """Whether this is the process that made the session."""
        return self._home == this_process()

    def check_process(self) -> None:
        """Refuses a forked child."""
        if not self.is_at_home:
            raise ProtocolError(
                "a private session belongs to the process that made it: a forked child would "
                "release its lots a second time, uncharged; train in one process"
            )

    def check(self) -> None:
        """Raises unless the weights are those that private steps led to, in this process."""
        self.check_process()
        if self._spoiled is not None:
            raise self._spoiled
        if self._guard is not None:
            with self.still:
                self._guard.check_all()
                self._guard.check_finite(wait=True)
        elif self._seal is not None:
            self._seal.check()

    # ---- the context

    def check_enterable(self) -> None:
        """Refuses a second entry, and weights that are not the session's any more."""
        if self._guard is not None:
            raise ProtocolError("this private context is already entered; make a new one")
        self.check()

    def enter(self) -> None:
        """From now on the weights may change by private steps alone."""
        self._guard = Guard(self._model, self._parameters, self._optimizers)

    def inside(self) -> Guard:
        """The guard of the context that is entered, in this process."""
        if self._guard is None:
            raise ProtocolError("use the session inside `with tacit.private(...) as dp:`")
        if self._home != this_process():
            self.check_process()
        return self._guard

    def leave(self) -> None:
        """Ends the guard's watch: what it finds last spoils the claim, whatever ended the context.

        A forked child has nothing to say about the weights.
        """
        guard, self._guard = self._guard, None
        if guard is None or not self.is_at_home:
            return
        guard.close()
        try:
            guard.check_all()
            guard.check_finite(wait=True)
        except TacitError as error:
            self._spoiled = error
        self.seal()

    # ---- outside of it

    def seal(self) -> None:
        """From now on the weights may not change, until the context is entered."""
        self._seal = Seal(self._model, self._parameters)

    def seal_again(self) -> None:
        """Takes the weights as they are now, if they were sealed before."""
        if self._seal is not None:
            self.seal()
