"""Sessions with correlated noise: its law, groups that take turns, resuming, and lost steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import Subset, TensorDataset

import tacit
from tacit.auditing.replay.checks.correlated import strategy_of
from tacit.errors import CheckpointError, ProtocolError
from tacit.randomness import CorrelatedSource, UnsafeSeededStream
from tacit.statement import Statement
from tacit.training import Cyclic, checkpoint
from tacit.training.noise import memory_of
from tacit.training.sampling import Groups

from .sessions import Grads, cross_entropy, data, drawn, network, plan, session, sgd

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.ledger import Budget
    from tacit.training.session import Session

    from ..ledger.conftest import Place

DELTA = 1e-5
STEPS, GROUPS = 24, 4
KINDS = {
    "banded": tacit.Banded(GROUPS),
    "inverse": tacit.InverseBanded(3),
    "buffered": tacit.Buffered(2, scales=(-0.06, -0.2), decays=(0.9, 0.4)),
    "anticorrelated": tacit.Anticorrelated(0.7),
}


def correlated(name: str = "banded", **changed: Any) -> tacit.Plan:
    size = {"lot_size": 5} if name == "banded" else {"lot_size": 10}
    given = {"noise_multiplier": 2.0, "steps": STEPS, "correlation": KINDS[name]} | size
    return plan(**given | changed)


class Watched:
    """A model whose losses are 0, and what was released of it and drawn for it."""

    def __init__(self, seed: int = 0) -> None:
        self.model = network(seed)
        self.optimizer = sgd(self.model)
        self.grads = Grads(self.model, self.optimizer)
        self.lots: list[list[int]] = []

    def session(self, made: tacit.Plan, **changed: Any) -> Session:
        return session(self.model, optimizer=self.optimizer, plan=made, **changed)

    def train(self, dp: Session, steps: int | None = None) -> None:
        left = STEPS if steps is None else steps
        for lot in dp.lots():
            self.lots.append(drawn(lot).tolist())
            for x, _ in lot:
                dp.backward(0.0 * self.model(x).sum(1))
            dp.step()
            left -= 1
            if not left:
                break

    def noise(self, made: tacit.Plan) -> Any:
        """A row for every step, in units of the noise scale."""
        rows = [torch.cat([g.flatten() for g in one.values()]) for one in self.grads.steps]
        return torch.stack(rows).double().numpy() * made.lot_size / made.noise_scale


def white(noise: Any, made: tacit.Plan, start: int = 0) -> Any:
    end = start + len(noise)
    return strategy_of(made)[start:end, start:end] @ noise


def looks_independent(values: Any) -> bool:
    """Standard normal in size, in every step, and from one step to the next; at p = 1e-4."""
    count = values.size
    total = stats.chi2(count).cdf(np.square(values).sum())
    rows = stats.chi2(values.shape[1]).cdf(np.square(values).sum(1))
    lagged = (values[1:] * values[:-1]).sum() / np.sqrt(values[1:].size)
    smallest = min(
        2 * min(total, 1 - total),
        2 * min(rows.min(), 1 - rows.max()) * len(rows),
        2 * float(stats.norm.sf(abs(lagged))),
    )
    return smallest > 1e-4


NOISES = pytest.mark.parametrize("kind", ["fast", "secure", "exact"])


@NOISES
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("runs", "off"), [(1, 1.15), pytest.param(8, 1.05, marks=pytest.mark.slow)]
)
def test_noise_is_the_plans_strategy_over_a_whole_run(
    name: str, kind: str, runs: int, off: float
) -> None:
    """One run tells noise that is 15 % off, and eight of them, for ``make test-slow``, 5 %."""
    made, found = correlated(name, noise=kind), []
    for seed in range(runs):
        run = Watched()
        with run.session(made, unsafe_seed=3 + seed) as dp:
            run.train(dp)
        found.append(run.noise(made))
    noise = np.concatenate(found, axis=1)
    assert len(noise) == STEPS
    assert looks_independent(white(noise, made))
    assert not looks_independent(noise)
    assert not looks_independent(off * white(noise, made))
    assert not looks_independent(white(noise, made) / off)


@pytest.mark.parametrize("noise", ["fast", "secure"])
@pytest.mark.parametrize("name", KINDS)
def test_noise_goes_on_over_a_checkpoint(name: str, noise: str, tmp_path: Path) -> None:
    """Both parts together are one strategy's noise; at the end nothing is kept of it."""
    run, made = Watched(), correlated(name, noise=noise)
    with run.session(made, unsafe_seed=3) as dp:
        run.train(dp, 9)
        dp.save(tmp_path / "a")
    rest = Watched()
    with rest.session(made, unsafe_seed=4, resume=tmp_path / "a") as dp:
        rest.train(dp)
        dp.save(tmp_path / "b")
    both = np.concatenate([run.noise(made), rest.noise(made)])
    assert both.shape[0] == STEPS
    assert looks_independent(white(both, made))
    assert set(checkpoint.read(tmp_path / "b").state["tacit noise"].values) == {"position"}


