"""Streamed noise against dense matrices, replays and resumed streams to the bit."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.accounting.factorization import column_norms
from tacit.errors import CheckpointError, InvalidArgument
from tacit.randomness import (
    CorrelatedIntegers,
    CorrelatedSource,
    NoiseMemory,
    Share,
    UnsafeSeededStream,
)
from tacit.randomness.correlated import Averages, Echo, Feedback, _key_of, _OfStep
from tacit.randomness.gaussian import GaussianSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.randomness.correlated import Mixing

CPU = torch.device("cpu")
STEPS, ENTRIES = 12, 7
COEFFICIENTS = (1.0, 0.7, 0.5, 0.1)
MIXINGS: dict[str, Mixing] = {
    "feedback": Feedback(COEFFICIENTS, tuple(column_norms(COEFFICIENTS)), STEPS),
    "averages": Averages((-0.3, -0.2), (0.9, 0.4), 1.7),
    "echo": Echo((1.0, -0.5, -0.25, -0.1), 1.3),
    "one echo": Echo((1.0, -0.8), 1.1),
}


def strategy(mixing: Mixing, steps: int) -> Any:
    """C as a matrix, by definition."""
    matrix = np.zeros((steps, steps))
    if isinstance(mixing, Feedback):
        for at in range(steps):
            column = np.array(mixing.coefficients[: steps - at])
            matrix[at : at + len(column), at] = column / np.linalg.norm(column)
        return matrix
    if isinstance(mixing, Echo):
        first = list(mixing.weights)
    else:
        pairs = list(zip(mixing.scales, mixing.decays, strict=True))
        first = [1.0] + [sum(w * d**k for w, d in pairs) for k in range(steps - 1)]
    for band, one in enumerate(first[:steps]):
        matrix += mixing.gain * one * np.eye(steps, k=-band)
    return np.linalg.inv(matrix)


def drawn(memory: NoiseMemory, seed: int, steps: int, kind: torch.dtype = torch.float64) -> Any:
    """The noise of the next steps."""
    source = CorrelatedSource(memory, CPU, UnsafeSeededStream(seed, "noise"))
    rows = []
    for _ in range(steps):
        row = torch.empty(ENTRIES, dtype=kind)
        source.normal_(row)
        source.advance()
        rows.append(row.numpy().copy())
    return np.stack(rows)


def independent(memory: NoiseMemory, seed: int, steps: int) -> Any:
    """The numbers that the source draws for these steps, before they are mixed."""
    stream, rows = UnsafeSeededStream(seed, "noise"), []
    key = stream.bytes(32) if isinstance(memory.mixing, Echo) else b""
    source = None if key else GaussianSource(CPU, stream)
    for step in range(memory.position, memory.position + steps):
        row = torch.empty(ENTRIES, dtype=torch.float64)
        own = source or GaussianSource(CPU, _OfStep(_key_of(key, step), step, str(row.dtype)))
        own.normal_(row)
        rows.append(row.numpy())
    return np.stack(rows)


@pytest.mark.parametrize("name", MIXINGS)
def test_streamed_noise_is_the_dense_inverse_times_noise(name: str) -> None:
    mixing = MIXINGS[name]
    matrix = strategy(mixing, STEPS)
    fresh = independent(NoiseMemory(mixing, STEPS), 5, STEPS)
    found = drawn(NoiseMemory(mixing, STEPS), 5, STEPS)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, fresh), atol=1e-10)
    # And a matrix that is a little wrong is not taken for it.
    wrong = matrix.copy()
    wrong[-1, -2] *= 1.001
    assert np.abs(found - np.linalg.solve(wrong, fresh)).max() > 1e-6


def test_columns_of_a_feedback_have_norm_one() -> None:
    matrix = strategy(MIXINGS["feedback"], STEPS)
    norms = np.linalg.norm(matrix, axis=0)
    assert (norms <= 1.0 + 1e-15).all()
    assert (norms >= 1.0 - 1e-14).all()


def through_a_file(memory: NoiseMemory, mixing: Mixing) -> NoiseMemory:
    """What a checkpoint makes of it: tensors are kept as they are, the rest as JSON."""
    state = copy.deepcopy(memory.state_dict())
    tensors = state.pop("tensors", None)
    read = json.loads(json.dumps(state)) | ({} if tensors is None else {"tensors": tensors})
    other = NoiseMemory(mixing, STEPS)
    other.load_state_dict(read)
    return other


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MIXINGS)
def test_a_resumed_stream_goes_on_to_the_bit(name: str, kind: torch.dtype) -> None:
    """Two parts with a file between them are what one source draws with the same two streams."""
    mixing = MIXINGS[name]
    memory = NoiseMemory(mixing, STEPS)
    first = drawn(memory, 1, 5, kind)
    resumed = through_a_file(memory, mixing)
    again = through_a_file(resumed, mixing)
    assert resumed.position == 5
    second = drawn(resumed, 2, 4, kind)
    one = drawn(memory, 2, 4, kind)  # the same memory, which no file has held
    assert second.tobytes() == one.tobytes()
    assert (
        drawn(through_a_file(resumed, mixing), 3, 3, kind).tobytes()
        == drawn(resumed, 3, 3, kind).tobytes()
    )
    forgotten = NoiseMemory(mixing, STEPS)
    forgotten.begin(5)
    assert drawn(forgotten, 2, 4, kind).tobytes() != second.tobytes()
    assert drawn(again, 2, 4, kind).tobytes() == second.tobytes()
    assert not np.array_equal(first[:4], second)


@pytest.mark.parametrize("name", MIXINGS)
def test_both_parts_of_a_resumed_run_are_one_strategy(name: str) -> None:
    mixing = MIXINGS[name]
    memory = NoiseMemory(mixing, STEPS)
    fresh = [independent(memory, 1, 5)]
    found = [drawn(memory, 1, 5)]
    resumed = through_a_file(memory, mixing)
    fresh.append(independent(resumed, 2, STEPS - 5))
    found.append(drawn(resumed, 2, STEPS - 5))
    white = strategy(mixing, STEPS) @ np.concatenate(found)
    np.testing.assert_allclose(white, np.concatenate(fresh), atol=1e-10)


@pytest.mark.parametrize("name", MIXINGS)
def test_after_lost_steps_noise_starts_afresh_with_the_rest_of_the_strategy(name: str) -> None:
    mixing = MIXINGS[name]
    memory = NoiseMemory(mixing, STEPS)
    drawn(memory, 1, 4)
    memory.begin(4)  # nothing was lost
    assert memory.state_dict().keys() > {"position"}
    memory.begin(7)
    fresh = independent(memory, 2, STEPS - 7)
    found = drawn(memory, 2, STEPS - 7)
    rest = strategy(mixing, STEPS)[7:, 7:]
    np.testing.assert_allclose(rest @ found, fresh, atol=1e-10)


@pytest.mark.parametrize("name", MIXINGS)
def test_a_finished_run_keeps_no_noise(name: str) -> None:
    memory = NoiseMemory(MIXINGS[name], STEPS)
    drawn(memory, 1, STEPS)
    assert memory.state_dict() == {"position": STEPS}


def test_keys_are_kept_as_long_as_they_are_needed() -> None:
    memory = NoiseMemory(MIXINGS["echo"], STEPS)
    drawn(memory, 1, 2)
    drawn(memory, 2, 2)
    assert [start for start, _ in memory.state_dict()["keys"]] == [1, 2, 3]
    drawn(memory, 3, 1)
    assert [start for start, _ in memory.state_dict()["keys"]] == [2, 3, 4]


def test_a_checkpoint_with_one_key_for_all_steps_goes_on() -> None:
    """As versions before wrote it."""
    memory, key = NoiseMemory(MIXINGS["one echo"], STEPS), bytes(range(32))
    memory.load_state_dict({"position": 3, "keys": [[0, key.hex()]]})
    found = drawn(memory, 1, 1)[0]
    earlier = torch.empty(ENTRIES, dtype=torch.float64)
    GaussianSource(CPU, _OfStep(key, 2, str(earlier.dtype))).normal_(earlier)
    memory.begin(3)
    fresh = independent(memory, 1, 1)[0]
    np.testing.assert_allclose(found, 1.1 * (fresh - 0.8 * earlier.numpy()), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("feedback", {"position": 3}),
        ("feedback", {"position": 3, "tensors": {"float32": [torch.zeros(2)]}}),
        ("echo", {"position": 3}),
        ("echo", {"position": 3, "keys": [[0, "abcd"]]}),
        ("echo", {"position": 13, "keys": []}),
        ("echo", {"position": "3", "keys": []}),
    ],
)
def test_what_cannot_go_on_is_refused(name: str, state: Any) -> None:
    with pytest.raises(CheckpointError, match="the checkpoint"):
        NoiseMemory(MIXINGS[name], STEPS).load_state_dict(state)


def test_noise_of_another_model_is_refused() -> None:
    memory = NoiseMemory(MIXINGS["averages"], STEPS)
    drawn(memory, 1, 1)
    source = CorrelatedSource(memory, CPU, UnsafeSeededStream(2, "noise"))
    with pytest.raises(CheckpointError, match="another run"):
        source.normal_(torch.empty(ENTRIES + 1, dtype=torch.float64))


@pytest.mark.parametrize("work", [copy.copy, copy.deepcopy])
def test_a_source_cannot_be_copied(work: Callable[[Any], Any]) -> None:
    memory = NoiseMemory(MIXINGS["echo"], STEPS)
    with pytest.raises(InvalidArgument, match="drawn twice"):
        work(CorrelatedSource(memory, CPU, UnsafeSeededStream(2, "noise")))


# ---- whole numbers


def whole_rows(
    memory: NoiseMemory, seed: int, steps: int, scale: float = 1e6, share: Share | None = None
) -> Any:
    """The whole-number noise of the next steps."""
    source = CorrelatedIntegers(memory, CPU, UnsafeSeededStream(seed, "noise"))
    rows = []
    for _ in range(steps):
        row = torch.empty(ENTRIES if share is None else share.count, dtype=torch.int64)
        source.integers_(row, scale, share=share)
        source.advance()
        rows.append(row.numpy().copy())
    return np.stack(rows)


def earlier_steps(mixing: Mixing, step: int, noise: Any, fresh: Any) -> Any:
    """What the steps before add to a step, as real numbers: by definition."""
    total = np.zeros(noise.shape[1])
    for at in range(step):
        back = step - at
        if isinstance(mixing, Feedback):
            if back < len(mixing.coefficients):
                ratio = mixing.norm(step) / mixing.norm(at)
                total -= mixing.coefficients[back] * ratio * noise[at]
        elif isinstance(mixing, Echo):
            total += mixing.weights[back] * fresh[at] if back < len(mixing.weights) else 0.0
        else:
            for weight, decay in zip(mixing.scales, mixing.decays, strict=True):
                total += weight * decay ** (back - 1) * fresh[at]
    return total


def unmixed(mixing: Mixing, released: Any, sums: Any) -> Any:
    """The independent whole numbers that a release stands for with these sums."""
    noise, found = released - sums, np.zeros_like(released)
    for step in range(len(released)):
        added = np.round(earlier_steps(mixing, step, noise, found)).astype(np.int64)
        found[step] = noise[step] - added
    return found


def gains(mixing: Mixing) -> Any:
    """How wide the independent numbers of each step are."""
    if isinstance(mixing, Feedback):
        return np.array([[mixing.norm(step)] for step in range(STEPS)])
    return np.full((STEPS, 1), mixing.gain)


@pytest.mark.parametrize("name", MIXINGS)
def test_whole_numbers_are_the_dense_inverse_but_for_their_rounding(name: str) -> None:
    mixing = MIXINGS[name]
    found = whole_rows(NoiseMemory(mixing, STEPS), 5, STEPS)
    fresh = unmixed(mixing, found, np.zeros_like(found))
    exact = np.linalg.solve(strategy(mixing, STEPS), fresh / gains(mixing))
    assert np.abs(found - exact).max() <= 0.5 * STEPS
    assert np.abs(found).max() > 1e5
    scores = fresh / gains(mixing) / 1e6
    assert 0.7 < np.sqrt(np.square(scores).mean()) < 1.3


@pytest.mark.parametrize("name", MIXINGS)
def test_other_sums_shift_the_independent_noise_by_what_the_theorem_says(name: str) -> None:
    """Two sums, one release: the whole numbers behind it differ by C(D + r), no more."""
    mixing, random = MIXINGS[name], np.random.default_rng(3)
    noise = whole_rows(NoiseMemory(mixing, STEPS), 7, STEPS)
    inverse = np.linalg.inv(strategy(mixing, STEPS))
    worst = 0.0
    for _ in range(200):
        sums = random.integers(-900, 900, (STEPS, ENTRIES))
        moved = np.zeros_like(sums)
        turns = random.integers(STEPS) + np.arange(0, STEPS, 5)
        moved[turns[turns < STEPS]] = random.integers(-900, 900, ENTRIES)
        released = sums + noise
        shift = unmixed(mixing, released, sums) - unmixed(mixing, released, sums + moved)
        if isinstance(mixing, Feedback):
            rest = shift - gains(mixing) * (strategy(mixing, STEPS) @ moved)
            quiet = [t for t in range(STEPS) if not moved[max(0, t - 3) : t].any()]
            assert not np.abs(rest[quiet]).max(initial=0.0) > 1e-6
        else:
            rest = inverse @ shift / mixing.gain - moved
        worst = max(worst, np.abs(rest).max())
        assert np.abs(rest).max() <= 1.0 + 1e-6
    assert worst > 0.5  # the bound is no idle one


def places_of(share: Share) -> Any:
    return np.concatenate([np.arange(start, stop) for start, stop in share.stretches])


@pytest.mark.parametrize("name", MIXINGS)
def test_whole_numbers_resume_to_the_bit_and_in_shares(name: str) -> None:
    """A file between two parts, read by two processes each of which has a share of the draw."""
    mixing = MIXINGS[name]
    memory = NoiseMemory(mixing, STEPS)
    whole_rows(memory, 1, 5)
    parts = {0: Share(ENTRIES, ((0, 2), (5, 6))), 1: Share(ENTRIES, ((2, 5), (6, 7)))}
    spread = {rank: through_a_file(memory, mixing) for rank in parts}
    once = through_a_file(memory, mixing)
    expected = whole_rows(once, 2, 3)
    rows = {rank: whole_rows(spread[rank], 2, 3, share=share) for rank, share in parts.items()}
    for rank, share in parts.items():
        assert (rows[rank] == expected[:, places_of(share)]).all()

    def put_together(piece: torch.Tensor, share: Share) -> torch.Tensor:
        """As processes do: every part, by its places."""
        found = torch.zeros(share.of, dtype=piece.dtype)
        held = {
            n: one._tensors[str(piece.dtype).removeprefix("torch.")] for n, one in spread.items()
        }
        at = next(k for k, one in enumerate(held[0]) if one is piece)
        for rank, own in parts.items():
            found[places_of(own)] = held[rank][at]
        return found

    kept = not isinstance(mixing, Echo)
    assert spread[0].is_spread == kept
    for one in spread.values():
        one.gather = put_together
    again = through_a_file(spread[0], mixing)
    assert (whole_rows(again, 3, 4) == whole_rows(once, 3, 4)).all()


def test_a_process_that_has_all_entries_puts_them_together_with_those_that_have_none() -> None:
    """All of them must: else one would wait for the others for good."""
    mixing, said = MIXINGS["feedback"], []
    for share in (Share(1, ((0, 1),)), Share(1, ())):
        memory = NoiseMemory(mixing, STEPS)
        memory.gather = lambda piece, own: said.append(own) or piece
        memory.tensors(torch.empty(share.count, dtype=torch.int64), share, torch.int64)
        assert memory.is_spread
        memory.state_dict()
    assert {one.count for one in said} == {0, 1}
