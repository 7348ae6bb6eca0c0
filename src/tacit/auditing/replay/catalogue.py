"""All checks, in the order in which they are made: what is cheap and basic comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit.auditing.replay.checks import (
    charging,
    clipping,
    control_flow,
    gradients,
    hiding,
    joint_noise,
    lot_sums,
    lots,
    moving,
    moving_clip,
    noise,
    on_sums,
    options,
    published,
    randomness,
    ranks,
    refusals,
    resumed_claims,
    resuming,
    sampling,
    several_runs,
    statements,
    told_lots,
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
    Check(gradients.everybody, (gradients.alone, clipping.by_definition)),
    Check(control_flow.steps),
    Check(charging.claim),
    Check(charging.before_release),
    Check(charging.every_step),
    Check(charging.crashed),
    Check(charging.limit),
    Check(several_runs.steps, (charging.before_release, charging.every_step, charging.crashed)),
    Check(several_runs.sums, (charging.claim,)),
    Check(several_runs.pairs, (charging.claim,)),
    Check(several_runs.claims, (charging.claim,)),
    Check(statements.ended, (charging.claim,)),
    Check(several_runs.limit, (charging.limit, several_runs.sums)),
    Check(lot_sums.normalisation, (gradients.alone, clipping.by_definition)),
    Check(update.by_optimizer),
    Check(noise.with_data, (gradients.alone, clipping.by_definition, lot_sums.normalisation)),
    Check(sampling.fresh),
    Check(randomness.fresh),
    Check(sampling.empty_lots),
    Check(
        lot_sums.every_lot,
        (gradients.alone, clipping.by_definition, lot_sums.normalisation, sampling.empty_lots),
    ),
    Check(
        moving.sums,
        (gradients.alone, clipping.by_definition, lot_sums.normalisation, lot_sums.every_lot),
    ),
    Check(
        lot_sums.own_data,
        (gradients.alone, clipping.by_definition, lot_sums.normalisation, lot_sums.every_lot),
    ),
    Check(
        lot_sums.out_of_memory,
        (gradients.alone, clipping.by_definition, lot_sums.normalisation, lot_sums.every_lot),
    ),
    Check(update.handed_over),
    Check(
        options.fitting,
        (
            gradients.alone,
            clipping.by_definition,
            lot_sums.normalisation,
            charging.claim,
            update.by_optimizer,
        ),
    ),
    Check(options.loops, (gradients.alone, clipping.by_definition, lot_sums.normalisation)),
    Check(options.seeded),
    Check(refusals.all_of_them),
    Check(resuming.goes_on, (update.by_optimizer, update.handed_over)),
    Check(resuming.anew, (sampling.fresh, randomness.fresh)),
    Check(resuming.charged),
    Check(
        lot_sums.after_resuming,
        (
            gradients.alone,
            clipping.by_definition,
            lot_sums.normalisation,
            lot_sums.every_lot,
            resuming.goes_on,
        ),
    ),
    Check(resumed_claims.claimed, (charging.claim, resuming.goes_on)),
    Check(resumed_claims.in_ledger, (charging.claim, resuming.charged)),
    Check(resumed_claims.strays, (charging.claim, resuming.goes_on)),
    Check(noise.scale),
    Check(charging.other_claims, (charging.claim,)),
    Check(noise.every_parameter),
    Check(noise.shape, (noise.every_parameter,)),
    Check(noise.grid),
    Check(joint_noise.lengths, (noise.scale, noise.every_parameter)),
    Check(joint_noise.directions, (noise.scale, noise.every_parameter)),
    Check(joint_noise.links, (noise.scale, noise.every_parameter, noise.shape)),
    Check(
        hiding.odd_units,
        (gradients.alone, clipping.by_definition, clipping.poison, noise.scale),
    ),
    Check(hiding.sums, (gradients.alone, lot_sums.normalisation, noise.scale)),
    Check(
        hiding.law,
        (gradients.alone, lot_sums.normalisation, noise.scale, noise.shape, joint_noise.lengths),
    ),
    Check(on_sums.law, (gradients.alone, clipping.by_definition, noise.scale, randomness.fresh)),
    Check(randomness.independence),
    Check(randomness.repeated, (noise.scale, noise.every_parameter, randomness.independence)),
    Check(options.forks, (charging.every_step, randomness.fresh)),
    Check(sampling.rate),
    Check(sampling.own_rate, (sampling.rate,)),
    Check(sampling.independence, (sampling.rate,)),
    Check(lots.once),
    Check(lots.steady, (sampling.rate,)),
    Check(lots.neighbours, (sampling.rate, sampling.independence)),
    Check(lots.by_data, (sampling.rate,)),
    Check(
        resuming.as_before,
        (resuming.goes_on, noise.scale, noise.every_parameter, sampling.rate),
    ),
    Check(randomness.from_sampling, (noise.scale, noise.every_parameter)),
    Check(
        moving_clip.count_noise, (gradients.alone, clipping.by_definition, lot_sums.normalisation)
    ),
    Check(
        moving_clip.noise_at_the_clip,
        (
            gradients.alone,
            clipping.by_definition,
            lot_sums.normalisation,
            noise.scale,
            noise.every_parameter,
        ),
    ),
    # Noise that is missing, or the same in every run, shows in whatever is published, too.
    Check(
        published.numbers,
        (noise.scale, noise.every_parameter, on_sums.law, moving_clip.count_noise),
    ),
    Check(published.order, (control_flow.steps,)),
    Check(told_lots.secret),
    Check(statements.every_run, (charging.claim, charging.other_claims)),
    Check(control_flow.every_run, (control_flow.steps, sampling.empty_lots)),
)
_QUICK = (gradients.alone, clipping.by_definition, gradients.cutting, lot_sums.normalisation)
# What a way of computing sums can do wrong; the rest of an engine was seen in other settings.
_SUMS = (
    *_QUICK, clipping.removal, clipping.poison, clipping.magnitudes, clipping.cap,
    gradients.everybody, moving.sums, noise.with_data, lot_sums.own_data,
)  # fmt: skip
_NOISE = (
    *_QUICK, noise.scale, noise.every_parameter, noise.shape, noise.grid, noise.with_data,
    joint_noise.lengths, joint_noise.directions, joint_noise.links, randomness.independence,
    randomness.repeated, randomness.fresh,
)  # fmt: skip
NOISE_CHECKS = tuple(check for check in CHECKS if check.make in _NOISE)
SUM_CHECKS = tuple(check for check in CHECKS if check.make in _SUMS)
# Where lots are drawn in another way as well; a model has no part in that.
LOT_CHECKS = tuple(check for check in CHECKS if check.make in (*_SUMS, sampling.own_rate))
QUICK_CHECKS = tuple(check for check in CHECKS if check.make in _QUICK)
# On several ranks; the rest of an engine was seen in one process.
RANK_CHECKS = (
    Check(ranks.sums),
    Check(ranks.lots, (ranks.sums,)),
    Check(ranks.in_step),
    Check(ranks.noise),
    Check(ranks.small_lots, (ranks.noise,)),
    Check(ranks.sampling, (ranks.lots,)),
)
