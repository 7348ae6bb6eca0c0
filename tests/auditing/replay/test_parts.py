from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tacit.auditing.replay import parts
from tacit.auditing.replay.forbidden.checkpoints import files
from tacit.auditing.replay.forbidden.small_run import tried as outcome
from tacit.auditing.replay.part_checks import (
    layers,
    ledger_rules,
    random_numbers,
    ranks,
    refusals,
    sessions,
    statements,
    strategies,
    ways,
)
from tacit.errors import TacitError
from tacit.ledger import composition
from tacit.randomness import correlated, streams
from tacit.statement import claim as written
from tacit.training import (
    assembly,
    capture,
    charging,
    checkpoint,
    checkpoint_file,
    claim,
    correlation,
    guards,
    lot,
    noise,
    plan,
    sampling,
    session,
    verification,
)
from tacit.training import fit as fitting
from tacit.training.clipping import recorder
from tacit.training.clipping.forms import convolution, matrix
from tacit.training.distributed import agreement, sharded, shares, world

if TYPE_CHECKING:
    from collections.abc import Iterator


# What they look at has tests of its own in ``make test``: of refusals, recordings, ranks and noise.
_LONG = (
    refusals.forbidden_runs, ranks.replicas, ranks.pieces, ranks.mixed, ranks.refused,
    ways.recorded,
    ways.unrecorded, strategies.mixtures, strategies.bands,
)  # fmt: skip


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=(pytest.mark.slow,) if part in _LONG else ())
        for part in parts.PARTS
    ],
    ids=lambda part: part.__name__.strip("_"),
)
def test_right_engine_passes(part):
    found = part()
    assert found.passed, found.evidence


def test_part_that_raises_is_a_fault_of_the_engine(monkeypatch):
    def broken() -> None:
        raise IndexError("beyond the end")

    monkeypatch.setattr(parts, "PARTS", {broken: "noise"})
    (found,) = parts.replay_parts().findings
    assert not found.passed
    assert "IndexError: beyond the end" in found.describe()


@pytest.mark.parametrize(
    ("where", "name", "attempt"),
    [
        (guards.Guard, "check_all", "a weight changed through .data, after the last lot"),
        (guards.Guard, "check_before_step", "one entry of a gradient by hand, before a step"),
        (guards.Guard, "_before_step", "a step of the optimizer's own, between lots"),
        (guards.Seal, "check", "a buffer changed in place, after the run"),
        (guards.Custody, "check_process", "a run in a forked child"),
        (assembly.preflight, "check_optimizers", "a wrapped optimizer"),
        (assembly, "check_dataset", "more examples than planned"),
        (world, "launched", "one of several processes"),
    ],
)
def test_run_that_is_not_refused_is_told(monkeypatch, where, name, attempt):
    tried = refusals.runs()[attempt]
    assert not outcome(attempt, tried)
    monkeypatch.setattr(where, name, lambda *_, **__: None)
    assert outcome(attempt, tried)


@pytest.mark.parametrize(
    ("where", "name", "attempt"),
    [
        (claim, "check_steps", "a last step of 4"),
        (checkpoint, "_check_finite", "a rate of"),
        (checkpoint, "_check_optimizers", "a rate of"),
    ],
)
def test_file_that_is_not_refused_is_told(monkeypatch, tmp_path, where, name, attempt):
    monkeypatch.setattr(where, name, lambda *_: None)
    assert any(attempt in one for one in refusals.let_pass(files(tmp_path)))


def test_digest_that_is_not_compared_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint_file, "_digest", lambda *_: "0")
    assert any("one bit" in one for one in refusals.let_pass(files(tmp_path)))


def test_numbers_of_another_width_are_told(monkeypatch):
    monkeypatch.setattr(
        random_numbers, "rounded_gaussian", lambda scale, size, _: np.rint(
            0.9 * scale * np.random.default_rng(1).standard_normal(size)
        ).astype(np.int64)
    )  # fmt: skip
    found = random_numbers.whole_numbers()
    assert not found.passed
    assert "rounded Gaussian" in found.evidence


def test_steps_that_were_lost_and_are_not_counted_are_told(monkeypatch):
    monkeypatch.setattr(
        session.Session, "spent", lambda self, delta: claim.epsilon(self.plan, 1, delta)
    )
    assert not ledger_rules.lost().passed


