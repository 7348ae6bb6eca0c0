"""What a run may be given beside its plan: fit's options, a loop of one's own, a fork.

None of them may see what has no noise on it, change what is released, or claim less for it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from tacit.accounting import Gaussian
from tacit.auditing.replay import plans, significance
from tacit.auditing.replay.checks import gradients
from tacit.auditing.replay.checks.gradients import apart_from_scale, distance
from tacit.auditing.replay.checks.noise import columns_of
from tacit.auditing.replay.checks.update import replayed
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.reference import is_noisy, least_epsilon
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.tacit_subject import (
    CHECKED,
    RECHECKED,
    Fitted,
    Forked,
    by_hand,
    seeded_run,
)
from tacit.auditing.replay.trace import Variation, one_line
from tacit.training.sampling import Poisson

if TYPE_CHECKING:
    from collections.abc import Container

    from torch import Tensor, nn

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_NOT_TACIT = "the engine has no options that are known here: nothing to check"
_SAME = 1e-5
_STEPS, _AVERAGED_FROM = 10, 4
_LOOP_STEPS = 7
_ALSO = Gaussian(20.0)  # something else that was released, for what is claimed of all together


class _HeldOut(Dataset[Any]):
    """A few examples that no run is trained on, as a run's own come."""

    def __init__(self, examples: list[Any], *, numbered: bool) -> None:
        self._examples, self._numbered = examples, numbered

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, at: int) -> Any:
        return (-1, self._examples[at]) if self._numbered else self._examples[at]


def fitting(experiments: Experiments) -> Finding:
    """Fit with all its options takes the same steps, and shows nothing but released numbers."""
    if not experiments.is_tacit:
        return Finding("control flow", "options of fit", True, _NOT_TACIT)
    wrong: list[str] = []
    for name, also in (("fit", None), ("fit beside another release", _ALSO)):
        fitted, trace = _fitted(experiments, name, also)
        if trace.error is not None:
            return Finding("control flow", "options of fit", False, one_line(trace.error))
        wrong += [f"{what} ({name})" for what in _wrong(experiments, fitted, trace)]
    return Finding(
        "control flow",
        "options of fit",
        not wrong,
        wrong[0]
        if wrong
        else "a scheduler is given nothing, an average is that of released weights, held-out "
        "accuracy is theirs, and an epoch's ε is no less than its steps have",
        (("wrong", float(len(wrong))),),
    )


def _fitted(experiments: Experiments, name: str, also: Gaussian | None) -> tuple[Fitted, Trace]:
    lab, plan = experiments.lab, experiments.plan
    numbered = not lab.plain
    rest = experiments.many.of(lab.setting.dataset)[experiments.few.count :]

    def correct(model: nn.Module, batch: Any) -> Tensor:
        losses = lab.setting.loss(model, batch[0] if numbered else batch)
        return losses.detach() < math.log(3.0)

    fitted = Fitted(_HeldOut(rest, numbered=numbered), correct, _AVERAGED_FROM, also)
    own = plans.sampled(plan, experiments.few, steps=_STEPS, lot_size=0.3 * experiments.few.count)
    quiet = own if is_adaptive(plan) else plans.noiseless(own)
    fitted.terminal = also is None
    path = lab.folder / f"{name}.ckpt"
    variation = Variation(
        plan=own if also is not None else quiet, records=experiments.few, scale=experiments.mixed,
        still=False, save=path,
    )  # fmt: skip
    return fitted, experiments.once(name, variation, fitted)


def _wrong(experiments: Experiments, fitted: Fitted, trace: Trace) -> list[str]:
    """All that is not as it should be."""
    steps = trace.steps
    found = []
    if len(steps) != _STEPS:
        found.append(f"{len(steps)} of {_STEPS} steps were taken")
        return found
    if len(fitted.given) != _STEPS or any(fitted.given):
        found.append(f"a scheduler was called {len(fitted.given)} times, with {fitted.given[-1:]}")
    if fitted.asked != _STEPS - 1:
        found.append(f"stop was asked {fitted.asked} times in {_STEPS} steps")
    after = [step.after for step in steps if step.after is not None]
    mean = torch.stack(after[_AVERAGED_FROM - 1 :]).double().mean(0)
    assert fitted.average is not None
    off = float((fitted.average.double() - mean).norm() / mean.norm().clamp_min(1e-30))
    if not off <= _SAME:
        found.append(f"the average of the weights is {off:.3g} from that of the released ones")
    off, where = replayed(experiments.lab, (trace,))
    if off > _SAME:
        found.append(f"the optimizer alone leads elsewhere, by {off:.3g}{where}")
    return found + _wrong_epochs(experiments, fitted, trace) + _wrong_sums(experiments, trace)


