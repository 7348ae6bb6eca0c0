"""The check that a session makes by itself: it passes what is right and catches what is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from tacit.errors import ProtocolError, UnsupportedModel
from tacit.training import PerGroup
from tacit.training.clipping import engine, sums
from tacit.training.performance import Performance

from . import sessions
from .sessions import (
    CLIP,
    EXAMPLES,
    Grads,
    cross_entropy,
    data,
    drawn,
    example_sum,
    network,
    plan,
    session,
    sgd,
    whole_lot,
)

if TYPE_CHECKING:
    import tacit
    from tacit.training.session import Session


def full(**changed: Any) -> tacit.Plan:
    return plan(**{"lot_size": EXAMPLES, "steps": 2} | changed)


def one_step(dp: Session) -> None:
    with dp:
        whole_lot(dp, next(dp.lots()), cross_entropy(dp.model))


@pytest.mark.parametrize("batch", [1, 2, 8, "auto"])
def test_an_engine_that_does_not_clip_is_caught(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unclipped(squared_norms: Tensor, *_: Any, **__: Any) -> Tensor:
        return torch.full_like(squared_norms, 10.0)

    monkeypatch.setattr(sums, "scales_of", unclipped)
    dp = session(plan=full(), performance=Performance(batch=batch))
    with pytest.raises(UnsupportedModel, match=r"moved the sum|one unit alone added") as caught:
        one_step(dp)
    assert dp.steps_taken == 0
    public = {"1", "2", f"{CLIP:g}", f"{2 * CLIP:g}"}  # how far it was is secret
    assert {*re.findall(r"[\d.]*\d", str(caught.value))} <= public


def test_an_engine_that_clips_to_more_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the bound: the gradients here are larger than that, so the sum moves too far."""
    real = sums.scales_of

    def doubled(squared_norms: Tensor, bounds: Tensor, **given: Any) -> Tensor:
        return real(squared_norms, 3 * bounds, **given)

    monkeypatch.setattr(sums, "scales_of", doubled)
    x, y = data().tensors
    dp = session(plan=full(clip=0.05), performance=Performance(batch=1))
    with pytest.raises(UnsupportedModel, match="more to the sum than the clip"):
        one_step(dp)
    assert len(x) == len(y)


def test_an_engine_that_mixes_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale of each row taken from its neighbour: clipping no longer follows the row."""
    real = sums.scales_of

    def rolled(*args: Any, **given: Any) -> Tensor:
        return real(*args, **given).roll(1, 1)

    monkeypatch.setattr(sums, "scales_of", rolled)
    dp = session(plan=full())
    with pytest.raises(UnsupportedModel, match=r"clipping of others|moved the sum"):
        one_step(dp)


def test_an_engine_that_scales_by_the_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clipping by the mean norm is one of the known bugs of others."""

    def by_mean(squared_norms: Tensor, bounds: Tensor, **_: Any) -> Tensor:
        mean = squared_norms.sqrt().mean(1, keepdim=True)
        return (bounds[:, None] / mean).expand_as(squared_norms) * 0.1

    monkeypatch.setattr(sums, "scales_of", by_mean)
    with pytest.raises(UnsupportedModel, match="changed the clipping of others"):
        one_step(session(plan=full()))


def test_an_engine_whose_norms_mix_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sums._squared_norms

    def mixed(*args: Any) -> Tensor:
        norms = real(*args)
        return norms + 0.1 * norms.sum(1, keepdim=True)

    monkeypatch.setattr(sums, "_squared_norms", mixed)
    with pytest.raises(UnsupportedModel, match="gradient norm of others"):
        one_step(session(plan=full()))


def test_a_failed_check_cannot_be_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sums.scales_of

    def rolled(*args: Any, **given: Any) -> Tensor:
        return real(*args, **given).roll(1, 1)

    monkeypatch.setattr(sums, "scales_of", rolled)
    with pytest.raises(ProtocolError, match="not passed to"), session(plan=full()) as dp:
        lot = next(dp.lots())
        with pytest.raises(UnsupportedModel):
            for batch in lot:
                dp.backward(cross_entropy(dp.model)(batch))
        dp.step()
    assert dp.steps_taken == 0


