"""The runs that the checks look at, each made when it is first asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from tacit.auditing.replay import plans
from tacit.auditing.replay.oracle import Oracle, clipped, is_adaptive, largest_share
from tacit.auditing.replay.records import Records, chosen
from tacit.auditing.replay.tacit_subject import TACIT
from tacit.auditing.replay.trace import Trace, Variation
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.auditing.replay.laboratory import Laboratory, Train

_FEW, _MANY = 12, 48  # units: for single sums, and for statistics of sampling
_NOISE_ENTRIES = 20_000  # so that a σ that is 5 % off stands out: 10 standard deviations
_LARGE = 50_000  # entries
_SAMPLED = 12_000  # coin flips
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
        """One step over all of a few units, at the first weights and without noise."""
        data = self.few if records is None else records

        variation = Variation(
            plan=plans.whole(self.plan, data, clip=clip), records=data, scale=scale,
            factors=factors or {}, batch=batch,
        )  # fmt: skip
        return self.once(f"sum {name}", variation)

    @cached_property
    def shares(self) -> list[float]:
        """The norms of the units' gradients, in units of their bounds; at scale 1."""
        trace = self.sum_of("as it is")
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
        records = self.few if adaptive else self.many
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