def _wrong_epochs(experiments: Experiments, fitted: Fitted, trace: Trace) -> list[str]:
    found = []
    assert trace.outcome is not None
    history = trace.outcome.published["history"]
    plan = trace.variation.plan
    ends = [
        step
        for step in range(1, _STEPS + 1)
        if int(step * plan.sample_rate + 1e-9) > int((step - 1) * plan.sample_rate + 1e-9)
        or step == _STEPS
    ]
    if [one["steps"] for one in history] != ends or len(fitted.epochs) != len(ends):
        return [f"epochs end after {[one['steps'] for one in history]} steps, not after {ends}"]
    for one in history:
        released = [step.after for step in trace.steps[: one["steps"]] if step.after is not None]
        averaged = released[_AVERAGED_FROM - 1 :]
        at = torch.stack(averaged).mean(0) if averaged else released[-1]
        right = _share(experiments, fitted, at)
        if abs(right - one["held_out_accuracy"]) > 1.5 / len(fitted.held_out):  # type: ignore[arg-type]
            found.append(
                f"held-out accuracy is given as {one['held_out_accuracy']:.3f}, and is {right:.3f}"
            )
        least = least_epsilon(plan, one["steps"], DELTA) if is_noisy(plan) else 0.0
        if least is not None and one["epsilon"] < least * (1.0 - 1e-6) - 1e-6:
            found.append(f"ε = {one['epsilon']:.6g} after {one['steps']} steps, below {least:.6g}")
    return found


def _share(experiments: Experiments, fitted: Fitted, parameters: Tensor) -> float:
    """The share of held-out rows that are right at some parameters."""
    lab = experiments.lab
    model, optimizer = lab.made(still=True)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    parts = parameters.split([p.numel() for p in held])
    with torch.no_grad():
        for parameter, part in zip(held, parts, strict=True):
            parameter.copy_(part.view(parameter.shape))
        right = []
        for at in range(len(fitted.held_out)):  # type: ignore[arg-type]
            batch = lab.collated([fitted.held_out[at]], numbered=not lab.plain)
            right.append(float(fitted.correct(model.eval(), batch)[0]))
    return float(np.mean(right))


def _wrong_sums(experiments: Experiments, trace: Trace, others: Container[int] = ()) -> list[str]:
    """Whether the sums of steps are those of their units; ``others`` computed more than theirs."""
    if is_adaptive(trace.variation.plan) or trace.variation.plan.noise_multiplier > 0.1:
        return []
    for step in (at for at in trace.settled if at not in others):
        off, limit, _ = distance(experiments, trace, step)
        if not off <= limit:
            return [f"the sum of step {step + 1} is {off:.3g} from that of its units"]
    return []


def loops(experiments: Experiments) -> Finding:
    """A loop of one's own, with evaluations, checks and public work between lots, does the same."""
    if not experiments.is_tacit:
        return Finding("control flow", "own loop", True, _NOT_TACIT)
    own, few = experiments.plan, experiments.few
    scale = experiments.tight if is_adaptive(own) else experiments.mixed
    wrong: list[str] = []
    for name, plan in (
        ("own loop", plans.small_lots(own, few, steps=_LOOP_STEPS, rate=0.4)),
        ("own loop over everybody", plans.whole(own, few, steps=_LOOP_STEPS)),
    ):
        trace = experiments.once(name, Variation(plan=plan, records=few, scale=scale), by_hand)
        if trace.error is not None or len(trace.steps) != plan.steps:
            said = "too few steps" if trace.error is None else one_line(trace.error)
            said = f"a loop of one's own ended with {said}"
            return Finding("control flow", "own loop", False, said)
        whole = plan.lot_size == few.count
        wrong += (
            _wrong_of_everybody(experiments, trace)
            if whole
            else _wrong_sums(experiments, trace, {*CHECKED, *range(RECHECKED, _LOOP_STEPS)})
        )
    return Finding(
        "update",
        "own loop",
        not wrong,
        "; ".join(wrong)
        or "its sums are right, also those of lots that were checked on the way, and nothing else "
        "moved",
    )


