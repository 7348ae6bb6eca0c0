"""All checks, in the order in which they are made: what is cheap and basic comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit.auditing.replay.checks import (
    charging,
    clipping,
    control_flow,
    correlated,
    gradients,
    joint_noise,
    noise,
    options,
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

    ``name`` is what progress and reports call it, wherever it is defined.

    A wrong sum makes whatever is computed from sums wrong: only the first cause is to be named.
    """

    name: str
    make: Callable[[Experiments], Finding]
    needs: tuple[Callable[[Experiments], Finding], ...] = ()


CHECKS = (
    Check("gradients.alone", gradients.alone),
    Check("clipping.by_definition", clipping.by_definition, (gradients.alone,)),
    Check("clipping.removal", clipping.removal),
    Check("clipping.replacement", clipping.replacement),
    Check("clipping.poison", clipping.poison),
    Check("clipping.magnitudes", clipping.magnitudes, (clipping.by_definition, gradients.alone)),
    Check("clipping.cap", clipping.cap, (clipping.by_definition, gradients.alone)),
    Check("noise.others", noise.others),
    Check("gradients.cutting", gradients.cutting, (gradients.alone, clipping.by_definition)),
    Check("gradients.everybody", gradients.everybody, (gradients.alone, clipping.by_definition)),
    Check("control_flow.steps", control_flow.steps),
    Check("charging.claim", charging.claim),
    Check("charging.before_release", charging.before_release),
    Check("charging.every_step", charging.every_step),
    Check("charging.crashed", charging.crashed),
    Check("charging.limit", charging.limit),
    Check(
        "several_runs.steps",
        charging.steps_of_several_runs,
        (charging.before_release, charging.every_step, charging.crashed),
    ),
    Check("several_runs.sums", charging.several_runs, (charging.claim,)),
    Check("several_runs.pairs", charging.pairs, (charging.claim,)),
    Check("several_runs.claims", charging.second_claim, (charging.claim,)),
    Check("statements.ended", charging.statements_of_what_ended, (charging.claim,)),
    Check(
        "several_runs.limit",
        charging.limit_of_several_runs,
        (charging.limit, charging.several_runs),
    ),
    Check(
        "lot_sums.normalisation", update.normalisation, (gradients.alone, clipping.by_definition)
    ),
    Check("update.by_optimizer", update.by_optimizer),
    Check(
        "noise.with_data",
        noise.with_data,
        (gradients.alone, clipping.by_definition, update.normalisation),
    ),
    Check("sampling.fresh", sampling.fresh),
    Check("randomness.fresh", noise.fresh),
    Check("sampling.empty_lots", sampling.empty_lots),
    Check(
        "lot_sums.every_lot",
        update.every_lot,
        (gradients.alone, clipping.by_definition, update.normalisation, sampling.empty_lots),
    ),
    Check(
        "moving.sums",
        gradients.after_moving,
        (gradients.alone, clipping.by_definition, update.normalisation, update.every_lot),
    ),
    Check(
        "lot_sums.own_data",
        update.own_data,
        (gradients.alone, clipping.by_definition, update.normalisation, update.every_lot),
    ),
    Check(
        "lot_sums.out_of_memory",
        update.out_of_memory,
        (gradients.alone, clipping.by_definition, update.normalisation, update.every_lot),
    ),
    Check("update.handed_over", update.handed_over),
    Check(
        "options.fitting",
        options.fitting,
        (
            gradients.alone,
            clipping.by_definition,
            update.normalisation,
            charging.claim,
            update.by_optimizer,
        ),
    ),
    Check(
        "options.loops",
        options.loops,
        (gradients.alone, clipping.by_definition, update.normalisation),
    ),
    Check("options.seeded", options.seeded),
    Check("refusals.all_of_them", control_flow.refusals),
    Check("resuming.goes_on", resuming.goes_on, (update.by_optimizer, update.handed_over)),
    Check("resuming.afresh", resuming.fresh, (sampling.fresh, noise.fresh)),
    Check("resuming.charged", resuming.charged),
    Check(
        "lot_sums.after_resuming",
        update.after_resuming,
        (
            gradients.alone,
            clipping.by_definition,
            update.normalisation,
            update.every_lot,
            resuming.goes_on,
        ),
    ),
    Check("resumed_claims.claimed", resuming.claimed, (charging.claim, resuming.goes_on)),
    Check("resumed_claims.in_ledger", resuming.in_ledger, (charging.claim, resuming.charged)),
    Check("resumed_claims.strays", resuming.strays, (charging.claim, resuming.goes_on)),
    Check("noise.scale", noise.scale),
    Check("charging.other_claims", charging.other_claims, (charging.claim,)),
    Check("noise.every_parameter", noise.every_parameter),
    Check("noise.shape", noise.shape, (noise.every_parameter,)),
    Check("noise.grid", noise.grid),
    Check("joint_noise.lengths", joint_noise.lengths, (noise.scale, noise.every_parameter)),
    Check("joint_noise.directions", joint_noise.directions, (noise.scale, noise.every_parameter)),
    Check(
        "joint_noise.links", joint_noise.links, (noise.scale, noise.every_parameter, noise.shape)
    ),
    Check(
        "hiding.odd_units",
        joint_noise.beside_odd_units,
        (gradients.alone, clipping.by_definition, clipping.poison, noise.scale),
    ),
    Check(
        "hiding.sums",
        joint_noise.apart_from_sum,
        (gradients.alone, update.normalisation, noise.scale),
    ),
    Check(
        "hiding.law",
        joint_noise.on_faint_sums,
        (gradients.alone, update.normalisation, noise.scale, noise.shape, joint_noise.lengths),
    ),
    Check(
        "on_sums.law",
        joint_noise.whatever_the_sum,
        (gradients.alone, clipping.by_definition, noise.scale, noise.fresh),
    ),
    Check("randomness.independence", noise.independence),
    Check(
        "randomness.repeated",
        noise.repeated,
        (noise.scale, noise.every_parameter, noise.independence),
    ),
    Check("options.forks", options.forks, (charging.every_step, noise.fresh)),
    Check("sampling.rate", sampling.rate),
    Check("sampling.own_rate", sampling.own_rate, (sampling.rate,)),
    Check("sampling.epochs", sampling.epochs),
    Check("sampling.independence", sampling.independence, (sampling.rate,)),
    Check("lots.once", sampling.once),
    Check("lots.steady", sampling.steady, (sampling.rate,)),
    Check("lots.neighbours", sampling.neighbours, (sampling.rate, sampling.independence)),
    Check("lots.by_data", sampling.by_data, (sampling.rate,)),
    Check(
        "resuming.as_before",
        resuming.as_before,
        (resuming.goes_on, noise.scale, noise.every_parameter, sampling.rate),
    ),
    Check("randomness.from_sampling", noise.from_sampling, (noise.scale, noise.every_parameter)),
    Check(
        "moving_clip.count_noise",
        clipping.count_noise,
        (gradients.alone, clipping.by_definition, update.normalisation),
    ),
    Check(
        "moving_clip.noise_at_the_clip",
        clipping.noise_at_the_clip,
        (
            gradients.alone,
            clipping.by_definition,
            update.normalisation,
            noise.scale,
            noise.every_parameter,
        ),
    ),
    # Noise that is missing, or the same in every run, shows in whatever is published, too.
    Check(
        "published.numbers",
        control_flow.published_numbers,
        (noise.scale, noise.every_parameter, joint_noise.whatever_the_sum, clipping.count_noise),
    ),
    Check("published.order", control_flow.order_of_reads, (control_flow.steps,)),
    Check("told_lots.secret", control_flow.secret_lots),
    Check("statements.every_run", charging.statements, (charging.claim, charging.other_claims)),
    Check(
        "control_flow.every_run", control_flow.every_run, (control_flow.steps, sampling.empty_lots)
    ),
)
# What a model, a style of clipping or a kind of data has no part in: it is seen in other settings.
_MODEL_FREE = (
    charging.steps_of_several_runs, charging.several_runs, charging.pairs, charging.second_claim,
    charging.statements_of_what_ended, charging.limit_of_several_runs, options.fitting,
    options.loops, options.seeded, control_flow.refusals, resuming.charged, resuming.claimed,
    resuming.in_ledger, resuming.strays, joint_noise.beside_odd_units, joint_noise.apart_from_sum,
    joint_noise.on_faint_sums, joint_noise.whatever_the_sum, sampling.own_rate, sampling.epochs,
)  # fmt: skip
_QUICK = (gradients.alone, clipping.by_definition, gradients.cutting, update.normalisation)
# What a way of computing sums can do wrong; the rest of an engine was seen in other settings.
_SUMS = (
    *_QUICK, clipping.removal, clipping.poison, clipping.magnitudes, clipping.cap,
    gradients.everybody, gradients.after_moving, noise.with_data,
)  # fmt: skip
_NOISE = (
    *_QUICK, noise.scale, noise.every_parameter, noise.shape, noise.grid, noise.with_data,
    joint_noise.lengths, joint_noise.directions, joint_noise.links, noise.independence,
    noise.repeated, noise.fresh,
)  # fmt: skip
# Where records are read or lots are drawn in another way as well; a model has no part in that.
_LOTS = (*_SUMS, update.own_data, sampling.own_rate, sampling.epochs)
RELEASE_CHECKS = tuple(check for check in CHECKS if check.make not in _MODEL_FREE)
SUM_CHECKS = tuple(check for check in CHECKS if check.make in _SUMS)
LOT_CHECKS = tuple(check for check in CHECKS if check.make in _LOTS)
NOISE_CHECKS = tuple(check for check in CHECKS if check.make in _NOISE)
QUICK_CHECKS = tuple(check for check in CHECKS if check.make in _QUICK)
# On several ranks; the rest of an engine was seen in one process.
RANK_CHECKS = (
    Check("ranks.sums", ranks.sums),
    Check("ranks.lots", ranks.lots, (ranks.sums,)),
    Check("ranks.in_step", ranks.in_step),
    Check("ranks.noise", ranks.noise),
    Check("ranks.small_lots", ranks.small_lots, (ranks.noise,)),
    Check("ranks.sampling", ranks.sampling, (ranks.lots,)),
)
# Where noise is correlated over the steps: other laws than those of independent noise.
_ALSO = (
    *_QUICK, clipping.removal, clipping.replacement, clipping.poison, charging.claim,
    charging.before_release, charging.every_step, charging.crashed, charging.limit,
    resuming.charged, resuming.goes_on, resuming.claimed, resuming.in_ledger,
    update.by_optimizer, update.handed_over, control_flow.steps,
)  # fmt: skip
CORRELATED_CHECKS = (
    *(check for check in CHECKS if check.make in _ALSO),
    Check("correlated.exactly", correlated.exactly),
    Check("correlated.law", correlated.law, (correlated.exactly,)),
    Check("correlated.groups", correlated.groups),
    Check("correlated.groups_resumed", correlated.groups_resumed, (correlated.groups,)),
    Check("correlated.resumed", correlated.resumed, (correlated.law, resuming.goes_on)),
)
