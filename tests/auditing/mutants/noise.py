"""Bugs in the noise: too little of it, none for some numbers, or too coarse."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from tacit.randomness import GaussianSource
from tacit.training import assembly, session
from tacit.training.guards import Guard
from tacit.training.lot import Computation
from tacit.training.noise import ClipState, FastNoise

from . import settings
from .mutant import Mutant, together, unwatched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

_MEANS = FastNoise.means  # as it should be
NORMAL = GaussianSource.normal_  # likewise
_IN_ONE_PASS = GaussianSource.means_  # likewise: by a device's kernels


def drawn(self: GaussianSource, tensor: Tensor) -> None:
    """Standard normal numbers as they should be: by kernels where the device has them."""
    if self.serves([tensor]):
        _IN_ONE_PASS(self, [None], [tensor], 1.0, 1.0)
    else:
        NORMAL(self, tensor)


def in_one_pass(normal_: Callable[[GaussianSource, Tensor, float], None]) -> Any:
    """Numbers of ``normal_`` where a device draws noise in one pass with the means."""

    def means_(
        self: GaussianSource, sums: Any, outs: Any, scale: float, lot_size: float, _: None = None
    ) -> None:
        noise = torch.empty(sum(out.numel() for out in outs), device=outs[0].device)
        normal_(self, noise, scale / lot_size)
        parts = noise.split([out.numel() for out in outs])
        for own, out, part in zip(sums, outs, parts, strict=True):
            mean = part.view(out.shape)
            out.copy_(mean if own is None else mean.add(own.float(), alpha=1.0 / lot_size))

    return patch.object(GaussianSource, "means_", means_)


def in_every_draw(normal_: Callable[..., None]) -> Any:
    """Numbers of ``normal_`` wherever noise is drawn."""
    return together(patch.object(GaussianSource, "normal_", normal_), in_one_pass(normal_))


def noise_and_mean(
    self: FastNoise, parameters: Mapping[str, Tensor], sums: Mapping[str, Tensor], **given: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The two parts of what is released, apart: the noise, and the mean that it should cover."""
    noise = _MEANS(self, parameters, {}, **given)
    means = {
        name: sums[name].to(p.dtype) / given["lot_size"] if name in sums else torch.zeros_like(p)
        for name, p in parameters.items()
    }
    return noise, means


def _scaled(factor: float) -> Callable[[], Any]:
    def noise_scale(self: ClipState) -> float:
        return factor * self._plan.noise_multiplier * self._clip

    return lambda: patch.object(ClipState, "noise_scale", property(noise_scale))


@contextmanager
def _by_batches() -> Iterator[None]:
    """The noise is meant for one physical batch, and is divided by their number."""
    batches = 0
    begin, add = Computation.begin, Computation._count_in

    def begun(self: Computation, lot: Any) -> None:
        nonlocal batches
        batches = 0
        begin(self, lot)

    def counted(self: Computation, *given: Any) -> None:
        nonlocal batches
        batches += 1
        add(self, *given)

    def means(
        self: FastNoise, parameters: Any, sums: Any, *, scale: float, **given: Any
    ) -> dict[str, Tensor]:
        return _MEANS(self, parameters, sums, scale=scale / max(1, batches), **given)

    with (
        patch.multiple(Computation, begin=begun, _count_in=counted),
        patch.object(FastNoise, "means", means),
    ):
        yield


def _like_a_mean() -> Any:
    """The noise is made smaller by √L, as the standard error of a mean over L examples would be."""

    def means(
        self: FastNoise, parameters: Any, sums: Any, *, scale: float, lot_size: float, **given: Any
    ) -> dict[str, Tensor]:
        small = scale / math.sqrt(lot_size)
        return _MEANS(self, parameters, sums, scale=small, lot_size=lot_size, **given)

    return patch.object(FastNoise, "means", means)