@pytest.mark.parametrize("noise", ["fast", "secure"])
@pytest.mark.parametrize("name", ["banded", "inverse"])
def test_a_seeded_run_that_is_resumed_is_the_same_run_to_the_bit(
    name: str, noise: str, tmp_path: Path
) -> None:
    """Saved twice after the same steps, the noise to come is the same, whoever goes on."""
    made, found = correlated(name, noise=noise), []
    run = Watched()
    with run.session(made, unsafe_seed=3) as dp:
        run.train(dp, 7)
        dp.save(tmp_path / "a")
    for _ in range(2):
        rest = Watched()
        with rest.session(made, unsafe_seed=3, resume=tmp_path / "a") as dp:
            rest.train(dp)
        found.append(rest.noise(made).tobytes())
    assert found[0] == found[1]


def test_groups_take_turns_and_stay_the_same_over_a_checkpoint(tmp_path: Path) -> None:
    run, made = Watched(), correlated(lot_size=9)
    with run.session(made) as dp:
        run.train(dp, 9)
        dp.save(tmp_path / "a")
    rest = Watched()
    with rest.session(made, resume=tmp_path / "a") as dp:
        rest.train(dp)
    lots = run.lots + rest.lots
    assert len(lots) == STEPS
    groups = [set().union(*lots[at::GROUPS]) for at in range(GROUPS)]
    assert sum(map(len, groups)) == len(set().union(*groups)) >= 35


def test_cyclic_lots_are_everybody_once_in_a_turn() -> None:
    run, made = Watched(), correlated("buffered")
    with run.session(made) as dp:
        run.train(dp)
    assert made.groups == 4
    for at in range(0, STEPS, 4):
        turn = [unit for lot in run.lots[at : at + 4] for unit in lot]
        assert sorted(turn) == list(range(40))
        assert run.lots[at : at + 4] == run.lots[:4]


