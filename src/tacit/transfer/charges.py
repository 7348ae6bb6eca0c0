"""What a labelling run is charged: so much for a screening, so much for an answer.

Why the declared event covers every run. How many queries are answered, and which, is itself an
outcome: a screening decides whether there is one more release. What a run may release is bounded
beforehand all the same, by ``queries`` screenings and ``answers`` answers, after which it ends.
Given all that was told before, each of them is dominated by its own fixed event, so that

- of Gaussians the sum of μ² is at most the declared one for sure, and a fully adaptive sequence
  with a sure bound on Σμ² is no worse than one Gaussian of that μ (Koskela, Tobaben & Honkela 2023;
  Smith & Thakurta 2022);
- of one kind of event (LNMax, GNMax), a run that ends early can be thought to go on with releases
  that ignore the data: ordinary adaptive composition of fixed events, for pure ones by Dwork et
  al. 2006;
- of any two kinds, screenings and answers are two interactive mechanisms of fixed events each, and
  a run takes turns between them as it likes: concurrent composition (Vadhan & Zhang 2023).

A run that answered less than was declared has the declared cost. Nothing is taken back: how much it
answered depends on chance and on the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit._validation import whole
from tacit.accounting.events import Composed, Repeated, check_event
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.events import Event


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """What one screening and one answer are charged.

    Args:
        screening: Of each query that is screened; None if none is.
        answer: Of each query that is answered; None if its screening is charged for both.

    >>> from tacit.accounting import Gaussian
    >>> Charges(screening=Gaussian(150.0), answer=Gaussian(40.0)).declared(queries=9, answers=4)
    Composed(Repeated(event=Gaussian(sigma=150.0, replace_distance=2.0), times=9), \
Repeated(event=Gaussian(sigma=40.0, replace_distance=2.0), times=4))
    """

    screening: Event | None
    answer: Event | None

    def __post_init__(self) -> None:
        if self.screening is None and self.answer is None:
            raise InvalidArgument("screening or answer must be an event, got None for both")
        for one in (self.screening, self.answer):
            if one is not None:
                check_event(one)

    @property
    def both(self) -> tuple[Event | None, Event | None]:
        """The two events."""
        return self.screening, self.answer

    def declared(self, *, queries: int, answers: int | None = None) -> Event:
        """What is declared before a run: every query screened, at most ``answers`` answered.

        Guarantee:
            It covers all that such a run tells, however many queries turn out to be answered. The
            argument is in this module's docstring.
        """
        asked, told = checked_numbers(queries, answers)
        if self.screening is None:
            assert self.answer is not None
            return _times(self.answer, told)
        screened = _times(self.screening, asked)
        return screened if self.answer is None else Composed(screened, _times(self.answer, told))

    def steps(self, *, queries: int, answers: int | None = None) -> int:
        """How many releases that is, each granted by itself."""
        asked, told = checked_numbers(queries, answers)
        return asked * (self.screening is not None) + told * (self.answer is not None)


def checked_numbers(queries: int, answers: int | None) -> tuple[int, int]:
    """How many queries a run has, and how many of them it answers at most."""
    asked = whole("queries", queries)
    told = asked if answers is None else whole("answers", answers)
    if told > asked:
        raise InvalidArgument(f"answers must be at most queries = {asked}, got {answers!r}")
    return asked, told


def _times(event: Event, times: int) -> Repeated:
    if isinstance(event, Repeated):
        return Repeated(event.event, event.times * times)
    return Repeated(event, times)