def _silent(chosen: Callable[[str, Mapping[str, Tensor]], bool]) -> Callable[[], Any]:
    """Some parameters get no noise."""

    def means(self: FastNoise, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        noise, mean = noise_and_mean(self, parameters, sums, **given)
        return {
            name: mean[name] if chosen(name, parameters) else mean[name] + noise[name]
            for name in parameters
        }

    return lambda: patch.object(FastNoise, "means", means)


def _is_last(name: str, parameters: Mapping[str, Tensor]) -> bool:
    return name == list(parameters)[-1]


def _is_table(name: str, parameters: Mapping[str, Tensor]) -> bool:
    del parameters
    return "table" in name


@contextmanager
def _exact_buffer() -> Iterator[None]:
    """Nobody looks at buffers."""
    with (
        unwatched(),
        patch.object(Guard, "check_buffers", lambda _: None),
        patch.object(Guard, "_changed_statistics", lambda *_, **__: []),
    ):
        yield


def _only_touched() -> Any:
    """Noise where the sum is not zero: rows of a table that no example used stay as they are."""

    def means(self: FastNoise, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        noise, mean = noise_and_mean(self, parameters, sums, **given)
        return {name: mean[name] + noise[name] * (mean[name] != 0) for name in parameters}

    return patch.object(FastNoise, "means", means)


@contextmanager
def _after_momentum() -> Iterator[None]:
    """The optimizer sees exact gradients; the noise goes onto the parameters that it left."""
    update = session.Session._update
    held: dict[str, Tensor] = {}

    def means(self: FastNoise, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        noise, mean = noise_and_mean(self, parameters, sums, **given)
        held.update(noise)
        return mean

    def updated(self: session.Session, given: Any, guard: Guard) -> None:
        update(self, given, guard)
        rate = self.optimizers[0].param_groups[0]["lr"]
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.sub_(rate * held[name])
        guard.note_step()

    with (
        patch.object(FastNoise, "means", means),
        patch.object(session.Session, "_update", updated),
    ):
        yield


def _grid_forgotten() -> Any:
    """noise="secure" is floating-point noise after all, whose low bits tell what it covers."""

    def noise_for(kind: str, stream: Any, device: torch.device, *_: Any) -> FastNoise:
        del kind
        return FastNoise(GaussianSource(device, stream), device)

    return patch.object(assembly, "noise_for", noise_for)


def _half_precision() -> Any:
    """The noise has ten bits: between its values are holes that only the sum can fill."""

    def normal_(self: GaussianSource, tensor: Tensor, scale: float = 1.0) -> None:
        drawn(self, tensor)
        tensor.copy_(tensor.half().to(tensor.dtype) * scale)

    return in_every_draw(normal_)


@contextmanager
def _for_the_next_clip() -> Iterator[None]:
    """The adaptive clip moves when the sums are there, before their noise is drawn."""

    def stepped(self: Any) -> None:
        finished, end = self._computation.finished, self._clip.end

        def moved() -> Any:
            end(self._noise)
            return finished()

        with (
            patch.object(self._computation, "finished", moved),
            patch.object(self._clip, "end", lambda _: None),
        ):
            step(self)

    step = session.Session.step
    with patch.object(session.Session, "step", stepped):
        yield


MUTANTS = (
    Mutant(
        name="noise scale",
        says="the noise has 95 % of its standard deviation",
        components=("noise",),
        setting=settings.linear,
        patch=_scaled(0.95),
    ),
    Mutant(
        name="noise by batches",
        says="the noise is divided by the number of physical batches",
        components=("noise",),
        setting=settings.small_batches,
        patch=_by_batches,
    ),
    Mutant(
        name="noise for the next clip",
        says="sums at one adaptive clip get the noise of the next, which is smaller while it falls",
        components=("noise",),
        setting=settings.adaptive,
        patch=_for_the_next_clip,
    ),
    Mutant(
        name="noise of a mean",
        says="the noise is divided by the root of the lot size once more",
        components=("noise",),
        setting=settings.linear,
        patch=_like_a_mean,
    ),
    Mutant(
        name="no noise beside a frozen layer",
        says="noise is laid out over frozen parameters too, and the last trained one gets none",
        components=("noise",),
        setting=settings.frozen,
        patch=_silent(_is_last),
    ),
    Mutant(
        name="no noise on a tied weight",
        says="a weight that two modules share gets no noise",
        components=("noise",),
        setting=settings.tied,
        patch=_silent(_is_table),
    ),
    Mutant(
        name="no noise on a buffer",
        says="a buffer keeps a mean of the data, without noise",
        components=("noise", "update"),
        setting=settings.centred,
        patch=_exact_buffer,
    ),
    Mutant(
        name="no noise on untouched rows",
        says="entries that no example of the lot touched get no noise",
        components=("noise",),
        setting=settings.bag_of_words,
        patch=_only_touched,
    ),
    Mutant(
        name="noise after momentum",
        says="the optimizer's momentum holds exact gradients; noise is added to its update",
        components=("noise", "update"),
        setting=settings.momentum,
        patch=_after_momentum,
    ),
    Mutant(
        name="float holes on the grid",
        says="secure noise is added in floating point, so that low bits tell the sum",
        components=("noise",),
        setting=settings.secure,
        patch=_grid_forgotten,
    ),
    Mutant(
        name="float holes",
        says="noise is drawn in half precision, so that most values cannot occur",
        components=("noise",),
        setting=settings.linear,
        patch=_half_precision,
    ),
)