def _wrong_of_everybody(experiments: Experiments, trace: Trace) -> list[str]:
    """Whether every step has the sum of everybody, each once: whoever was looked at beside it.

    Of a clip that moves only the sum's size is not known.
    """
    name = "all clipped" if is_adaptive(trace.variation.plan) else "half clipped"
    usual = experiments.sum_of(name, scale=trace.variation.scale)
    for step in range(len(trace.steps)):
        seen = replace(usual, steps=(replace(usual.steps[0], gradient=trace.steps[step].gradient),))
        if is_adaptive(trace.variation.plan):
            off, limit = apart_from_scale(experiments, seen, 0)
        else:
            off, limit, _ = distance(experiments, seen)
        if not off <= limit:
            component = gradients.weights_of(experiments, seen)
            note = "" if component is None else f"; {gradients.in_words(component)}"
            return [
                f"the sum of step {step + 1}, where lots are checked again, is {off:.3g} from that "
                f"of everybody (rounding explains {limit:.3g}){note}"
            ]
    return []


def seeded(experiments: Experiments) -> Finding:
    """A run with a fixed seed comes out the same again, and its statement says that it is void."""
    if not experiments.is_tacit:
        return Finding("charging", "fixed seed", True, _NOT_TACIT)
    plan = plans.sampled(experiments.plan, experiments.few, steps=4)
    variation = Variation(plan=plan, records=experiments.few)
    runs = [experiments.once(f"seeded {at}", variation, seeded_run).taken(4) for at in range(2)]
    same = all(
        torch.equal(a.gradient, b.gradient)
        for a, b in zip(runs[0].steps, runs[1].steps, strict=True)
    )
    assert runs[0].outcome is not None
    seen = runs[0].outcome.published["statement"]["assumptions"]
    usual = experiments.charged.outcome
    plain = () if usual is None else usual.published["statement"]["assumptions"]
    return Finding(
        "charging",
        "fixed seed",
        len(seen) > len(plain),
        f"two runs with one seed are {'' if same else 'not '}the same; their statements name "
        f"{len(seen)} assumptions, others {len(plain)}",
    )


def forks(experiments: Experiments) -> Finding:
    """A forked child releases nothing of its parent's: neither its noise nor its charged steps."""
    if not experiments.is_tacit:
        return Finding("noise", "forks", True, _NOT_TACIT)
    plan = replace(plans.sampled(experiments.plan, experiments.few, steps=5), sampling=Poisson())
    forked = Forked(at=1)
    variation = Variation(
        plan=plan,
        records=experiments.few,
        scale=0.0,
        ledger="forked",
        lease=3,
        still=False,
        cut=True,  # its child may have taken steps of its plan
    )
    trace = experiments.once("forked", variation, forked)
    if trace.error is not None:
        said = f"a run that was forked ended with {one_line(trace.error)}"
        return Finding("control flow", "forks", False, said)
    if forked.child is None:
        return Finding("noise", "forks", True, "a forked child is refused, and its parent goes on")
    columns = columns_of(experiments)
    parent = np.stack([step.gradient.double().numpy()[columns] for step in trace.steps])
    own = forked.child.numpy()[None, columns]
    p_value = significance.cosines_p_value(parent, own)
    due = len(trace.steps) + 1
    charged = trace.charged or 0
    return Finding(
        "noise" if p_value <= significance.LEVEL else "charging",
        "forks",
        p_value > significance.LEVEL and charged >= due,
        f"a forked child took a step; its noise is like one of its parent's with p = "
        f"{p_value:.2g}; of {due} steps {charged} are charged",
        (("p-value", p_value), ("charged", float(charged))),
    )
