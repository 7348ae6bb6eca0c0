"""The direct audit of a mechanism: many draws on each of two neighbouring inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tacit._validation import whole
from tacit.auditing.statistics.scores import Scores
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

Input = TypeVar("Input")
_PILOT = 0.05


def draw_scores(
    mechanism: Callable[[Input, int], ArrayLike],
    inside: Input,
    outside: Input,
    *,
    draws: int = 1_000_000,
    score: Callable[[NDArray[np.float64]], ArrayLike] | None = None,
) -> Scores:
    """Draws of ``mechanism`` on two neighbouring inputs, each turned into one score.

    The result goes to ``every_threshold``, ``gaussian_scores`` and the other bounds; what they find
    holds for the mechanism, for its ε is the largest over all pairs of neighbours and all scores.

    Args:
        mechanism: From an input and a number of draws to that many independent outputs: an array of
            numbers, or with one row of numbers for each draw.
        inside: The input with the record.
        outside: The input without it (or with another in its place).
        draws: The number of draws on each input.
        score: From outputs to scores. The ratio of densities is the best there is, or any
            increasing function of it. Without it, outputs are projected onto the best line for
            Gaussian noise, which is found on a twentieth as many further draws.

    >>> from tacit.auditing import every_threshold
    >>> draw = np.random.default_rng(1)
    >>> def noisy_count(count, draws):
    ...     return count + draw.laplace(scale=2.0, size=draws)  # its ε is ½
    >>> scores = draw_scores(noisy_count, 3, 2, draws=100_000)
    >>> round(every_threshold(scores, delta=0).epsilon, 2)
    0.49
    """
    count = whole("draws", draws)
    scoring = score if score is not None else _line(mechanism, inside, outside, count)
    return Scores(
        _scored(scoring, _outputs(mechanism, inside, count)),
        _scored(scoring, _outputs(mechanism, outside, count)),
    )


def _outputs(
    mechanism: Callable[[Input, int], ArrayLike], data: Input, draws: int
) -> NDArray[np.float64]:
    found = np.asarray(mechanism(data, draws), dtype=np.float64)
    if found.ndim == 0 or len(found) != draws:
        raise InvalidArgument(
            f"mechanism must return one output for each of the {draws} draws, got an array of "
            f"shape {found.shape}"
        )
    return found


def _scored(
    score: Callable[[NDArray[np.float64]], ArrayLike], outputs: NDArray[np.float64]
) -> NDArray[np.float64]:
    found = np.asarray(score(outputs), dtype=np.float64)
    if found.shape != (len(outputs),):
        raise InvalidArgument(
            f"score must return one number for each of the {len(outputs)} outputs, got an array of "
            f"shape {found.shape}"
        )
    return found


def _line(
    mechanism: Callable[[Input, int], ArrayLike], inside: Input, outside: Input, draws: int
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Fisher's discriminant: the pooled covariance's inverse times the difference of means."""
    few = max(2, round(_PILOT * draws))
    pilots = [_outputs(mechanism, data, few).reshape(few, -1) for data in (inside, outside)]
    means = [pilot.mean(axis=0) for pilot in pilots]
    difference = means[0] - means[1]
    rest = np.concatenate([pilot - mean for pilot, mean in zip(pilots, means, strict=True)])
    direction = np.linalg.lstsq(rest.T @ rest / len(rest), difference, rcond=None)[0]
    return lambda outputs: outputs.reshape(len(outputs), -1) @ direction
