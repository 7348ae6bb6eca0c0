"""Aggregators: how the votes on a query become one noisy answer, and what that is charged.

An aggregator is its public numbers. What answers cost beyond the charge is analysed in
``laplace_votes``, ``gaussian_votes`` and ``confident_votes``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from tacit._validation import non_negative, positive, probability
from tacit.accounting.events import Gaussian
from tacit.errors import InvalidArgument
from tacit.transfer import gaussian_votes, laplace_votes, vote_noise
from tacit.transfer.charges import Charges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Event
    from tacit.randomness import Stream

    Counts = NDArray[np.int64]


class _Aggregator(ABC):
    """What the three have in common: their charges say what they declare."""

    __slots__ = ()

    binary: bool

    @property
    @abstractmethod
    def charges(self) -> Charges:
        """What one screening and one answer are charged, whatever the votes."""

    @property
    def screening(self) -> Event | None:
        """What one screening is charged; None if there is none."""
        return self.charges.screening

    @property
    def answer(self) -> Event:
        """What one answer is charged."""
        answer = self.charges.answer
        assert answer is not None
        return answer

    def declared(self, *, queries: int, answers: int | None = None) -> Event:
        """What is declared before a run, as by ``Charges.declared``."""
        return self.charges.declared(queries=queries, answers=answers)

    def screening_noise(self, queries: int, stream: Stream) -> Counts:
        """The noise of this number of screenings."""
        del queries, stream
        return np.empty(0, dtype=np.int64)

    def answer_noise(self, queries: int, classes: int, stream: Stream) -> Counts:
        """The noise of this number of answers, a row for each."""
        each = 1 if self.binary else classes
        return self._noise(queries * each, stream).reshape(queries, each)

    def passes(self, counts: Counts, drawn: Counts) -> bool:
        """Whether a query is answered, given its votes and its screening's noise."""
        del counts, drawn
        return True

    def respond(self, counts: Counts, drawn: Counts) -> int:
        """The class that is released, given the votes on a query and its answer's noise."""
        if self.binary:
            return int(vote_noise.second_wins(counts, int(drawn[0])))
        return vote_noise.winner(counts, drawn)

    @abstractmethod
    def _noise(self, size: int, stream: Stream) -> Counts: ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LNMax(_Aggregator):
    """Releases argmax_j n_j + Lap(1/γ) for every query (Papernot et al. 2017).

    Args:
        gamma: γ, the inverse of the noise's scale.
        binary: Whether there are two classes, of which one is counted: a vote then moves one number
            by 1, not two, so that an answer is γ-private and not 2γ.

    >>> LNMax(gamma=0.05).declared(queries=100)
    Repeated(event=Laplace(scale=20.0, replace_distance=1.0), times=200)
    """

    gamma: float = 0.05
    binary: bool = False

    def __post_init__(self) -> None:
        vote_noise.noise_scale("1/gamma", 1.0 / positive("gamma", self.gamma))
        _check_binary(self.binary)

    @property
    def charges(self) -> Charges:
        """What one answer is charged, whatever the votes; there is no screening."""
        both = laplace_votes.charge(self.gamma)
        return Charges(screening=None, answer=both.event if self.binary else both)

    def _noise(self, size: int, stream: Stream) -> Counts:
        return vote_noise.laplace(1.0 / self.gamma, size, stream)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GNMax(_Aggregator):
    """Releases argmax_j n_j + N(0, σ²) for every query (Papernot et al. 2018).

    Args:
        sigma: σ, in votes.
        binary: Whether there are two classes, of which one is counted: a vote then moves one number
            by 1 instead of two, a distance of 1 and not √2.

    >>> GNMax(sigma=40.0, binary=True).declared(queries=100)
    Repeated(event=Gaussian(sigma=40.0, replace_distance=1.0), times=100)
    """

    sigma: float = 40.0
    binary: bool = False

    def __post_init__(self) -> None:
        vote_noise.noise_scale("sigma", self.sigma)
        _check_binary(self.binary)

    @property
    def charges(self) -> Charges:
        """What one answer is charged, whatever the votes; there is no screening."""
        return Charges(screening=None, answer=_gaussian_answer(self.sigma, self.binary))

    @property
    def analysed_sigma(self) -> float:
        """The σ that ``gaussian_votes``, for which a vote moves counts by √2, is to be asked with.

        A binary answer moves by 1: its ratio of noise to distance is that of √2·σ.
        """
        return _analysed_sigma(self.sigma, self.binary)

    def _noise(self, size: int, stream: Stream) -> Counts:
        return vote_noise.gaussian(self.sigma, size, stream)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidentGNMax(_Aggregator):
    """Screens by max_j n_j + N(0, σ1²) ≥ T, then answers as GNMax (Papernot et al. 2018).

    Args:
        threshold: T, in votes, zero or above.
        screening_sigma: σ1, of the noise added to the largest count.
        sigma: σ2, of the noise added to all counts of a query that is answered.
        binary: As in ``GNMax``.

    >>> ConfidentGNMax().screening
    Gaussian(sigma=150.0, replace_distance=1.0)
    """

    threshold: float = 200.0
    screening_sigma: float = 150.0
    sigma: float = 40.0
    binary: bool = False

    def __post_init__(self) -> None:
        non_negative("threshold", self.threshold)
        vote_noise.noise_scale("screening_sigma", self.screening_sigma)
        vote_noise.noise_scale("sigma", self.sigma)
        _check_binary(self.binary)

    @property
    def charges(self) -> Charges:
        """What one screening and one answer are charged, whatever the votes.

        One record moves the largest count by at most 1, whether it is replaced, added or removed.
        """
        return Charges(
            screening=Gaussian(self.screening_sigma, replace_distance=1.0),
            answer=_gaussian_answer(self.sigma, self.binary),
        )

    @property
    def analysed_sigma(self) -> float:
        """As in ``GNMax``."""
        return _analysed_sigma(self.sigma, self.binary)

    def screening_noise(self, queries: int, stream: Stream) -> Counts:
        """The noise of this number of screenings."""
        return vote_noise.gaussian(self.screening_sigma, queries, stream)

    def passes(self, counts: Counts, drawn: Counts) -> bool:
        """Whether a query is answered, given its votes and its screening's noise."""
        return vote_noise.passes(counts, int(drawn), self.threshold)

    def _noise(self, size: int, stream: Stream) -> Counts:
        return vote_noise.gaussian(self.sigma, size, stream)


