"""Gaussian noise that is correlated over the steps of a run: drawn, mixed, kept and replayed.

A step's noise is a fixed combination of independent noise: of this step's and of earlier ones'. A
`Feedback` and `Averages` keep what they need of the steps before, a few tensors; an `Echo` keeps
nothing, and draws the last steps' noise once more from their keys.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, final

from tacit.errors import CheckpointError, InvalidArgument
from tacit.randomness.gaussian import GaussianSource
from tacit.randomness.streams import one_time_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from tacit.randomness.streams import Stream

_KEY = 32  # bytes


@final
@dataclass(frozen=True, slots=True)
class Feedback:
    """w_t = z_t - Σ_{0<k<b} c_k w_{t-k}, and the noise n_t·w_t: a banded C with columns of norm 1.

    ``norms`` are those of columns of 1, 2, … of the ``coefficients``, whose first is 1; a column
    has as many as there are steps left, itself included, up to all.
    """

    coefficients: tuple[float, ...]
    norms: tuple[float, ...]
    steps: int

    @property
    def kept(self) -> int:
        """How many tensors are kept from step to step."""
        return len(self.coefficients) - 1

    def norm(self, step: int) -> float:
        """The norm of a step's column."""
        return self.norms[min(len(self.norms), self.steps - step) - 1]


@final
@dataclass(frozen=True, slots=True)
class Averages:
    """gain·(z_t + Σ_i ω_i s_i) with s_i = Σ_{j<t} λ_i^(t-1-j) z_j: a buffered C⁻¹."""

    scales: tuple[float, ...]
    decays: tuple[float, ...]
    gain: float

    @property
    def kept(self) -> int:
        """How many tensors are kept from step to step."""
        return len(self.scales)


@final
@dataclass(frozen=True, slots=True)
class Echo:
    """gain·Σ_{k<b} d_k z_{t-k}: a C⁻¹ of few bands, for which the last steps' z are drawn again."""

    weights: tuple[float, ...]
    gain: float


Mixing: TypeAlias = Feedback | Averages | Echo


