"""Gaussian noise that is correlated over the steps of a run: drawn, mixed, kept and replayed.

A step's noise is a fixed combination of independent noise: of this step's and of earlier ones'. A
`Feedback` and `Averages` keep what they need of the steps before, a few tensors; an `Echo` keeps
nothing, and draws the last steps' noise once more from their keys. The numbers are floating-point
ones (`CorrelatedSource`) or whole ones (`CorrelatedIntegers`), and where several processes draw
together, each keeps what belongs to its share.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, final

from tacit.errors import CheckpointError, InvalidArgument
from tacit.randomness.gaussian import GaussianSource, RoundedGaussian, Share
from tacit.randomness.streams import one_time_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    after the last step there is none. It tells the noise of the steps that it is needed for, and of
    no others, before or after. Of a draw that several processes share each keeps its part;
    what a checkpoint holds is whole, as ``gather`` puts it together, and every process takes its
    part of that, however many there are then.
    """

    def __init__(self, mixing: Mixing, steps: int) -> None:
        self.mixing, self.steps, self.position = mixing, steps, 0
        self.gather: Callable[[torch.Tensor, Share], torch.Tensor] | None = None
        self._tensors: dict[str, list[torch.Tensor]] = {}
        self._shares: dict[str, Share] = {}  # of which draw the tensors are
        self._keys: list[tuple[int, bytes]] = []  # the first step of each, in order

    def begin(self, position: int) -> None:
        """The next step is this one. If it is not where the memory is, the noise starts afresh.

        Guarantee:
            Steps that were lost between the two may have been seen. What follows shares no noise
            with them: its strategy is the whole one's without the rows and columns before, of no
            larger sensitivity.
        """
        if position != self.position:
            self._tensors, self._shares, self._keys, self.position = {}, {}, [], position

    def tensors(
        self, like: torch.Tensor, share: Share | None, kind: torch.dtype
    ) -> list[torch.Tensor]:
        """The tensors of a ``kind`` that are kept for such a part of a draw; zeros at first."""
        import torch  # noqa: PLC0415 - randomness is there for those who have no torch

        assert not isinstance(self.mixing, Echo)
        name = str(kind).removeprefix("torch.")
        if name not in self._tensors:
            zeros = [torch.zeros_like(like, dtype=kind) for _ in range(self.mixing.kept)]
            self._tensors[name] = zeros
        held = self._tensors[name]
        if share is not None:
            if name not in self._shares and not share.is_whole:
                held[:] = [_part(one, share) for one in held]
            self._shares[name] = share
        if any(one.shape != like.shape for one in held):
            entries = like.numel() if share is None else share.of
            raise CheckpointError(
                f"the checkpoint's noise is for {held[0].numel()} entries of type {name}, and the "
                f"model has {entries}: it is of another run"
            )
        if held and held[0].device != like.device:
            held[:] = [one.to(like.device) for one in held]
        return held

    def add_key(self, key: bytes) -> None:
        """The step is drawn under this key; those of steps that no other needs are let go."""
        assert isinstance(self.mixing, Echo)
        before = [(start, one) for start, one in self._keys if start < self.position]
        self._keys = [*before, (self.position, key)][-len(self.mixing.weights) :]

    def key(self, step: int) -> bytes | None:
        """The key of a step; None before the first."""
        found = [key for start, key in self._keys if start <= step]
        return found[-1] if found else None

    def advance(self) -> None:
        """A step is done."""
        self.position += 1

    @property
    def is_spread(self) -> bool:
        """Whether several processes must put together what a checkpoint holds.

        All of them say the same, also where one has all entries and the others have none.
        """
        return bool(self._shares) and self.position < self.steps

    def state_dict(self) -> dict[str, Any]:
        """What the steps to come need; nothing but the position after the last one.

        All processes ask for it where the memory ``is_spread``.
        """
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
            state["tensors"] = {name: self._whole(name) for name in self._tensors}
        return state

    def _whole(self, name: str) -> list[torch.Tensor]:
        held, share = self._tensors[name], self._shares.get(name)
        if share is None or (share.is_whole and self.gather is None):
            return list(held)
        assert self.gather is not None
        return [self.gather(one, share) for one in held]

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
        self.position, self._keys, self._tensors, self._shares = position, keys, held, {}


def _part(whole: torch.Tensor, share: Share) -> torch.Tensor:
    """The places of a draw that are in a share; a tensor that is no whole draw stays as it is."""
    import torch  # noqa: PLC0415

    if whole.numel() != share.of:
        return whole
    parts = [whole[start:stop] for start, stop in share.stretches]
    return torch.cat(parts) if parts else whole[:0].clone()


