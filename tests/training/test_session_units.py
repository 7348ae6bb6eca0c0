"""Users and views: what belongs to one unit is sampled, averaged and clipped together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset, TensorDataset

import tacit
from tacit.errors import InvalidArgument
from tacit.training.performance import Performance

from . import sessions
from .sessions import CLIP, EXAMPLES, Grads, cross_entropy, data, drawn, network, plan, sgd

# 7 users with 1 to 13 examples, interleaved
OWNER = np.array([min(6, int((at * 17 % 40) ** 0.5)) for at in range(EXAMPLES)])
USERS = len(set(OWNER.tolist()))


def losses_of(model: nn.Module, row: Any) -> Tensor:
    return functional.cross_entropy(model(row[0]), row[1], reduction="none")


def user_plan(**changed: Any) -> tacit.Plan:
    given = {"examples": USERS, "lot_size": USERS, "unit": "user", "examples_per_user": 50}
    return plan(**given | changed)


def run(dataset: Any, chosen: tacit.Plan, batch: Any = "auto", **changed: Any) -> Any:
    """The gradients of the first step, with the units of its lot."""
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    with tacit.private(
        model, optimizer, chosen, dataset, performance=Performance(batch=batch), **changed
    ) as dp:
        lot = next(dp.lots())
        units = drawn(lot).tolist()
        for each in lot:
            dp.backward(cross_entropy(model)(each))
        dp.step()
    return grads.steps[0], units


def truth_of_users(units: list[int], lot_size: float) -> dict[str, Tensor]:
    rows = [
        [sessions.row_of(data(), int(at)) for at in np.flatnonzero(np.unique(OWNER)[u] == OWNER)]
        for u in units
    ]
    each = sessions.unit_gradients(network(), losses_of, rows)
    return {n: v / lot_size for n, v in sessions.flat_sum(each, CLIP / 4).items()}


def test_the_users_here_are_uneven() -> None:
    counts = np.bincount(OWNER)
    assert counts.min() <= 2
    assert counts.max() >= 10


@pytest.mark.parametrize("batch", [1, 16, "auto"])
def test_a_users_examples_are_averaged_and_clipped_together(batch: Any) -> None:
    chosen = user_plan(clip=CLIP / 4)
    got, units = run(data(), chosen, batch, groups=OWNER)
    assert units == list(range(USERS))
    assert sessions.close(got, truth_of_users(units, USERS))


def test_lot_size_counts_users() -> None:
    chosen = user_plan(clip=CLIP / 4, lot_size=4)
    assert chosen.sample_rate == 4 / USERS
    got, units = run(data(), chosen, groups=OWNER.tolist(), unsafe_seed=2)
    assert 0 < len(units) != 4
    assert sessions.close(got, truth_of_users(units, 4))


def test_users_may_have_names() -> None:
    names = np.array([f"user {at}" for at in OWNER])
    got, _ = run(data(), user_plan(clip=CLIP / 4), groups=names)
    other, _ = run(data(), user_plan(clip=CLIP / 4), groups=OWNER)
    assert sessions.close(got, {n: v.double() for n, v in other.items()})


class Seen(Dataset[Any]):
    """Examples whose input is their own number."""

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


def test_a_user_stays_within_one_batch_and_within_the_cap() -> None:
    model = nn.Embedding(EXAMPLES, 2)
    chosen = user_plan(examples_per_user=3, steps=30, lot_size=5)
    cap = Performance(batch=6)
    choices: dict[int, set[tuple[int, ...]]] = {}
    with tacit.private(model, sgd(model), chosen, Seen(), groups=OWNER, performance=cap) as dp:
        for lot in dp.lots():
            for rows in lot:
                assert len(rows) <= 6
                owners = OWNER[rows.numpy()]
                for user in set(owners.tolist()):
                    mine = sorted(set(rows[torch.from_numpy(owners == user)].tolist()))
                    assert len(mine) == min(3, int((user == OWNER).sum()))
                    choices.setdefault(user, set()).add(tuple(mine))
                dp.backward(model(rows).square().sum(1))
            dp.step()
    for user, seen in choices.items():
        # A fresh choice each time where there is one to make, and none where there is none.
        assert (len(seen) > 1) == (int((user == OWNER).sum()) > 3)
    covered = {at for seen in choices.values() for one in seen for at in one}
    assert len(covered) > 0.8 * EXAMPLES


def test_a_user_over_the_cap_adds_at_most_the_clip() -> None:
    got, _ = run(data(), user_plan(clip=CLIP / 4, examples_per_user=2), 4, groups=OWNER)
    assert sessions.norm(got) * USERS <= USERS * CLIP / 4


def test_one_users_examples_move_the_sum_by_at_most_two_clips() -> None:
    """Replacing all examples of one user, however many there are."""
    x, y = (t.clone() for t in data().tensors)
    x[OWNER == 6] = 1e4
    one, _ = run(data(), user_plan(), groups=OWNER)
    other, _ = run(TensorDataset(x, y), user_plan(), groups=OWNER)
    moved = sessions.norm({name: one[name] - other[name] for name in one}) * USERS
    assert 0.1 < moved <= 2 * CLIP * (1 + 1e-5)


# ---- views


class Shaken(Dataset[Any]):
    """Random augmentation: another view at each call."""

    def __init__(self, shift: float) -> None:
        self.shift = shift
        self.x, self.y = data().tensors

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + self.shift * torch.randn(sessions.WIDTH), self.y[index]


@pytest.mark.parametrize("batch", [1, 7, "auto"])
def test_views_are_averaged_before_clipping(batch: Any) -> None:
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    chosen = plan(lot_size=EXAMPLES, views=3, steps=1)
    seen: list[tuple[Tensor, Tensor]] = []
    with tacit.private(
        model, optimizer, chosen, Shaken(1.0), performance=Performance(batch=batch)
    ) as dp:
        for lot in dp.lots():
            for x, y in lot:
                assert len(x) % 3 == 0
                dp.backward(cross_entropy(model)((x, y)))
                if not lot.is_rehearsal:
                    seen.append((x, y))
            dp.step()
    rows = [
        [(x[at : at + 1].double(), y[at : at + 1]) for at in range(u, u + 3)]
        for x, y in seen
        for u in range(0, len(x), 3)
    ]
    assert len(rows) == EXAMPLES
    assert not torch.equal(rows[0][0][0], rows[0][1][0])
    truth = sessions.flat_sum(sessions.unit_gradients(network(), losses_of, rows), CLIP)
    assert sessions.close(grads.steps[0], {n: v / EXAMPLES for n, v in truth.items()})


def test_users_and_views_together() -> None:
    """Without randomness views are copies, so that the truth is that of the users alone."""
    got, units = run(data(), user_plan(clip=CLIP / 4, views=2), 16, groups=OWNER)
    assert sessions.close(got, truth_of_users(units, USERS))
    model = network()
    with tacit.private(model, sgd(model), user_plan(views=2), Shaken(1.0), groups=OWNER) as dp:
        for lot in dp.lots():
            for batch in lot:
                dp.backward(cross_entropy(model)(batch))
            dp.step()


def test_one_unit_of_many_rows_that_does_not_fit_is_not_halved_forever() -> None:
    model = network()

    def losses(batch: Any) -> Tensor:
        if len(batch[0]) > 2:
            raise torch.OutOfMemoryError
        return cross_entropy(model)(batch)

    chosen = plan(lot_size=EXAMPLES, views=4)
    with (
        pytest.raises(torch.OutOfMemoryError),
        tacit.private(model, sgd(model), chosen, data()) as dp,
    ):
        dp.accumulate(next(dp.lots()), losses)


# ---- refusals


def test_groups_must_agree_with_the_plan() -> None:
    model = network()
    for groups, chosen, message in (
        (None, user_plan(), "name the user of every example, one name each, got none for"),
        (OWNER[:-1], user_plan(), rf"one name each, got {len(OWNER) - 1:,} for {len(OWNER):,}"),
        (OWNER[:, None], user_plan(), rf"one name each, got {len(OWNER):,} by 1 for"),
        (OWNER, plan(), "make the plan with unit='user'"),
        (OWNER, user_plan(examples=9, lot_size=9), f"names {USERS} users"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            tacit.private(model, sgd(model), chosen, data(), groups=groups)


def test_an_example_that_a_subset_names_again_is_no_other_unit() -> None:
    model, again = network(), Subset(data(), [0, *range(EXAMPLES - 1)])
    with pytest.raises(InvalidArgument, match="must hold every example once, got a Subset"):
        tacit.private(model, sgd(model), plan(), again)