def _quietly(*_: object, **__: object) -> None:
    pass


def slow(*given: object) -> object:
    return pytest.param(*given, marks=pytest.mark.slow)


def _as_if_once(*given):
    """What all turns of a record come to is what one does."""
    return replace(correlation.course(*given), sensitivity=1.0)


def _everybody_first(self, lots, count):
    """All records are in the first lot of an epoch, and the last one once more in the next."""
    self._lots, self._next = lots, 0
    self._order = np.append(np.arange(len(lots)), len(lots) - 1)
    self._ends = [len(lots), *[len(lots) + 1] * (count - 1)]


_sent = capture.Staged.send


def _only_once(self):
    """What a recording reads is not renewed."""
    if not self._target.any():
        _sent(self)


def _refusing(*_: object, **__: object) -> None:
    raise TacitError("refused, as it should not be")


@contextmanager
def _as_it_is(**_: object) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("part", "where", "name", "wrong"),
    [
        (layers.uses, matrix.OneHot, "dense", lambda self: self.right.new_zeros(
            self.units, *self.shape)),
        (layers.positions, recorder.Recorder, "_has_rows", lambda *_, **__: False),
        (layers.repeated, recorder.Recorder, "_given", lambda *given: torch.zeros_like(given[-1])),
        (layers.empty, layers, "in_stages", lambda values: values.flatten(1).amax(1)),
        (layers.once, convolution.Convolution, "dense", lambda self: self.grad.new_zeros(
            self.units, *self.shape)),
        (statements.additions, written, "_together", lambda *given: given[0].event),
        (statements.signatures, written.signature, "fits", lambda *_: True),
        (ledger_rules.guarantees, composition, "covers", lambda *_: True),
        (ledger_rules.forked, charging.Lease, "_forget", _quietly),
        (ledger_rules.unbegun, charging.StepCharges, "take", lambda _: True),
        (sessions.chance, verification, "_DROPOUTS", frozenset()),
        (sessions.batches, verification, "_check_labels", _refusing),
        (sessions.facts, session.Session, "spent", lambda *_: 1.0),
        (sessions.arithmetic, fitting, "arithmetic", _as_it_is),
        (sessions.kept, checkpoint_file, "_DTYPES", {"bfloat16": torch.float16}),
        (random_numbers.counts, noise.GridNoise, "count", lambda *given: given[1]),
        (random_numbers.ties, random_numbers, "subset", lambda places, kept, _: places[:kept]),
        (refusals.forked_runs, guards.Custody, "check_process", _quietly),
        (random_numbers.key_streams, streams, "_mixed", lambda *given: given[::2]),
        (strategies.lost, correlated.NoiseMemory, "begin", lambda self, at: setattr(
            self, "position", at)),
        (strategies.sensitivities, strategies, "course", _as_if_once),
        (ways.released, guards.Guard, "_check_awaited", _quietly),
        (ways.epochs, sampling.RunningEpoch, "begin", _everybody_first),
        (ranks.charged, charging.FollowedCharges, "forgo", _quietly),
        slow(strategies.mixtures, correlated.Feedback, "norm", lambda self, _: self.norms[-1]),
        slow(strategies.bands, plan, "_independent_error", lambda _, steps: float(steps)),
        slow(ways.recorded, capture.Staged, "send", _only_once),
        slow(ways.unrecorded, lot, "_agree", lambda *_: True),
        slow(ranks.replicas, shares.Shares, "totals", lambda self, sums: {
            name: sums[name].flatten()[slice(*at)] for name, at in self.stretches.items()}),
        slow(ranks.one_piece, sharded.Sharded, "gradients", lambda self, own: {
            name: sharded._spread_like(one.parameter, -own[name])
            for name, one in self._pieces.items()}),
        slow(ranks.pieces, sharded._Piece, "stretch", property(
            lambda self: (0, (self.stop - self.start) * self.size))),
        slow(ranks.mixed, correlated, "_part", lambda whole, share: whole[: share.count]),
        slow(ranks.refused, agreement, "check", _quietly),
    ],
    ids=lambda one: getattr(one, "__name__", "") if callable(one) else "",
)  # fmt: skip
def test_part_finds_what_is_wrong_with_its_subject(monkeypatch, part, where, name, wrong):
    monkeypatch.setattr(where, name, wrong)
    assert not parts.replay_parts(only=part).passed
