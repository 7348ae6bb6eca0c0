"""Recordings of noise and update: which optimizers have one, and how long it holds.

An optimizer's step is Python of torch's, or of somebody else's. It is recorded only if all that it
does is to change numbers on the device; and a recording is replayed only as long as the settings
and the state that it was made with are the same, in the same places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any, final

import torch
from torch.optim import optimizer as torch_optimizer

from tacit.training.capture import MOST_RECORDINGS, WARM_UP, failure
from tacit.training.circumstances import is_of_host
from tacit.training.dependencies import SIMPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from tacit.training.capture import Graphs


@final
@dataclass(frozen=True)
class Update:
    """A recorded update, and what it took for fixed."""

    replay: Callable[[], None]
    settings: Sequence[dict[str, Any]]  # of each group of parameters
    sizes: Sequence[int]  # of the groups
    steps: Sequence[object]  # what an optimizer's class calls a step
    states: Sequence[object]
    laid: Sequence[object]  # where the states' tensors lie, and whatever else is in them
    held: list[Tensor] = field(repr=False)  # kept, as the recording writes to their memory


@final
class Updates:
    """The recordings of noise and update, one for each place where the sums may lie.

    An optimizer's step is recorded only if it is torch's own and, as a step has shown, changes
    nothing but numbers on the device.
    """

    def __init__(
        self, graphs: Graphs, optimizers: Sequence[Optimizer], renew: Callable[[], None]
    ) -> None:
        self._graphs, self._optimizers = graphs, tuple(optimizers)
        self._renew = renew  # goes before each replay, so that its noise is fresh
        self._recorded: dict[Hashable, Update] = {}
        self._runs = 0
        self._changes = 0
        self._host: list[object] | None = None
        self.why_not = _foreign(optimizers, hooks=graphs.runs_python)

    def recorded(self, sums: Iterable[Tensor]) -> Update | None:
        """The update for sums that lie where they lay before; None if there is none.

        If the optimizers' settings have changed since, there is none any more.
        """
        known = self._recorded.get(_places(sums))
        if known is None:
            return None
        same = self._same_settings(known) and self._same_states(known)
        if same and not _foreign(self._optimizers, hooks=self._graphs.runs_python):
            return known
        self._recorded, self._runs = {}, 1
        self._changes += 1
        if self._changes >= MOST_RECORDINGS:
            self.why_not = "the optimizer's settings change from step to step"
        return None

    def forget(self) -> None:
        """Lets go of all recordings: weights and their fingerprints may lie elsewhere now."""
        self._recorded = {}

    def before(self) -> None:
        """An update is about to run as it is: notes what it must leave alone."""
        if not self.why_not:
            self._host = [] if self._graphs.runs_python else self._host_state()

    def after(self) -> None:
        """It ran: an optimizer that counts on the host is not recorded."""
        if self.why_not or self._host is None:
            return
        self._runs += 1
        if self._graphs.runs_python or self._runs == 1:  # the first step makes the state
            return
        if self._host != self._host_state():
            self.why_not = (
                "the optimizer counts its steps on the host (pass capturable=True if it takes it)"
            )

    def record(
        self,
        sums: Iterable[Tensor],
        work: Callable[[], None],
        generators: Sequence[torch.Generator],
    ) -> bool:
        """Records and replays an update, if it is time; False if not, and nothing was done."""
        places = list(sums)
        full = len(self._recorded) >= MOST_RECORDINGS
        if self.why_not or self._runs < WARM_UP or full or not places:
            return False
        settings = [_settings(group) for group in self._groups()]
        fixed = (settings, self._sizes(), self._steps(), self._states(), self._laid())
        held = [*places, *(t for o in self._optimizers for t in _tensors(o.state))]
        given = (value for group in self._groups() for value in group.values())
        held += [value for value in given if isinstance(value, torch.Tensor)]
        try:
            replay = self._graphs.record_update(work, generators)
        except Exception as error:
            self.why_not = failure(error)
            return False
        update = self._recorded[_places(places)] = Update(replay, *fixed, held)
        self.replay(update)
        return True

    def replay(self, update: Update) -> None:
        """Takes the step: with noise of its own, and what the optimizers do then."""
        self._renew()
        update.replay()

    def describe(self) -> str:
        """How updates are computed, in a line."""
        if self.why_not:
            return f"Noise and update are computed each time, not replayed: {self.why_not}."
        if self._recorded:
            return "Noise and update are replayed from a recording on the device."
        return "Noise and update are to be recorded on the device once a few steps were taken."

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _sizes(self) -> list[int]:
        return [len(group["params"]) for group in self._groups()]

    def _steps(self) -> list[object]:
        return [type(one).step for one in self._optimizers]

    def _states(self) -> list[object]:
        return [one.state for one in self._optimizers]

    def _laid(self) -> list[object]:
        """Where the optimizers' state lies, which a recording reads and writes there."""
        values = (v for one in self._optimizers for s in one.state.values() for v in s.values())
        return [_mark(value) for value in values]

    def _same_settings(self, known: Update) -> bool:
        """Whether the settings are those; told by identity first, which takes no time."""
        groups = self._groups()
        if self._sizes() != known.sizes or self._steps() != known.steps:
            return False
        for group, before in zip(groups, known.settings, strict=True):
            known_all = len(group) == len(before) + 1
            same = known_all and all(map(is_, map(group.get, before), before.values()))
            if not same and _settings(group) != before:
                return False
        return True

    def _same_states(self, known: Update) -> bool:
        return all(map(is_, self._states(), known.states)) and self._laid() == known.laid

    def _host_state(self) -> list[object]:
        """Whatever of the optimizers' state is on the host."""
        return [
            value.tolist() if isinstance(value, torch.Tensor) else value
            for optimizer in self._optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, SIMPLE) or (isinstance(value, torch.Tensor) and is_of_host(value))
        ]


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a group, by value where they can change in their place.

    Schedulers write to a rate that is a tensor. On the device a recording reads it where it lies;
    of one on the host it keeps the number.
    """
    return {name: _fixed(value) for name, value in group.items() if name != "params"}


def _fixed(setting: Any) -> Any:
    if isinstance(setting, torch.Tensor):
        return setting.tolist() if is_of_host(setting) else ("lies at", setting.data_ptr())
    return tuple(setting) if isinstance(setting, list) else setting


def _mark(value: Any) -> object:
    """Of a tensor where it lies, of a number itself, of all else what it is."""
    if type(value) is torch.Tensor:
        return value.data_ptr()
    return value if isinstance(value, SIMPLE) else id(value)


def _tensors(state: Any) -> Iterator[Tensor]:
    for values in state.values():
        yield from (one for one in values.values() if isinstance(one, torch.Tensor))


def _places(tensors: Iterable[Tensor]) -> Hashable:
    return tuple([one.data_ptr() for one in tensors])


# Of a hook, or a function around an optimizer's step: it knows that a replay does not call it.
REPLAYED = "_is_replayed"


def _is_wrapped(optimizer: Optimizer) -> bool:
    """Whether the step is not the optimizer's own: schedulers put one around it that counts."""
    step = vars(optimizer).get("step")
    if step is None or hasattr(step, REPLAYED):
        return False
    own = getattr(step, "__wrapped__", None) is type(optimizer).step
    return not (own and hasattr(step, "_wrapped_by_lr_sched"))


def _foreign(optimizers: Sequence[Optimizer], *, hooks: bool) -> str:
    """Why an optimizer's code must run each time, or nothing; ``hooks`` may be called as ever."""
    for one in optimizers:
        name = type(one).__name__
        if not type(one).__module__.startswith("torch.optim"):
            return f"{name} is not one of torch's own optimizers, and may count on the host"
        if type(one) is torch.optim.LBFGS:
            return f"{name} asks for losses again"
        own = one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks
        if own and not hooks:
            return f"a hook of {name} would not be called"
        if not hooks and _is_wrapped(one):
            return f"what was put around the step of {name} would not be called"
    before = torch_optimizer._global_optimizer_pre_hooks.values()
    of_others = not all(hasattr(hook, REPLAYED) for hook in before)
    if (of_others or torch_optimizer._global_optimizer_post_hooks) and not hooks:
        return "a hook of all optimizers would not be called"
    return ""
