"""Each bug of correlated noise is there: shown by columns, lots and resumed runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.auditing.replay.checks.correlated import strategy_of
from tacit.randomness import CorrelatedSource, UnsafeSeededStream
from tacit.training.noise import memory_of
from tacit.training.sampling import Groups, LotSampler

from . import settings
from .watching import noise, shows, with_plan

if TYPE_CHECKING:
    from .mutant import Mutant


def _white(steps: int = 24) -> Any:
    setting = with_plan(settings.correlated(), steps=steps)
    return strategy_of(setting.plan) @ noise(setting).numpy()


def _last(values: Any) -> float:
    """The size of the noise in the last step but one, whose column has two of three bands."""
    return float(np.sqrt(np.square(values[-2]).mean()))


@shows("column norms left out")
def test_noise_is_too_small(mutant: Mutant) -> None:
    with mutant.patch():
        found = _white()
    norm = np.linalg.norm(settings.correlated().plan.correlation.coefficients)  # type: ignore[union-attr, arg-type]
    assert abs(found[:-2].std() * norm - 1.0) < 0.1
    assert abs(_white().std() - 1.0) < 0.05


@shows("last columns too short")
def test_noise_is_too_small_at_the_end(mutant: Mutant) -> None:
    with mutant.patch():
        found = _white()
    assert abs(found[:-2].std() - 1.0) < 0.05
    assert _last(found) < 0.95 < _last(_white())


@shows("bands forgotten at resume")
def test_nothing_is_known_of_earlier_noise(mutant: Mutant) -> None:
    plan = settings.correlated().plan
    with mutant.patch():
        kept = _resumed(plan)
    assert kept == []
    assert len(_resumed(plan)) == plan.groups - 1


def _resumed(plan: Any) -> list[Any]:
    import torch  # noqa: PLC0415

    memory, other = memory_of(plan), memory_of(plan)
    assert memory is not None
    assert other is not None
    source = CorrelatedSource(memory, torch.device("cpu"), UnsafeSeededStream(0, "noise"))
    source.normal_(torch.empty(5))
    source.advance()
    other.load_state_dict(memory.state_dict())
    found: list[Any] = other.state_dict()["tensors"].get("float32", [])
    return found


def _lots(steps: int = 48) -> Any:
    plan = with_plan(settings.correlated(), steps=steps).plan
    groups = Groups(plan.examples, plan.groups, UnsafeSeededStream(1, "groups"))
    sampler = LotSampler(plan, UnsafeSeededStream(0, "lots"), groups=groups)
    everybody = np.arange(plan.examples)
    inside = np.array([np.isin(everybody, sampler.draw()) for _ in range(steps)])
    return np.stack([inside[at :: plan.groups].any(0) for at in range(plan.groups)]).sum(0)


@shows("groups sampled as one", "turns begin with the epoch")
def test_records_are_in_lots_of_several_groups(mutant: Mutant) -> None:
    with mutant.patch():
        assert (_lots() > 1).mean() > 0.5
    assert (_lots() <= 1).all()


@shows("groups dealt again")
def test_groups_are_others(mutant: Mutant) -> None:
    def dealt() -> bool:
        one, other = (Groups(48, 3, UnsafeSeededStream(seed, "groups")) for seed in range(2))
        other.load_state_dict(one.state_dict())
        return np.array_equal(one.members(0), other.members(0))

    with mutant.patch():
        assert not dealt()
    assert dealt()