Aggregator: TypeAlias = LNMax | GNMax | ConfidentGNMax


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveGNMax:
    """Interactive-GNMax (Papernot et al. 2018, Algorithm 2): teachers answer where it errs.

    The student's scores p(x) are compared with the votes first. Only where

        max_j (n_j - n·p_j) + N(0, σ1²) ≥ T

    do the teachers disagree with it, and answer as GNMax does. Elsewhere they agree, and the label
    of a student that is sure of itself (max_j p_j > γ) is reinforced, for the price of the check
    alone.

    Why the check has sensitivity 1. n, the number of teachers, is public. p is computed from public
    points and from earlier answers, so that it is a fixed vector here. A record moves one vote: one
    count rises by 1, one falls by 1, and so each n_j - n·p_j and their maximum move by at most 1,
    whether it is replaced, added or removed. The check is a Gaussian of sensitivity 1, an answer
    one of √2. n·p is rounded to the noise's grid, which it may be, as it is public.

    Args:
        threshold: T, in votes: how far the votes must be from the student's scores.
        screening_sigma: σ1, of the noise of the check.
        sigma: σ2, of the noise of an answer.
        confidence: γ: how sure a student must be to be reinforced.

    >>> setting = InteractiveGNMax(threshold=100, screening_sigma=150, sigma=40, confidence=0.9)
    >>> setting.charges.screening
    Gaussian(sigma=150.0, replace_distance=1.0)
    """

    threshold: float
    screening_sigma: float
    sigma: float
    confidence: float

    def __post_init__(self) -> None:
        non_negative("threshold", self.threshold)
        vote_noise.noise_scale("screening_sigma", self.screening_sigma)
        vote_noise.noise_scale("sigma", self.sigma)
        probability("confidence", self.confidence)

    @property
    def charges(self) -> Charges:
        """What one check and one answer are charged, whatever the votes."""
        return Charges(
            screening=Gaussian(self.screening_sigma, replace_distance=1.0),
            answer=_gaussian_answer(self.sigma, binary=False),
        )

    def declared(self, *, queries: int, answers: int | None = None) -> Event:
        """What is declared before a run: every query checked, at most ``answers`` answered."""
        return self.charges.declared(queries=queries, answers=answers)

    def disagrees(self, counts: NDArray[np.int64], scores: NDArray[np.float64], drawn: int) -> bool:
        """Whether the votes, with the check's noise, are far from the student's scores."""
        expected = np.rint(counts.sum() * scores * 2.0**vote_noise.BITS).astype(np.int64)
        largest = int(((counts << vote_noise.BITS) - expected).max())
        return Fraction(largest + drawn, 1 << vote_noise.BITS) >= Fraction(self.threshold)


def _gaussian_answer(sigma: float, binary: bool) -> Gaussian:
    if binary:
        return Gaussian(sigma, replace_distance=1.0)
    answer = gaussian_votes.charge(sigma).event
    assert isinstance(answer, Gaussian)
    return answer


def _analysed_sigma(sigma: float, binary: bool) -> float:
    return math.sqrt(2.0) * sigma if binary else sigma


def _check_binary(binary: bool) -> None:
    if not isinstance(binary, bool):
        raise InvalidArgument(f"binary must be True or False, got {binary!r}")
