"""Each bug of the third unseen round is found, and is there by a measurement apart from that."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit.auditing.replay import COMPONENTS
from tacit.errors import InvalidArgument
from tacit.randomness import GaussianSource, UnsafeSeededStream
from tacit.training.claim import Run
from tacit.training.clipping.forms.convolution import Convolution
from tacit.training.clipping.forms.matrix import OneHot
from tacit.training.noise import noise_for
from tacit.training.sampling import Allocation, Cyclic, Groups

from . import settings
from .catalogue import BY_NAME
from .unseen import UNSEEN_BY_NAME
from .unseen_second import SECOND_UNSEEN_BY_NAME
from .unseen_third import THIRD_UNSEEN, THIRD_UNSEEN_BY_NAME
from .watching import inclusion, run, with_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .mutant import Mutant

CPU = torch.device("cpu")


def shows(name: str) -> pytest.MarkDecorator:
    """A test that shows this bug; it is given the mutant."""
    return pytest.mark.parametrize("mutant", [THIRD_UNSEEN_BY_NAME[name]], ids=[name])


def both(mutant: Mutant, measured: Callable[[], Any]) -> tuple[Any, Any]:
    """What is measured with the bug, and without it."""
    found = []
    for one in (mutant.patch(), nullcontext()):
        with one:
            found.append(measured())
    return found[0], found[1]


@pytest.mark.parametrize("mutant", THIRD_UNSEEN, ids=lambda mutant: mutant.name)
def test_it_is_found_and_named(mutant: Mutant) -> None:
    report = mutant.report(stop_at_first=True)
    assert not report.passed
    assert report.at_fault[0] in mutant.components, report.describe()


def test_there_are_ten_others_and_each_is_shown() -> None:
    shown = {
        mutant.name
        for name, value in globals().items()
        if name != test_it_is_found_and_named.__name__
        for mark in getattr(value, "pytestmark", ())
        for mutant in mark.args[1]
    }
    blamed = {component for mutant in THIRD_UNSEEN for component in mutant.components}
    assert len(THIRD_UNSEEN) == 10
    assert shown == set(THIRD_UNSEEN_BY_NAME)
    assert not shown & {*BY_NAME, *UNSEEN_BY_NAME, *SECOND_UNSEEN_BY_NAME}
    assert blamed <= set(COMPONENTS)


# ---- sampling


@shows("balanced groups")
def test_one_record_more_moves_others(mutant: Mutant) -> None:
    def moved() -> int:
        """How many of 200 records are in another group if there is one more."""
        dealt = []
        for records in (200, 201):
            groups = Groups(records, 10, UnsafeSeededStream(0, "groups"))
            dealt.append([set(groups.members(at).tolist()) - {200} for at in range(10)])
        return sum(len(one - other) for one, other in zip(*dealt, strict=True))

    wrong, right = both(mutant, moved)
    assert wrong > 10
    assert right == 0


@shows("allocation floor")
def test_an_epoch_is_over_too_soon(mutant: Mutant) -> None:
    setting = with_plan(settings.linear(), examples=200, lot_size=60, sampling=Allocation())

    def times() -> list[int]:
        """How often a record is in the lots of three epochs, four each."""
        return sorted(set(inclusion(setting, 12).sum(0).tolist()))

    assert both(mutant, times) == ([4], [3])


# ---- norms


@shows("repeated tokens counted half")
def test_the_norm_of_a_row_that_comes_again(mutant: Mutant) -> None:
    ids, right = torch.zeros(1, 24, dtype=torch.int64), torch.ones(1, 24, 4)
    assert float(OneHot(ids, right, (3, 4)).dense().norm()) == pytest.approx(48.0)
    wrong, norm = both(mutant, lambda: float(OneHot(ids, right, (3, 4)).squared_norms().sqrt()))
    assert wrong == pytest.approx(34.6, abs=0.1)
    assert norm == pytest.approx(48.0, rel=1e-4)


@shows("strided convolution by the Gram of pixels")
def test_the_far_edge_of_an_image_counts_nothing(mutant: Mutant) -> None:
    image, grad = torch.zeros(1, 1, 64, 4, 4), torch.ones(1, 1, 64, 2, 2)
    image[..., 3, 3] = 1.0

    def share() -> float:
        """The computed norm over the true one."""
        kernel = Convolution(image, grad, (64, 64, 3, 3), (2, 2), (1, 1), (1, 1), 1)
        return float(kernel.squared_norms().sqrt() / kernel.dense().norm())

    wrong, right = both(mutant, share)
    assert wrong < 0.01
    assert right == pytest.approx(1.0, rel=1e-3)


# ---- noise


@shows("odd draws give their last word back")
def test_a_draw_begins_with_a_number_of_the_last(mutant: Mutant) -> None:
    def again() -> bool:
        source = GaussianSource(CPU, UnsafeSeededStream(0, "noise"))
        first, second = torch.empty(21), torch.empty(21)
        source.normal_(first)
        source.normal_(second)
        return bool(first[10] == second[0])

    assert both(mutant, again) == (True, False)


@shows("grid of the first step")
def test_noise_does_not_follow_the_clip(mutant: Mutant) -> None:
    zeros = {"weight": torch.zeros(4000)}

    def grown() -> float:
        """By how much the noise is wider after the clip has grown eightfold."""
        source = noise_for("secure", UnsafeSeededStream(0, "noise"), CPU)
        narrow, wide = (
            source.means(zeros, zeros, clip=clip, scale=clip, lot_size=1.0)["weight"].std()
            for clip in (1.0, 8.0)
        )
        return float(wide / narrow)

    wrong, right = both(mutant, grown)
    assert wrong == pytest.approx(1.0, abs=0.1)
    assert right == pytest.approx(8.0, abs=0.8)


@shows("noise left in the last checkpoint")
def test_a_run_that_is_over_keeps_noise(mutant: Mutant, tmp_path: Path) -> None:
    def kept() -> int:
        """The size of a checkpoint after the last step."""
        run(settings.correlated(), steps=4, unsafe_seed=0).session.save(tmp_path / "run")
        return sum(one.stat().st_size for one in _files(tmp_path / "run"))

    wrong, right = both(mutant, kept)
    entries = sum(p.numel() for p in settings.correlated().model().parameters())
    assert wrong > right + 4 * entries  # the noise of a step at least, in single precision


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]


# ---- resuming and charging


@shows("seed forgotten on resuming")
def test_a_run_with_a_seed_is_said_to_have_none(mutant: Mutant) -> None:
    def unsafe() -> bool:
        seeded = Run(5, unsafe=True)
        seeded.load_state_dict({"last_step": 5, "unsafe": False})
        return seeded.unsafe

    assert both(mutant, unsafe) == (False, True)


@shows("example plans in a user's budget")
def test_a_users_budget_takes_a_plan_for_examples(mutant: Mutant, tmp_path: Path) -> None:
    ledger = tacit.Ledger(f"sqlite:///{tmp_path / 'users.db'}")
    budget = ledger.open("users", 100.0, 1e-5, unit="user")

    def taken() -> bool:
        with suppress(InvalidArgument):
            budget.reserve(settings.plan())
            return True
        return False

    assert both(mutant, taken) == (True, False)
    ledger.close()


@shows("lost steps read too early")
def test_a_group_takes_its_turn_again(mutant: Mutant, tmp_path: Path) -> None:
    turns = settings.plan(correlation=tacit.InverseBanded(2), sampling=Cyclic(), lot_size=8)
    setting = settings.linear(plan=turns)

    def first_lots() -> list[set[float]]:
        """Of a run that is lost after its third step, and of one that goes on from its second."""
        ledger = tacit.Ledger(f"sqlite:///{tmp_path / str(len(list(tmp_path.iterdir())))}.db")
        budget, path = ledger.open("turns", 1e4, 1e-5), tmp_path / "run"
        lots: list[set[float]] = []
        for resume in (None, path):
            model = setting.model()
            dp = tacit.private(
                model, setting.optimizer(model.parameters()), setting.plan, setting.dataset, budget,
                resume=resume, performance=tacit.Performance(lease=1),
            )  # fmt: skip
            with suppress(InterruptedError), dp:
                for lot in dp.lots():
                    lots.append(set())
                    for batch in lot:
                        if not lot.is_rehearsal:
                            lots[-1].update(batch[0][:, 0].tolist())
                        dp.backward(setting.loss(model, batch))
                    dp.step()
                    if resume is not None or dp.steps_taken == 3:
                        raise InterruptedError
                    dp.save(path)
        ledger.close()
        return lots

    wrong, right = both(mutant, first_lots)
    assert wrong[3] == wrong[2]
    assert right[3] != right[2]