def _fill(source: GaussianSource, tensor: torch.Tensor, share: Share | None) -> None:
    """Independent numbers: a draw of its own, or a share of one."""
    if share is None:
        source.normal_(tensor)
    else:
        source.normal_(tensor, share=share)


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

    def normal_(
        self, tensor: torch.Tensor, scale: float = 1.0, *, share: Share | None = None
    ) -> None:
        """Fills a flat tensor with the step's noise, times ``scale``; or with a share of it."""
        match self._memory.mixing:
            case Feedback() as mixing:
                self._feed_back(tensor, mixing, share)
            case Averages() as mixing:
                self._average(tensor, mixing, share)
            case Echo() as mixing:
                self._echo(tensor, mixing, share)
        tensor.mul_(scale)

    def advance(self) -> None:
        """The step is done: for each type its numbers were drawn."""
        self._memory.advance()

    def _feed_back(self, tensor: torch.Tensor, mixing: Feedback, share: Share | None) -> None:
        assert self._fresh is not None
        held = self._memory.tensors(tensor, share, tensor.dtype)  # the newest first
        _fill(self._fresh, tensor, share)
        for weight, earlier in zip(mixing.coefficients[1:], held, strict=True):
            tensor.sub_(earlier, alpha=weight)
        if held:
            oldest = held.pop()
            held.insert(0, oldest.copy_(tensor))
        tensor.mul_(mixing.norm(self._memory.position))

    def _average(self, tensor: torch.Tensor, mixing: Averages, share: Share | None) -> None:
        assert self._fresh is not None
        held = self._memory.tensors(tensor, share, tensor.dtype)
        _fill(self._fresh, tensor, share)
        drawn = tensor.clone()
        for scale, decay, average in zip(mixing.scales, mixing.decays, held, strict=True):
            tensor.add_(average, alpha=scale)
            average.mul_(decay).add_(drawn)
        tensor.mul_(mixing.gain)

    def _echo(self, tensor: torch.Tensor, mixing: Echo, share: Share | None) -> None:
        step = self._memory.position
        self._memory.add_key(_key_of(self._key, step))
        self._draw(tensor, step, share)
        earlier = tensor.clone()
        for back, weight in enumerate(mixing.weights[1:], 1):
            if weight and step >= back and self._draw(earlier, step - back, share):
                tensor.add_(earlier, alpha=weight)
        tensor.mul_(mixing.gain)

    def _draw(self, tensor: torch.Tensor, step: int, share: Share | None) -> bool:
        """The numbers of a step, the same whenever they are drawn; False if it had none.

        A device draws them as a share also where that is all of them, so that it gives the same
        ones to any number of processes; a CPU does so by itself.
        """
        key = self._memory.key(step)
        if key is None:
            return False
        if share is None and self._device.type != "cpu":
            share = Share(tensor.numel(), ((0, tensor.numel()),))
        source = GaussianSource(self._device, _OfStep(key, step, str(tensor.dtype)))
        _fill(source, tensor, share)
        return True

    def __repr__(self) -> str:
        return f"CorrelatedSource({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a CorrelatedSource cannot be copied or pickled: its noise would be drawn twice; "
            "make a new one from a stream"
        )