def test_it_says_that_batches_are_recorded_and_noise_is_not() -> None:
    ends, said = [], []
    for capture in (True, False):
        model = network()
        with session(
            model, optimizer=sgd(model), plan=correlated(), unsafe_seed=3,
            performance=tacit.Performance(capture=capture),
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                dp.accumulate(lot, cross_entropy(model))
                dp.step()
            said.append(dp.explain())
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert "Batches are replayed" in said[0]
    assert "Noise and update are computed each time, not replayed: correlated" in said[0]
    assert "not replayed" not in said[1]
    assert torch.allclose(*ends, atol=1e-5)


def test_lots_of_one_group_are_everybody() -> None:
    """Above two thirds of the data there is one group, and the statement says that it is whole."""
    run, made = Watched(), correlated("buffered", lot_size=30)
    with run.session(made) as dp:
        run.train(dp, 6)
    assert made.groups == 1
    assert run.lots == [list(range(40))] * 6


def test_records_are_dealt_evenly_and_independently() -> None:
    counts = np.zeros(5)
    together = 0
    for seed in range(60):
        groups = Groups(100, 5, UnsafeSeededStream(seed, "groups"))
        members = [groups.members(at) for at in range(5)]
        assert np.array_equal(np.sort(np.concatenate(members)), np.arange(100))
        counts += [len(one) for one in members]
        dealt = np.empty(100, dtype=int)
        for at, one in enumerate(members):
            dealt[one] = at
        together += int((dealt[:-1] == dealt[1:]).sum())
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.binomtest(together, 60 * 99, 0.2).pvalue > 1e-4
    assert stats.chisquare([1200 + 160, *[1160] * 4]).pvalue < 1e-4  # it can fail


def test_records_come_at_their_groups_rate() -> None:
    run, made = Watched(), correlated(lot_size=5)
    with run.session(made, unsafe_seed=1) as dp:
        run.train(dp)
    assert made.group_rate == 0.5
    inside = sum(map(len, run.lots))
    assert stats.binomtest(inside, 40 * STEPS // GROUPS, 0.5).pvalue > 1e-4
    assert stats.binomtest(inside, 40 * STEPS // GROUPS, 0.125).pvalue < 1e-10


# ---- with a ledger


@pytest.fixture
def budget(sqlite: Place) -> Budget:
    return sqlite.ledger().open("data", epsilon=50.0, delta=DELTA)


def test_lost_steps_are_turns_that_are_over(budget: Budget, tmp_path: Path) -> None:
    """A resumption that was lost took its groups' turns, and its noise is not gone on with."""
    made = correlated()
    lease = tacit.Performance(lease=1)
    run = Watched()
    with run.session(made, budget=budget, performance=lease) as dp:
        run.train(dp, 6)
        dp.save(tmp_path / "a")
    lost = Watched()
    with lost.session(made, budget=budget, performance=lease, resume=tmp_path / "a") as dp:
        lost.train(dp, 3)  # nothing of it is kept
    rest = Watched()
    with rest.session(made, budget=budget, performance=lease, resume=tmp_path / "a") as dp:
        rest.train(dp)
        assert dp.steps_lost == 3
        statement = dp.statement(DELTA)
    assert len(rest.lots) == STEPS - 9
    groups = [set().union(*(run.lots + lost.lots + rest.lots)[at::GROUPS]) for at in range(GROUPS)]
    assert sum(map(len, groups)) == len(set().union(*groups))
    together = np.concatenate([run.noise(made), lost.noise(made)])
    assert looks_independent(white(together, made))
    assert looks_independent(white(rest.noise(made), made, 9))
    read = Statement.from_json(statement.to_json())
    assert read.epsilon == made.epsilon(DELTA)
    assert any("checkpoint of the unfinished run" in one for one in read.assumptions)


def test_two_that_go_on_at_once_do_not_share_turns(budget: Budget, tmp_path: Path) -> None:
    """Whoever comes second while the first is at work is granted nothing more."""
    made, lease = correlated(), tacit.Performance(lease=1)
    run = Watched()
    with run.session(made, budget=budget, performance=lease) as dp:
        run.train(dp, 2)
        dp.save(tmp_path / "a")
    one, other = Watched(), Watched()
    with one.session(made, budget=budget, performance=lease, resume=tmp_path / "a") as first:
        one.train(first, 2)
        second = other.session(made, budget=budget, performance=lease, resume=tmp_path / "a")
        with second as late:
            other.train(late, 2)
        one.train(first)
    assert (len(one.lots), len(other.lots)) == (2, 2)


def test_groups_that_nobody_knows_cannot_go_on(budget: Budget) -> None:
    """Without a checkpoint the lost steps' groups are not known, and others would have one more."""
    made, run, lease = correlated(), Watched(), tacit.Performance(lease=1)
    with run.session(made, budget=budget, performance=lease) as dp:
        run.train(dp, 2)
    (held,) = budget.ledger.refresh().of(budget.name)
    again = Watched().session(made, budget=budget.reservation(held.number), performance=lease)
    with pytest.raises(ProtocolError, match="no checkpoint says which groups"), again:
        pass


def test_a_run_to_an_earlier_end_keeps_no_noise_after_it(tmp_path: Path) -> None:
    made, run = correlated(), Watched()
    with run.session(made, stop_after=5) as dp:
        run.train(dp)
        dp.save(tmp_path / "a")
    assert set(checkpoint.read(tmp_path / "a").state["tacit noise"].values) == {"position"}
    with Watched().session(made, resume=tmp_path / "a") as dp:
        assert list(dp.lots()) == []
        assert dp.steps_taken == 5


def test_records_in_another_order_do_not_take_each_others_turns(tmp_path: Path) -> None:
    """As of a random_split without a seed: some would come again before their bands are over."""
    run, made, rows = Watched(), correlated(), data()
    with run.session(made) as dp:
        run.train(dp, 1)
        dp.save(tmp_path / "a")
    turned = TensorDataset(*(one.flip(0) for one in rows.tensors))
    for other in (turned, Subset(rows, [1, 0, *range(2, len(rows))])):
        with pytest.raises(CheckpointError, match=r"dataset must hold the records .* same order"):
            Watched().session(made, dataset=other, resume=tmp_path / "a")
    with Watched().session(made, resume=tmp_path / "a") as dp:
        assert dp.steps_taken == 1


def test_after_the_last_step_nobody_is_told_who_was_in_which_group(tmp_path: Path) -> None:
    """With a record less, the same key deals all behind it otherwise, which shows in the models."""
    run, made = Watched(), correlated()
    with run.session(made) as dp:
        run.train(dp, 9)
        dp.save(tmp_path / "a")
        run.train(dp)
        dp.save(tmp_path / "b")
    assert len(checkpoint.read(tmp_path / "a").state["tacit groups"].values["key"]) == 64
    assert checkpoint.read(tmp_path / "b").state["tacit groups"].values == {"key": ""}
    again = Watched()
    with again.session(made, resume=tmp_path / "b") as dp:
        assert [*dp.lots()] == []
        dp.save(tmp_path / "c")
    assert checkpoint.read(tmp_path / "c").state["tacit groups"].values == {"key": ""}
    groups = Groups(40, 4, UnsafeSeededStream(0, "groups"))
    groups.load_state_dict({"key": ""})
    left = again.session(made, resume=tmp_path / "a")
    left._run_state.groups = groups
    with pytest.raises(CheckpointError, match="does not hold the groups"):
        left.__enter__()


def test_a_checkpoint_tells_the_noise_of_no_other_step(tmp_path: Path) -> None:
    """Keys draw the last steps' noise again, and neither earlier nor later noise of the run."""
    run, made = Watched(), correlated("inverse")
    with run.session(made) as dp:
        run.train(dp, 9)
        dp.save(tmp_path / "a")
        run.train(dp)
    drawn_then = white(run.noise(made), made)
    memory = memory_of(made)
    assert memory is not None
    memory.load_state_dict(checkpoint.read(tmp_path / "a").state["tacit noise"].values)
    source = CorrelatedSource(memory, torch.device("cpu"), UnsafeSeededStream(0, "other"))
    known = []
    for step in range(STEPS):
        again = torch.zeros(drawn_then.shape[1])
        source._draw(again, step, None)
        known.append(np.allclose(again.numpy(), drawn_then[step], atol=1e-4))
    assert [step for step in range(STEPS) if known[step]] == [7, 8]


@pytest.mark.parametrize("noise", ["fast", "secure"])
@pytest.mark.parametrize("name", KINDS)
def test_a_release_that_fails_has_used_up_its_turn_and_its_column(
    name: str, noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else columns fall behind turns: a record comes again before its bands are over."""
    run, made, failing = Watched(), correlated(name, noise=noise), (9, STEPS - 1)
    with run.session(made, unsafe_seed=3) as dp:
        for lot in dp.lots():
            run.lots.append(drawn(lot).tolist())
            for x, _ in lot:
                dp.backward(0.0 * run.model(x).sum(1))
            if lot.step not in failing:
                dp.step()
                continue
            with monkeypatch.context() as broken, pytest.raises(torch.OutOfMemoryError):
                broken.setattr(torch.Tensor, "mul_", out_of_memory)
                broken.setattr(torch.Tensor, "round_", out_of_memory)
                dp.step()
        dp.save(tmp_path / "end")
    assert dp.steps_taken == STEPS
    found = run.noise(made)
    assert len(found) == STEPS - 2
    assert looks_independent(white(found[:9], made))
    assert looks_independent(white(found[9:], made, start=10))
    groups = [set[int]().union(*run.lots[at :: made.groups]) for at in range(made.groups)]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set(checkpoint.read(tmp_path / "end").state["tacit noise"].values) == {"position"}


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("no memory")


def test_what_a_checkpoint_must_hold(tmp_path: Path) -> None:
    made, run = correlated(), Watched()
    with run.session(made) as dp:
        run.train(dp, 2)
        dp.save(tmp_path / "a")
    held = checkpoint.read(tmp_path / "a")
    assert len(held.state["tacit noise"].values["tensors"]["float32"]) == GROUPS - 1
    with pytest.raises(CheckpointError, match="which state has not"):
        checkpoint.restore(held, model=run.model, optimizers=[run.optimizer], state={})


def test_half_precision_and_double_parameters_have_noise_of_their_own() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2).double())

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.parts[1](self.parts[0](x).double())
            return result

    whole = Mixed()
    optimizer = sgd(whole)
    grads, made = Grads(whole, optimizer), correlated("inverse", sampling=Cyclic())
    with tacit.private(whole, optimizer, made, data(), unsafe_seed=5) as dp:
        for lot in dp.lots():
            for x, _ in lot:
                dp.backward(0.0 * whole(x).sum(1))
            dp.step()
    rows = [torch.cat([g.flatten().double() for g in one.values()]) for one in grads.steps]
    noise = torch.stack(rows).numpy() * made.lot_size / made.noise_scale
    assert looks_independent(white(noise, made))