def test_the_first_batch_is_checked_by_itself_and_reported() -> None:
    dp = session(plan=full())
    assert dp.verify() is None
    one_step(dp)
    report = dp._verifier.report
    assert report is not None
    assert 0 < report.moved <= report.limit == 2 * CLIP
    assert 1 < report.units <= 8


def test_the_check_is_made_once_and_again_when_asked() -> None:
    seen: list[int] = []
    model = network()
    with session(model, plan=full(steps=4), performance=Performance(batch=20)) as dp:
        for lot in dp.lots():
            if lot.step == 2:
                dp.verify()
            count = 0
            for batch in lot:
                dp.backward(cross_entropy(model)(batch))
                count += 1
            seen.append(count)
            dp.step()
    # A rehearsal of seven passes, or eight rows and six repetitions; and twenty twice, or the rest.
    assert seen == [9, 2, 9, 2]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_check_may_be_asked_for_in_the_middle_of_a_lot(workers: int) -> None:
    """Batches no larger than those that are watched are cut and loaded again, too."""
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    rows = data()
    fetched = rows if not workers else Subset(rows, range(len(rows)))
    performance = Performance(batch=2, workers=workers)
    with session(model, optimizer=optimizer, dataset=fetched, performance=performance) as dp:
        lot = next(dp.lots())
        units = drawn(lot).tolist()
        for batch in lot:
            if not lot.is_rehearsal and len(lot._draw.left) == len(units) - 4:
                dp.verify()
            dp.backward(cross_entropy(model)(batch))
        assert dp.verify() is not None
        dp.step()
    truth = example_sum(network(), rows, units, CLIP)
    assert len(units) > 8
    assert sessions.close(grads.steps[0], {name: value / 12 for name, value in truth.items()})


def test_batches_of_one_unit_are_not_watched_forever() -> None:
    with session(performance=Performance(batch=1)) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(dp.model))
        assert not dp._verifier.watches
    with session(plan=plan(lot_size=1, steps=20), unsafe_seed=0) as dp:
        for lot in dp.lots():
            alone = len(sessions.drawn(lot)) < 2 and dp._verifier.watches
            whole_lot(dp, lot, cross_entropy(dp.model))
            assert dp._verifier.watches == alone  # until a lot of two comes along


def test_verify_on_request_charges_and_changes_nothing() -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with session(model) as dp:
        report = dp.verify(cross_entropy(model))
        assert report is not None
        assert (report.units, report.limit) == (8, 2 * CLIP)
        assert dp.steps_taken == 0
        assert dp.spent(1e-5) == 0.0
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        lots = dp.lots()
        lot = next(lots)
        with pytest.raises(ProtocolError, match="comes between lots"):
            dp.verify(cross_entropy(model))
        whole_lot(dp, lot, cross_entropy(model))
        assert dp.steps_taken == 1


def test_verify_on_request_finds_fault_and_leaves_a_session_that_works() -> None:
    model = network()

    def mixing(batch: Any) -> Tensor:
        each = cross_entropy(model)(batch)
        return each / each.detach().mean()

    with session(model) as dp:
        with pytest.raises(UnsupportedModel, match="in the loss, it seems"):
            dp.verify(mixing)
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    assert dp.steps_taken == 4


def test_the_check_does_not_change_the_result() -> None:
    """The lot's sum has each example once, though the first batch passed three times."""
    model = network()
    optimizer = sessions.sgd(model)
    grads = sessions.Grads(model, optimizer)
    one_step(session(model, optimizer=optimizer, plan=full()))
    truth = sessions.example_sum(network(), data(), range(EXAMPLES), CLIP)
    assert sessions.close(grads.steps[0], {n: v / EXAMPLES for n, v in truth.items()})


def test_the_check_knows_the_bounds_of_groups() -> None:
    dp = session(plan=full(clipping=PerGroup({"0": 0.3, "2": 0.4}), clip=None))
    one_step(dp)
    report = dp._verifier.report
    assert report is not None
    assert report.limit == pytest.approx(1.0)


