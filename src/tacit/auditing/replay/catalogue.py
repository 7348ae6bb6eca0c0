"""All checks, in the order in which they are made: what is cheap and basic comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit.auditing.replay.checks import (
    charging,
    clipping,
    control_flow,
    gradients,
    moving_clip,
    noise,
    randomness,
    ranks,
    resuming,
    sampling,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Finding


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One check; it is left out if one of those that it ``needs`` has failed.

    A wrong sum makes whatever is computed from sums wrong: only the first cause is to be named.
    """

    make: Callable[[Experiments], Finding]
    needs: tuple[Callable[[Experiments], Finding], ...] = ()

    @property
    def name(self) -> str:
        """Where it is defined."""
        return f"{self.make.__module__.rpartition('.')[2]}.{self.make.__name__}"


CHECKS = (
    Check(gradients.alone),
    Check(clipping.by_definition, (gradients.alone,)),
    Check(clipping.removal),
    Check(clipping.replacement),
    Check(clipping.poison),
    Check(clipping.magnitudes, (clipping.by_definition, gradients.alone)),
    Check(clipping.cap, (clipping.by_definition, gradients.alone)),
    Check(noise.others),
    Check(gradients.cutting, (gradients.alone, clipping.by_definition)),
    Check(control_flow.steps),
    Check(charging.claim),
    Check(charging.before_release),
    Check(charging.every_step),
    Check(charging.crashed),
    Check(charging.limit),
    Check(update.normalisation, (gradients.alone, clipping.by_definition)),
    Check(update.by_optimizer),
    Check(noise.with_data, (gradients.alone, clipping.by_definition, update.normalisation)),
    Check(sampling.fresh),
    Check(randomness.fresh),
    Check(sampling.empty_lots),
    Check(resuming.goes_on, (update.by_optimizer,)),
    Check(resuming.anew, (sampling.fresh, randomness.fresh)),
    Check(resuming.charged),
    Check(control_flow.published),
    Check(noise.scale),
    Check(noise.every_parameter),
    Check(noise.shape, (noise.every_parameter,)),
    Check(noise.grid),
    Check(randomness.independence),
    Check(randomness.repeated, (noise.scale, noise.every_parameter, randomness.independence)),
    Check(sampling.rate),
    Check(sampling.independence, (sampling.rate,)),
    Check(randomness.from_sampling, (noise.scale, noise.every_parameter)),
    Check(moving_clip.count_noise, (gradients.alone, clipping.by_definition, update.normalisation)),
    Check(control_flow.every_run, (control_flow.steps, sampling.empty_lots)),
)
# On several ranks; the rest of an engine was seen in one process.
RANK_CHECKS = (
    Check(ranks.sums),
    Check(ranks.lots, (ranks.sums,)),
    Check(ranks.in_step),
    Check(ranks.noise),
)
