"""Bounds in use: the group of each parameter, and the clip where it moves from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from tacit._validation import positive
from tacit.training.styles import AdaptiveQuantile, groups_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from tacit.training.checkpoint import Stateful
    from tacit.training.clipping.clipped import ClippedBatch
    from tacit.training.noise import Noise
    from tacit.training.plan import Plan


def parameter_groups(
    plan: Plan, parameters: Mapping[str, Tensor]
) -> tuple[dict[str, int], list[float]]:
    """The group of each parameter, and the groups' bounds in units of the plan's clip."""
    groups = groups_of(plan.clipping, plan.clip, parameters)
    places = {name: at for at, group in enumerate(groups) for name in group.parameters}
    return places, [group.bound / plan.clip for group in groups]


@final
class ClipState:
    """The bounds of the step at hand. They are public: each moves by released numbers alone."""

    def __init__(self, plan: Plan, shares: Sequence[float], device: torch.device) -> None:
        self._plan = plan
        # In double precision: rounded up to single, a bound would lie above the plan's clip.
        self._shares = torch.tensor(shares, dtype=torch.float64, device=device)
        self._style = plan.clipping if isinstance(plan.clipping, AdaptiveQuantile) else None
        self._clip = plan.clip
        self._centred: Tensor | None = None
        self.bounds = self._shares * self._clip

    @property
    def sensitivity(self) -> float:
        """The most that one unit adds to the sum in this step."""
        return self._clip

    @property
    def noise_scale(self) -> float:
        """The standard deviation of this step's noise on the sum."""
        return self._plan.noise_multiplier * self._clip

    def begin(self) -> None:
        """A new lot."""
        self._centred = None

    def counted(self, batch: ClippedBatch, units: int) -> Tensor | None:
        """The lot's count with Σ(b_i - ½) over a batch's first ``units``, the real ones.

        b_i says whether unit i's norm is within the clip. Nothing is changed: see ``keep``.
        """
        if self._style is None:
            return None
        within = batch.squared_norms[0, :units] <= self._clip**2
        centred = (within.float() - 0.5).sum()
        return centred if self._centred is None else self._centred + centred

    def keep(self, centred: Tensor | None) -> None:
        """Takes what ``counted`` returned for the lot's count."""
        self._centred = centred

    def end(self, noise: Noise) -> None:
        """Releases the noisy count, if the style needs it, and moves the clip."""
        if self._style is None:
            return
        exact = 0.0 if self._centred is None else float(self._centred)
        noisy = noise.count(exact, self._style.count_noise)
        self._clip = self._style.next_clip(self._clip, noisy, self._plan.lot_size)
        self.bounds = self._shares * self._clip

    def state(self) -> dict[str, Stateful]:
        """What a checkpoint must hold of the clip: nothing, if it does not move."""
        return {} if self._style is None else {"tacit clip": self}

    def state_dict(self) -> dict[str, Any]:
        """The clip as it is."""
        return {"clip": self._clip}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Takes up the clip of a checkpoint."""
        self._clip = positive("clip", state_dict["clip"])
        self.bounds = self._shares * self._clip