def test_random_numbers_go_on_as_if_there_had_been_no_check() -> None:
    """Repetitions see the same dropout; what comes afterwards must not repeat it."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(sessions.WIDTH, sessions.CLASSES))
    masks = []
    model[0].register_forward_hook(lambda _m, _a, out: masks.append((out != 0).clone()))
    with session(model, plan=full(steps=2), performance=Performance(batch=8)) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    first, again, third, company, alone, lot, *rest = masks
    assert torch.equal(first, again)
    assert torch.equal(first, third)
    assert bool(company.all() & alone.all())  # no dropout where shapes differ
    assert torch.equal(first, lot)  # the lot begins as if nobody had rehearsed
    assert not any(torch.equal(first, other) for other in rest)


def test_random_numbers_go_on_after_a_check_within_a_lot() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(sessions.WIDTH, sessions.CLASSES))
    masks = []
    model[0].register_forward_hook(lambda _m, _a, out: masks.append((out != 0).clone()))
    with session(model, plan=full(steps=2), performance=Performance(batch=8)) as dp:
        lots = dp.lots()
        whole_lot(dp, next(lots), cross_entropy(model))
        dp.verify()
        masks.clear()
        whole_lot(dp, next(lots), cross_entropy(model))
    first, again, third, _, _, *rest = masks
    assert torch.equal(first, again)
    assert torch.equal(first, third)
    assert not any(torch.equal(first, other) for other in rest)


# ---- explain


def test_explain_names_rules_and_memory() -> None:
    dp = session(plan=full())
    assert "No batch has been computed yet" in dp.explain()
    one_step(dp)
    text = dp.explain()
    for part in ("0.weight", "2.bias", "linear", "product of norms", "MiB", "parameters", "rule"):
        assert part in text, part
    assert "fallback" not in text


def test_explain_names_what_goes_by_the_fallback() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = nn.Parameter(torch.rand(sessions.WIDTH) + 0.5)
            self.net = network()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net(torch.hypot(x, self.odd))
            return out

    model = Odd()
    dp = session(model, plan=full())
    one_step(dp)
    assert "By the exact but slower fallback: odd." in dp.explain()


# ---- padding to few shapes, without a compiler


def test_a_program_is_made_again_once_products_are_rounded_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What TF32 rounds is in the norms of a program only if it was allowed as that was made."""
    made: list[object] = []
    monkeypatch.setattr(engine, "compiled_program", lambda plain, *_: made.append(plain) or plain)
    switch, model, before = torch.backends.cuda.matmul, network(), []
    try:
        with session(
            model, plan=plan(lot_size=8, steps=6), performance=Performance(batch=8, compile=True),
            unsafe_seed=1,
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                if lot.step == 3:
                    before, switch.allow_tf32 = list(made), True
                for batch in lot:
                    dp.backward(cross_entropy(model)(batch))
                dp.step()
    finally:
        switch.allow_tf32 = False
    assert 0 < len(before) < len(made)


@pytest.mark.parametrize("lot_size", [3, 12, 25])
@pytest.mark.parametrize("poisoned", [False, True])
def test_padded_rows_add_nothing(
    lot_size: int, poisoned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "compiled_program", lambda plain, *_: plain)
    model = network()
    optimizer = sessions.sgd(model, lr=1e-12)
    grads = sessions.Grads(model, optimizer)
    x, y = (t.clone() for t in data().tensors)
    if poisoned:  # what fills a batch up is a copy of one of its rows
        x[::2] = float("nan")
    dataset = torch.utils.data.TensorDataset(x, y)
    chosen = plan(lot_size=lot_size, steps=8)
    sizes, lots = set(), []
    with session(
        model, optimizer=optimizer, plan=chosen, dataset=dataset,
        performance=Performance(batch=8, compile=True), unsafe_seed=1,
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            lots.append(sessions.drawn(lot).tolist())
            for batch in lot:
                if not dp._verifier.watches:
                    sizes.add(len(batch[0]))
                dp.backward(cross_entropy(model)(batch))
            dp.step()
    assert len(sizes) == 1  # one shape for all
    for lot, step in zip(lots, grads.steps, strict=True):
        units = [at for at in lot if at % 2 or not poisoned]
        truth = sessions.example_sum(network(), data(), units, CLIP)
        assert sessions.close(step, {n: v / lot_size for n, v in truth.items()}, 2e-5)