@final
class CorrelatedIntegers:
    """Whole numbers that are correlated over steps, on one device: ``integers_`` once a step.

    What is independent is drawn as whole numbers Z, by `RoundedGaussian`; what earlier steps add to
    it is computed in float64 and rounded: a step's noise is Z_t + m_t, and m_t depends on the
    steps before alone.

    Guarantee:
        Let y_t = G_t + Z_t + m_t be released of whole sums G. Whoever has y and G finds Z, one step
        after the other; for the same y and sums G + D he finds Z - E. With a `Feedback`, E_t is
        D_t + Σ_k a_tk·D_{t-k} + r_t, as C mixes D, and r_t is 0 where D was 0 in the bands before;
        otherwise E = T(D + r), where T undoes the mixing. Two roundings make r: no entry is above 1
        but for float64's error, as long as what is mixed is within 64 standard deviations, which
        fails with a probability below 1e-800. E_t depends on y before t alone: so y is, rounded,
        an adaptive Gaussian mechanism's output, whose sums lie E apart.

    >>> import torch
    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> memory = NoiseMemory(Echo((1.0, -0.5), gain=1.0), steps=3)
    >>> source = CorrelatedIntegers(memory, torch.device("cpu"), UnsafeSeededStream(0, "noise"))
    >>> noise = torch.empty(2, dtype=torch.int64)
    >>> source.integers_(noise, 100.0)
    >>> source.advance()
    >>> memory.position
    1
    """

    def __init__(self, memory: NoiseMemory, device: torch.device, stream: Stream) -> None:
        self._memory = memory
        self._device = device
        self._fresh: RoundedGaussian | None = None
        self._key = b""
        if isinstance(memory.mixing, Echo):
            self._key = bytes(one_time_key(stream))
        else:
            self._fresh = RoundedGaussian(stream, device)

    def integers_(self, tensor: torch.Tensor, scale: float, *, share: Share | None = None) -> None:
        """Fills a flat int64 tensor with the step's noise, of ``scale`` times the strategy's."""
        match self._memory.mixing:
            case Feedback() as mixing:
                self._feed_back(tensor, scale, mixing, share)
            case Averages() as mixing:
                self._average(tensor, scale, mixing, share)
            case Echo() as mixing:
                self._echo(tensor, scale, mixing, share)

    def advance(self) -> None:
        """The step is done."""
        self._memory.advance()

    def _feed_back(
        self, tensor: torch.Tensor, scale: float, mixing: Feedback, share: Share | None
    ) -> None:
        import torch  # noqa: PLC0415

        assert self._fresh is not None
        held = self._memory.tensors(tensor, share, torch.int64)  # what was added, the newest first
        step = self._memory.position
        norm = mixing.norm(step)
        self._fresh.integers_(tensor, scale * norm, share=share)
        if not held:
            return
        mixed = torch.zeros_like(tensor, dtype=torch.float64)
        for back, (weight, earlier) in enumerate(
            zip(mixing.coefficients[1:], held, strict=True), 1
        ):
            mixed.add_(earlier.double(), alpha=weight * norm / mixing.norm(step - back))
        tensor.sub_(mixed.round_().to(torch.int64))
        oldest = held.pop()
        held.insert(0, oldest.copy_(tensor))

    def _average(
        self, tensor: torch.Tensor, scale: float, mixing: Averages, share: Share | None
    ) -> None:
        import torch  # noqa: PLC0415

        assert self._fresh is not None
        held = self._memory.tensors(tensor, share, torch.float64)
        self._fresh.integers_(tensor, scale * mixing.gain, share=share)
        drawn, mixed = tensor.double(), torch.zeros_like(tensor, dtype=torch.float64)
        for weight, decay, average in zip(mixing.scales, mixing.decays, held, strict=True):
            mixed.add_(average, alpha=weight)
            average.mul_(decay).add_(drawn)
        tensor.add_(mixed.round_().to(torch.int64))

    def _echo(self, tensor: torch.Tensor, scale: float, mixing: Echo, share: Share | None) -> None:
        import torch  # noqa: PLC0415

        step = self._memory.position
        self._memory.add_key(_key_of(self._key, step))
        earlier, mixed = torch.empty_like(tensor), torch.zeros_like(tensor, dtype=torch.float64)
        for back, weight in enumerate(mixing.weights[1:], 1):
            if step >= back and self._draw(earlier, step - back, scale * mixing.gain, share):
                mixed.add_(earlier.double(), alpha=weight)
        self._draw(tensor, step, scale * mixing.gain, share)
        tensor.add_(mixed.round_().to(torch.int64))

    def _draw(self, tensor: torch.Tensor, step: int, scale: float, share: Share | None) -> bool:
        """The whole numbers of a step, the same whenever they are drawn; False if it had none."""
        key = self._memory.key(step)
        if key is None:
            return False
        source = RoundedGaussian(_OfStep(key, step, str(tensor.dtype)), self._device)
        source.integers_(tensor, scale, share=share)
        return True

    def __repr__(self) -> str:
        return f"CorrelatedIntegers({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "CorrelatedIntegers cannot be copied or pickled: their noise would be drawn twice; "
            "make new ones from a stream"
        )


def _key_of(key: bytes, step: int) -> bytes:
    """A key for a step alone: whoever has it, from a checkpoint, knows no other step's noise."""
    return hashlib.shake_256(key + f":key of {step}".encode()).digest(_KEY)


@final
class _OfStep:
    """Bytes that belong to a step, under a key: what a generator of its numbers is keyed with."""

    __slots__ = ("_text",)

    def __init__(self, key: bytes, step: int, kind: str) -> None:
        self._text = key + f":{step}:{kind}".encode()

    def bytes(self, count: int) -> bytes:
        """The step's first ``count`` bytes."""
        return hashlib.shake_256(self._text).digest(count)