@final
class NoiseMemory:
    """What must be known of a run's noise to go on with it; SECRET, for it takes noise away again.

    ``position`` is the next step. A checkpoint of an unfinished run holds the memory, to the bit;
    after the last step there is none.
    """

    def __init__(self, mixing: Mixing, steps: int) -> None:
        self.mixing, self.steps, self.position = mixing, steps, 0
        self._tensors: dict[str, list[torch.Tensor]] = {}
        self._keys: list[tuple[int, bytes]] = []  # the first step of each, in order

    def begin(self, position: int) -> None:
        """The next step is this one. If it is not where the memory is, the noise starts afresh.

        Guarantee:
            Steps that were lost between the two may have been seen. What follows shares no noise
            with them: its strategy is the whole one's without the rows and columns before, of no
            larger sensitivity.
        """
        if position != self.position:
            self._tensors, self._keys, self.position = {}, [], position

    def tensors(self, like: torch.Tensor) -> list[torch.Tensor]:
        """The tensors that are kept for tensors of this type; zeros at first."""
        import torch  # noqa: PLC0415 - randomness is there for those who have no torch

        assert not isinstance(self.mixing, Echo)
        name = str(like.dtype).removeprefix("torch.")
        if name not in self._tensors:
            self._tensors[name] = [torch.zeros_like(like) for _ in range(self.mixing.kept)]
        held = self._tensors[name]
        if any(one.shape != like.shape for one in held):
            raise CheckpointError(
                f"the checkpoint's noise is for {held[0].numel()} entries of type {name}, and the "
                f"model has {like.numel()}: it is of another run"
            )
        if held and held[0].device != like.device:
            held[:] = [one.to(like.device) for one in held]
        return held

    def add_key(self, key: bytes) -> None:
        """Steps from here on are drawn under this key."""
        self._keys = [(start, one) for start, one in self._keys if start < self.position]
        self._keys.append((self.position, key))

    def key(self, step: int) -> bytes | None:
        """The key of a step; None before the first."""
        found = [key for start, key in self._keys if start <= step]
        return found[-1] if found else None

    def advance(self) -> None:
        """A step is done."""
        self.position += 1

    def state_dict(self) -> dict[str, Any]:
        """What the steps to come need; nothing but the position after the last one."""
        state: dict[str, Any] = {"position": self.position}
        if self.position >= self.steps:
            return state
        if isinstance(self.mixing, Echo):
            # A key is needed while one of its steps is within reach.
            reach = self.position - len(self.mixing.weights) + 1
            ends = [start for start, _ in self._keys[1:]] + [self.position]
            needed = zip(self._keys, ends, strict=True) if self._keys else ()
            state["keys"] = [[start, key.hex()] for (start, key), end in needed if end > reach]
        else:
            state["tensors"] = {name: list(held) for name, held in self._tensors.items()}
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Takes up what a checkpoint held."""
        position = state_dict["position"]
        if type(position) is not int or not 0 <= position <= self.steps:
            raise CheckpointError(f"the checkpoint's noise is at step {position!r:.40}")
        keys = [(int(start), bytes.fromhex(str(key))) for start, key in state_dict.get("keys", [])]
        held = {str(name): list(one) for name, one in state_dict.get("tensors", {}).items()}
        wrong = any(len(key) != _KEY for _, key in keys) or (
            not isinstance(self.mixing, Echo)
            and any(len(one) != self.mixing.kept for one in held.values())
        )
        missing = 0 < position < self.steps and not (keys or held)
        if wrong or missing:
            raise CheckpointError("the checkpoint does not hold the noise of its last steps")
        self.position, self._keys, self._tensors = position, keys, held


@final
class CorrelatedSource:
    """Noise that is correlated over steps, on one device: ``normal_`` once a step for each type.

    Guarantee:
        Step t's numbers are row t of C⁻¹ times standard normal ones, from the memory's position on,
        where C is the strategy of ``memory.mixing``. What is drawn for a step is new: numbers of
        other steps enter with the weights of C⁻¹ only. As for `GaussianSource`, they are
        floating-point ones from a statistical generator.

    >>> import torch
    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> memory = NoiseMemory(Echo((1.0, -0.5), gain=1.0), steps=3)
    >>> source = CorrelatedSource(memory, torch.device("cpu"), UnsafeSeededStream(0, "noise"))
    >>> noise = torch.empty(2)
    >>> source.normal_(noise)
    >>> source.advance()
    >>> memory.position
    1
    """

    def __init__(self, memory: NoiseMemory, device: torch.device, stream: Stream) -> None:
        self._memory = memory
        self._device = device
        self._fresh: GaussianSource | None = None
        self._key = b""
        if isinstance(memory.mixing, Echo):
            self._key = bytes(one_time_key(stream))
        else:
            self._fresh = GaussianSource(device, stream)

    def normal_(self, tensor: torch.Tensor, scale: float = 1.0) -> None:
        """Fills a flat tensor with the step's noise, times ``scale``."""
        match self._memory.mixing:
            case Feedback() as mixing:
                self._feed_back(tensor, mixing)
            case Averages() as mixing:
                self._average(tensor, mixing)
            case Echo() as mixing:
                self._echo(tensor, mixing)
        tensor.mul_(scale)

    def advance(self) -> None:
        """The step is done: for each type its numbers were drawn."""
        self._memory.advance()

    def _feed_back(self, tensor: torch.Tensor, mixing: Feedback) -> None:
        assert self._fresh is not None
        held = self._memory.tensors(tensor)  # the newest first
        self._fresh.normal_(tensor)
        for weight, earlier in zip(mixing.coefficients[1:], held, strict=True):
            tensor.sub_(earlier, alpha=weight)
        if held:
            oldest = held.pop()
            held.insert(0, oldest.copy_(tensor))
        tensor.mul_(mixing.norm(self._memory.position))

    def _average(self, tensor: torch.Tensor, mixing: Averages) -> None:
        assert self._fresh is not None
        held = self._memory.tensors(tensor)
        self._fresh.normal_(tensor)
        drawn = tensor.clone()
        for scale, decay, average in zip(mixing.scales, mixing.decays, held, strict=True):
            tensor.add_(average, alpha=scale)
            average.mul_(decay).add_(drawn)
        tensor.mul_(mixing.gain)

    def _echo(self, tensor: torch.Tensor, mixing: Echo) -> None:
        step = self._memory.position
        if self._memory.key(step) != self._key:
            self._memory.add_key(self._key)
        self._draw(tensor, step)
        earlier = tensor.clone()
        for back, weight in enumerate(mixing.weights[1:], 1):
            if weight and step >= back and self._draw(earlier, step - back):
                tensor.add_(earlier, alpha=weight)
        tensor.mul_(mixing.gain)

    def _draw(self, tensor: torch.Tensor, step: int) -> bool:
        """The numbers of a step, the same whenever they are drawn; False if it had none."""
        key = self._memory.key(step)
        if key is None:
            return False
        GaussianSource(self._device, _OfStep(key, step, str(tensor.dtype))).normal_(tensor)
        return True

    def __repr__(self) -> str:
        return f"CorrelatedSource({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a CorrelatedSource cannot be copied or pickled: its noise would be drawn twice; "
            "make a new one from a stream"
        )


@final
class _OfStep:
    """Bytes that belong to a step, under a key: what a generator of its numbers is keyed with."""

    __slots__ = ("_text",)

    def __init__(self, key: bytes, step: int, kind: str) -> None:
        self._text = key + f":{step}:{kind}".encode()

    def bytes(self, count: int) -> bytes:
        """The step's first ``count`` bytes."""
        return hashlib.shake_256(self._text).digest(count)
