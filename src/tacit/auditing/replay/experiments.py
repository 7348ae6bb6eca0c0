"""The runs that the checks look at, each made when it is first asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from tacit.auditing.replay import plans
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.oracle import Oracle, clipped, is_adaptive, largest_share
from tacit.auditing.replay.reference import least_epsilon
from tacit.auditing.replay.setting import Records, chosen
from tacit.auditing.replay.tacit_subject import TACIT
from tacit.auditing.replay.trace import Trace, Variation
from tacit.auditing.replay.watch import flat
from tacit.training.sampling import Allocation, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.auditing.replay.laboratory import Laboratory, Train
    from tacit.training.plan import Plan

_FIRST = "as it is"  # the sum that is computed first
_FEW, _MANY = 12, 48  # units: for single sums, and for statistics of sampling
_EPOCHS, _LOTS_PER_EPOCH = 25, 4  # of allocation
_NOISE_ENTRIES = 20_000  # so that a σ that is 5 % off stands out: 10 standard deviations
_LARGE = 50_000  # entries
_SAMPLED = 12_000  # coin flips
_TURNS = 40  # of each group, where groups take turns
_MOST_STEPS, _FEWEST_STEPS, _MOST_IDLE_STEPS = 300, 60, 2_000
_COUNTS = 700  # of an adaptive clip: a noise that is 15 % off stands out
_PARTS = 16, 6  # steps of a run that is broken off: all, and those before
_QUICK_STEPS, _QUICK_ENTRIES = (10, 20), 400  # of a run whose clip moves far in every step


@final
class Experiments:
    """All runs of a laboratory, by what they are for; ``ranks`` is the same in all of them.

    ``lots`` says whether the long run is to show sampling as well as noise.
    """

    def __init__(self, lab: Laboratory, ranks: int = 1, *, lots: bool = True) -> None:
        self.lab, self.ranks, self._lots = lab, ranks, lots
        self.plan = lab.setting.plan
        self.few, self.many = lab.records(_FEW), lab.records(_MANY)
        self._traces: dict[str, Trace] = {}

    @cached_property
    def oracle(self) -> Oracle:
        """The gradients as they should be."""
        return Oracle(self.lab)

    def once(self, name: str, variation: Variation, train: Train | None = None) -> Trace:
        """The run of this name, made when it is first asked for; see ``Laboratory.run``."""
        if name not in self._traces:
            self._traces[name] = self.lab.run(replace(variation, ranks=self.ranks), train)
        return self._traces[name]

    @property
    def every(self) -> dict[str, Trace]:
        """All runs so far, by name."""
        return dict(self._traces)

    @property
    def is_tacit(self) -> bool:
        """Whether the engine is tacit, whose further options are known."""
        return self.lab.subject is TACIT and self.ranks == 1

    # ---- one sum, all units in it

    def sum_of(
        self,
        name: str,
        *,
        scale: float = 1.0,
        records: Records | None = None,
        factors: dict[int, float] | None = None,
        batch: int | None = None,
        clip: float = 1.0,
    ) -> Trace:
        """One step over all of a few units, at the first weights and without noise.

        The first of them is rehearsed, as all runs of several steps are.
        """
        data = self.few if records is None else records
        variation = Variation(
            plan=plans.whole(self.plan, data, clip=clip), records=data, scale=scale,
            factors=factors or {}, batch=batch, rehearsed=name == _FIRST,
        )  # fmt: skip
        return self.once(f"sum {name}", variation)

    @cached_property
    def shares(self) -> list[float]:
        """The norms of the units' gradients, in units of their bounds; at scale 1."""
        trace = self.sum_of(_FIRST)
        gradients = self.oracle.of_step(trace).values()
        found = [largest_share(self.lab, self.plan, gradient) for gradient in gradients]
        return [share for share in found if share > 0.0] or [1.0]

    @property
    def loose(self) -> float:
        """A factor on the losses under which nobody is clipped."""
        return 0.25 / max(self.shares)

    @property
    def mixed(self) -> float:
        """A factor under which half of the units are."""
        return 1.0 / float(np.median(self.shares))

    @property
    def tight(self) -> float:
        """A factor under which everybody is, by far; in float16 longer gradients overflow."""
        half = self.lab.setting.performance.precision == "float16"
        return (4.0 if half else 1e3) / min(self.shares)

    def parts(self, trace: Trace, step: int = 0) -> dict[int, Tensor]:
        """What every unit should have added to the sum of a step."""
        gradients, plan = self.oracle.of_step(trace, step), trace.variation.plan
        return {unit: clipped(self.lab, plan, one) for unit, one in gradients.items()}

    def expected(self, trace: Trace, step: int = 0) -> tuple[Tensor, float]:
        """The sum that a step should have released, and the largest norm in it."""
        plan, total, largest = trace.variation.plan, torch.zeros(self.lab.entries).double(), 0.0
        for gradient in self.oracle.of_step(trace, step).values():
            own = clipped(self.lab, plan, gradient)
            total += own
            largest = max(largest, float(own.norm()))
        return total, largest

    @property
    def everybody(self) -> Trace:
        """One sum of many units, half of which are clipped."""
        return self.sum_of("everybody", scale=self.mixed, records=self.many)

    # ---- many steps

    @cached_property
    def uncapped(self) -> Trace | None:
        """Two steps with users who have more examples than the cap; None if there are none."""
        cap = self.plan.examples_per_user
        data = chosen(self.lab.setting, _FEW, capped=False)
        if cap is None or int(np.bincount(data.units).max()) <= cap:
            return None
        plan = plans.whole(self.plan, data, steps=2)
        return self.once("uncapped", Variation(plan=plan, records=data, scale=self.mixed))

    @cached_property
    def lots(self) -> Trace:
        """Sampled lots, at the first weights and without noise; charged to a ledger."""
        plan = plans.noiseless(plans.sampled(self.plan, self.many, steps=10))
        scale = self.tight if is_adaptive(plan) else self.mixed
        return self.once("lots", Variation(plan=plan, records=self.many, scale=scale))

    @cached_property
    def noise(self) -> Trace:
        """Many steps of noise alone: the losses are multiplied by 0, and the optimizer moves."""
        return self.noise_run("noise", steps=self.noise_steps)

    @property
    def noise_steps(self) -> int:
        """How many steps it takes to see noise and sampling clearly."""
        if self.lab.entries > _LARGE:  # every step has much of it, and takes its time
            return _FEWEST_STEPS
        sampled = _SAMPLED / self.many.count if self._lots else 0.0
        if self.plan.correlation is not None:  # a record's own group has but few of the steps
            sampled = _TURNS * self.plan.groups
        needed = max(_NOISE_ENTRIES / self.lab.entries, sampled)
        return int(min(max(needed, _FEWEST_STEPS), _MOST_STEPS))

    @cached_property
    def idle(self) -> Trace | None:
        """For a small model: more noise, in many quick steps whose lots are almost all empty."""
        left = _NOISE_ENTRIES - self.noise_steps * self.lab.entries
        if left <= 0 or is_adaptive(self.plan):
            return None
        steps = min(-(-left // self.lab.entries), _MOST_IDLE_STEPS)
        plan = plans.sampled(self.plan, self.few, steps=steps, lot_size=0.05)
        return self.once("idle", Variation(plan=plan, records=self.few, scale=0.0))

    def noise_run(self, name: str, *, steps: int) -> Trace:
        """Steps of noise alone. With an adaptive clip, which then only falls, all are in a lot."""
        adaptive = is_adaptive(self.plan)
        records = self.few if adaptive or not self._lots else self.many
        make_plan = plans.known_clip if adaptive else plans.sampled
        plan = make_plan(self.plan, records, steps=steps)
        return self.once(name, Variation(plan=plan, records=records, scale=0.0, still=False))

    @cached_property
    def sparse(self) -> Trace:
        """Lots of which many are empty, with noise alone."""
        plan = plans.sampled(self.plan, self.few, steps=30, lot_size=0.7)
        return self.once("sparse", Variation(plan=plan, records=self.few, scale=0.0))

    @cached_property
    def charged(self) -> Trace:
        """Sampled lots with their noise, charged to a ledger."""
        plan = plans.sampled(self.plan, self.many, steps=8)
        return self.once("charged", Variation(plan=plan, records=self.many, ledger="charged"))

    @cached_property
    def unaffordable(self) -> Trace:
        """The same, with a budget that does not cover it."""
        plan = plans.sampled(self.plan, self.many, steps=8)
        enough = self.charged.charged_epsilon or 1.0
        variation = Variation(
            plan=plan, records=self.many, ledger="unaffordable", limit=0.1 * enough
        )
        return self.once("unaffordable", variation)

    @cached_property
    def moving(self) -> Trace:
        """A few steps as they are: lots, noise, and an optimizer that moves."""
        plan = plans.sampled(self.plan, self.many, steps=8)
        return self.once("moving", Variation(plan=plan, records=self.many, still=False))

    @property
    def complete(self) -> list[Trace]:
        """All runs so far that should have taken every step of their plan."""
        return [trace for trace in self._traces.values() if trace.variation.is_whole]

    @cached_property
    def crashed(self) -> Trace:
        """The same, broken off by an error in the loss of the third lot."""
        plan = plans.sampled(self.plan, self.many, steps=8)
        variation = Variation(plan=plan, records=self.many, ledger="crashed", crash_at=2)
        return self.once("crashed", variation)

    def two_steps(self, name: str, factors: dict[int, float], *, save: bool = False) -> Trace:
        """Two steps over all of a few units, with noise, at weights that do not move."""
        own = self.plan.noise_multiplier
        plan = replace(plans.whole(self.plan, self.few, steps=2), noise_multiplier=own)
        path = self.lab.folder / f"two-{len(self._traces)}.ckpt" if save else None
        variation = Variation(plan=plan, records=self.few, factors=factors, save=path)
        return self.once(f"two steps {name}", variation)

    # ---- resuming

    def broken_off(self, ledger: str | None = None) -> Trace:
        """A run of noise alone that is saved and left in the middle."""
        return self._part("broken off", ledger, save=True)

    def resumed(self, ledger: str | None = None) -> Trace:
        """The rest of it; with a ledger it crashes in its third lot."""
        self.broken_off(ledger).taken()
        return self._part("resumed", ledger, crash_at=None if ledger is None else 2)

    def resumed_again(self, ledger: str | None = None) -> Trace:
        """The rest of it a second time, from the same checkpoint."""
        self.resumed(ledger)
        return self._part("resumed again", ledger)

    def _part(
        self, name: str, ledger: str | None, *, save: bool = False, crash_at: int | None = None
    ) -> Trace:
        plan = plans.sampled(self.plan, self.many, steps=_PARTS[0])
        path = self.lab.folder / f"broken-off-{ledger}.ckpt"
        variation = Variation(
            plan=plan, records=self.many, scale=0.0, still=False,
            ledger=ledger, save=path if save else None, resume=None if save else path,
            stop_at=_PARTS[1] if save else None, crash_at=crash_at,
        )  # fmt: skip
        return self.once(f"{name} {ledger}", variation)

    # ---- an adaptive clip

    @cached_property
    def parts_of_a_known_clip(self) -> tuple[Trace, Trace]:
        """For an adaptive clip, which falls here in a known way: a run of noise, and its rest."""
        path = self.lab.folder / "known-clip.ckpt"
        plan = plans.known_clip(self.plan, self.few, steps=_PARTS[0])
        first = Variation(
            plan=plan, records=self.few, scale=0.0, still=False, save=path, stop_at=_PARTS[1]
        )
        saved = self.once("broken off at a known clip", first).taken()
        second = replace(first, save=None, stop_at=None, resume=path)
        return saved, self.once("resumed at a known clip", second)

    @cached_property
    def parts_of_a_quick_clip(self) -> tuple[Trace, ...]:
        """For an adaptive clip that moves far in every step: sums at the clip, and their noise.

        One unit is far beyond the clip and all others are nothing, so that it falls; if the clip
        follows a high quantile, all are beyond, and it rises. The second run goes on with the
        first, if the engine can.
        """
        rises = (
            isinstance(self.plan.clipping, AdaptiveQuantile) and self.plan.clipping.quantile > 0.5
        )
        steps = int(np.clip(_QUICK_ENTRIES // self.lab.entries, *_QUICK_STEPS))
        beyond = self.few.count if rises else 1
        plan = plans.quick_clip(self.plan, self.few, steps=steps, beyond=beyond)
        resumes, path = self.lab.subject.resumes, self.lab.folder / "quick-clip.ckpt"
        first = Variation(
            plan=plan, records=self.few, scale=self.tight,
            factors=dict.fromkeys(range(beyond, self.few.count), 0.0),
            save=path if resumes else None, stop_at=steps // 2 if resumes else None,
        )  # fmt: skip
        saved = self.once("broken off at a quick clip", first).taken()
        if not resumes:
            return (saved,)
        second = replace(first, save=None, stop_at=None, resume=path)
        return saved, self.once("resumed at a quick clip", second).taken()

    @property
    def counted(self) -> Trace:
        """For an adaptive clip: sampled lots of which everybody is clipped, with noisy counts."""
        plan = plans.slow_clip(self.plan, self.many, steps=self.noise_steps)
        return self.once("counts", Variation(plan=plan, records=self.many, scale=self.tight))

    @property
    def many_counts(self) -> Trace:
        """The same with many more counts, each of everybody: a step has but one."""
        plan = plans.counted(self.plan, self.few, steps=_COUNTS)
        return self.once("many counts", Variation(plan=plan, records=self.few, scale=self.tight))


# ---- nearly without noise, so that every sum is known: small lots, and moving parameters


_LOW_RATE = 0.06  # of 12 units half of the lots are empty, of 48 one in twenty
_SMALL_STEPS, _MOVED_STEPS = 30, 5
_RESUMED_STEPS, _RESUMED_RATE = 8, 0.3
_OWN_UNITS, _OWN_LOT, _OWN_STEPS = 512, 16, 12  # of runs on the user's own data set
_VIRTUAL_LOT, _VIRTUAL_STEPS, _MOST_VIRTUAL = 48.0, 50, 1_000_000
_MOVE = 0.2  # of the parameters' length, in the first step


def small_lots(experiments: Experiments) -> tuple[Trace, ...]:
    """Lots of a unit or none, and lots of a few that are cut into batches of two."""
    single = _sampled(experiments, "small lots", experiments.few)
    if is_adaptive(experiments.plan):  # to account for such a run takes longer than to make it
        return (single,)
    two = 2 * experiments.plan.views * (experiments.plan.examples_per_user or 1)
    return single, _sampled(experiments, "lots in small batches", experiments.many, batch=two)


def _sampled(
    experiments: Experiments, name: str, records: Records, *, batch: int | None = None
) -> Trace:
    plan = plans.small_lots(experiments.plan, records, steps=_SMALL_STEPS, rate=_LOW_RATE)
    scale = experiments.tight if is_adaptive(plan) else experiments.mixed
    return experiments.once(name, Variation(plan=plan, records=records, scale=scale, batch=batch))


def resumed_lots(experiments: Experiments) -> tuple[Trace, ...]:
    """A run that is kept, left in the middle and gone on with; nothing if the engine cannot."""
    if not experiments.lab.subject.resumes or is_adaptive(experiments.plan):
        return ()
    plan = plans.small_lots(
        experiments.plan, experiments.few, steps=_RESUMED_STEPS, rate=_RESUMED_RATE
    )
    path = experiments.lab.folder / "lots.ckpt"
    whole = Variation(plan=plan, records=experiments.few, scale=experiments.mixed)
    first = replace(whole, save=path, stop_at=_RESUMED_STEPS // 2)
    return (
        experiments.once("broken off lots", first),
        experiments.once("resumed lots", replace(whole, resume=path)),
    )


def own_data_lots(experiments: Experiments) -> Trace | None:
    """Sampled lots of the user's data set itself, by its own loader; None if rows are not known."""
    lab = experiments.lab
    records = chosen(lab.setting, _OWN_UNITS)
    if not lab.recognises(records):
        return None
    size = min(_OWN_LOT, 0.3 * records.count)
    plan = plans.small_lots(experiments.plan, records, steps=_OWN_STEPS, rate=size / records.count)
    scale = experiments.tight if is_adaptive(plan) else experiments.mixed
    return experiments.once(
        "own data", Variation(plan=plan, records=records, scale=scale, own=True)
    )


def short_of_memory(experiments: Experiments) -> Trace:
    """Lots that have to be cut, as their batches turn out to be too large for the memory."""
    plan = plans.small_lots(experiments.plan, experiments.many, steps=6, rate=_RESUMED_RATE)
    scale = experiments.tight if is_adaptive(plan) else experiments.mixed
    rows = 3 * plan.views * (plan.examples_per_user or 1)
    variation = Variation(plan=plan, records=experiments.many, scale=scale, full_above=rows)
    return experiments.once("short of memory", variation)


def at_own_rate(experiments: Experiments) -> Trace | None:
    """Lots at the plan's own rate, of as many records as that takes; None if everybody is in.

    The records are the setting's, over and over: which of them a lot holds is all that is seen.
    """
    plan, few = experiments.plan, experiments.few
    rate = plan.sample_rate
    if not 0.0 < rate < 1.0:
        return None
    count = int(min(max(min(plan.lot_size, _VIRTUAL_LOT) / rate, few.count), _MOST_VIRTUAL))
    first = few.examples[np.unique(few.units, return_index=True)[1]]  # one example of each unit
    records = Records(np.resize(first, count), np.arange(count, dtype=np.int64))
    own = plans.sampled(plan, records, steps=_VIRTUAL_STEPS, lot_size=rate * count)
    if isinstance(plan.sampling, TruncatedPoisson):
        own = replace(own, sampling=TruncatedPoisson(math.ceil(1.15 * own.lot_size)))
    variation = Variation(plan=own, records=records, scale=0.0, wrapped=True)
    return experiments.once("own rate", variation)


def allocated(experiments: Experiments) -> Trace | None:
    """Epochs of few lots each, under the plan's own allocation; None if it allocates nobody."""
    plan, records = experiments.plan, experiments.many
    if not isinstance(plan.sampling, Allocation):
        return None
    steps = _EPOCHS * _LOTS_PER_EPOCH
    lot_size = records.count / (_LOTS_PER_EPOCH - 0.4)  # which no whole number of lots makes up
    own = plans.sampled(plan, records, steps=steps, lot_size=lot_size)
    variation = Variation(
        plan=replace(own, sampling=Allocation()), records=records, scale=0.0, wrapped=True
    )
    return experiments.once("allocated", variation)


def moved(experiments: Experiments) -> tuple[Trace, ...]:
    """Steps that move the parameters far, over everybody and over sampled lots.

    None at all if the optimizer moves nothing.
    """
    own, few, many = experiments.plan, experiments.few, experiments.many
    scale = experiments.tight if is_adaptive(own) else experiments.mixed
    name = "all clipped" if is_adaptive(own) else "half clipped"
    first = experiments.sum_of(name, scale=scale)
    move = _move(experiments, first)
    if not 0.0 < move < math.inf:
        return ()
    rate = _MOVE * length(first.start) / move

    def run(name: str, plan: Plan, records: Records) -> Trace:
        variation = Variation(plan=plan, records=records, scale=scale, still=False, rate=rate)
        return experiments.once(name, variation)

    whole = run("moved", plans.whole(own, few, steps=_MOVED_STEPS), few)
    if is_adaptive(own):
        return (whole,)
    lots = plans.noiseless(plans.sampled(own, many, steps=_MOVED_STEPS))
    return whole, run("moved lots", lots, many)


def length(parameters: Tensor) -> float:
    """The length of a model's parameters; that of 0.1 each if they are shorter."""
    return max(float(parameters.norm()), 0.1 * math.sqrt(parameters.numel()))


def _move(experiments: Experiments, trace: Trace) -> float:
    """How far the setting's optimizer moves the parameters in a run's first step."""
    _, optimizer = experiments.lab.made(still=False)
    held: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    parts = trace.taken().steps[0].gradient.split([p.numel() for p in held])
    for parameter, part in zip(held, parts, strict=True):
        parameter.grad = part.reshape(parameter.shape).to(parameter.dtype)
    optimizer.step()
    return float((flat(held) - trace.start).norm())


# ---- with noise and real losses: faint ones, which the noise hides, and moving parameters


_FAINT_STEPS, _MOVING_STEPS, _KEPT_STEPS = 100, 24, 8
_FAINT = 0.02  # of the clip: the largest gradient
_FAINTER = 0.03  # of it: every other unit's
_REPEATED = 3
_ODD_FACTORS = {"next to nothing": 1e-6, "larger": 1e3, "not a number": float("nan")}


def faint(experiments: Experiments) -> Trace:
    """Sums that are small beside their noise, at the first weights.

    So whatever the noise has to do with the sum shows in most steps. Every other unit's losses are
    much smaller than the rest: units are as different as units can be. With an adaptive clip, which
    then only falls, all are in a lot.
    """
    adaptive = is_adaptive(experiments.plan)
    records = experiments.few if adaptive else experiments.many
    make_plan = plans.known_clip if adaptive else plans.sampled
    variation = Variation(
        plan=make_plan(experiments.plan, records, steps=_FAINT_STEPS),
        records=records,
        scale=_FAINT / max(experiments.shares),
        factors=dict.fromkeys(range(0, records.count, 2), _FAINTER),
    )
    return experiments.once("faint", variation)


def kept_lots(experiments: Experiments) -> Trace:
    """Sampled lots as they are, of which a checkpoint is left."""
    plan = plans.sampled(experiments.plan, experiments.many, steps=_KEPT_STEPS)
    path = experiments.lab.folder / "kept-lots.ckpt"
    return experiments.once("kept lots", Variation(plan=plan, records=experiments.many, save=path))


def long_run(experiments: Experiments, name: str, factors: dict[int, float]) -> Trace:
    """Many steps as they are: losses that rise and fall with moving parameters."""
    plan = plans.sampled(experiments.plan, experiments.many, steps=_MOVING_STEPS)
    variation = Variation(plan=plan, records=experiments.many, factors=factors, still=False)
    return experiments.once(f"long {name}", variation)


def one_odd_unit(experiments: Experiments) -> dict[str, list[Trace]]:
    """Three runs for each thing that one unit's losses may be."""
    last = experiments.few.count - 1
    return {
        name: [
            experiments.two_steps(f"{name}, {at}", {last: factor}, save=True)
            for at in range(_REPEATED)
        ]
        for name, factor in _ODD_FACTORS.items()
    }


# ---- with noise on a sum that is the same in every step, of a given length


_CONSTANT_STEPS = 25
_SCALES = 30  # that are tried


def constant_sums(experiments: Experiments, level: float) -> tuple[Trace, Trace]:
    """Everybody in every lot: sums of ``level`` standard deviations of the noise, or what can be.

    There are two such runs, of which nothing but the noise should be different: the second one of
    those with short sums is cut into small batches. With an adaptive clip nobody may come near to
    it, so that it only falls.
    """
    own, few = experiments.plan, experiments.few
    if is_adaptive(own):
        plan = plans.known_clip(own, few, steps=_CONSTANT_STEPS)
    else:
        whole = plans.whole(own, few, steps=_CONSTANT_STEPS)
        plan = replace(whole, noise_multiplier=own.noise_multiplier)
    variation = Variation(plan=plan, records=few, scale=_scale(experiments, plan, level))
    rows = own.views * (own.examples_per_user or 1)
    other = replace(variation, batch=5 * rows) if level < 1.0 else variation
    return (
        experiments.once(f"constant {level:g}", variation),
        experiments.once(f"constant {level:g} again", other),
    )


def _scale(experiments: Experiments, plan: Plan, level: float) -> float:
    """The factor on losses that brings the sum of everybody nearest to ``level`` deviations."""
    most = 0.3 * experiments.loose if is_adaptive(plan) else experiments.tight
    trace = experiments.sum_of(_FIRST)
    gradients = experiments.oracle.of_step(trace).values()

    def off(scale: float) -> float:
        parts = [clipped(experiments.lab, plan, scale * one) for one in gradients]
        length = float(torch.stack(parts).sum(0).norm())
        return abs(math.log(max(length, 1e-300) / (level * plan.noise_scale)))

    return float(min(np.geomspace(1e-3 * experiments.loose, most, _SCALES), key=off))


# ---- several runs on one ledger, or from one checkpoint


_OTHER_RATE = 0.4


def one_ledger(experiments: Experiments) -> list[Trace]:
    """A run, the same once more, and two by another plan, which crash: all on one ledger.

    All but the first are charged several steps in advance.
    """
    first = experiments.charged
    again = replace(first.variation, lease=3)
    other = replace(again, plan=another(experiments.plan, experiments), crash_at=1)
    at_once = replace(other, lease=2, crash_at=0)
    return [
        first,
        experiments.once("charged again", again),
        experiments.once("crashed by another plan", other),
        experiments.once("crashed at once", at_once),
    ]


def broken_off_on_a_ledger(experiments: Experiments) -> list[Trace]:
    """A run that is left in the middle, a resumption that crashes and a second one."""
    parts = experiments.broken_off, experiments.resumed, experiments.resumed_again
    return [part("resumed") for part in parts]


def another(plan: Plan, experiments: Experiments) -> Plan:
    """Another plan for the same data: larger lots, less noise, fewer steps."""
    size = _OTHER_RATE * experiments.many.count
    less = replace(plan, noise_multiplier=0.8 * plan.noise_multiplier)
    return plans.sampled(less, experiments.many, steps=5, lot_size=size)


def one_too_many(experiments: Experiments) -> tuple[Trace, Trace] | None:
    """Two runs with a budget that covers one; None if no budget is sure to be between the two."""
    first = experiments.charged
    plan, one = first.variation.plan, first.charged_epsilon
    both = least_epsilon(plan, 2 * plan.steps, DELTA)
    if one is None or both is None or both < 1.02 * one:
        return None
    variation = replace(first.variation, ledger="one run", limit=0.5 * (one + both))
    return (
        experiments.once("affordable", variation),
        experiments.once("unaffordable second", variation),
    )


def kept(experiments: Experiments) -> tuple[Trace, Trace]:
    """A resumed run that is saved at its end, and what comes of resuming it there."""
    path = experiments.lab.folder / "kept.ckpt"
    rest = replace(experiments.broken_off().taken().variation, stop_at=None)
    return (
        experiments.once("resumed and kept", replace(rest, resume=rest.save, save=path)),
        experiments.once("resumed at the end", replace(rest, resume=path, save=None)),
    )


def strayed(experiments: Experiments) -> tuple[Trace, Trace]:
    """A checkpoint that is resumed by another plan, and one that is resumed on another ledger."""
    left = experiments.broken_off().taken().variation
    plan = replace(left.plan, noise_multiplier=0.5 * left.plan.noise_multiplier)
    changed = replace(left, plan=plan, save=None, resume=left.save, stop_at=None)
    charged = experiments.broken_off("resumed").taken().variation
    elsewhere = replace(charged, save=None, resume=charged.save, stop_at=None, ledger="elsewhere")
    return (
        experiments.once("resumed by another plan", changed),
        experiments.once("resumed on another ledger", elsewhere),
    )
