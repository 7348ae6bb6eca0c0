"""A second figure beside the claim: an ε that depends on the data, and was told with noise.

It says another thing than the claim, and is kept apart for that reason. The claim holds whatever
the data are. This figure is read off what was told (ex-post privacy; Ligett et al. 2017): with
other data, or other noise, it would be another one, as large as the claim perhaps. It depends on
the data and so is itself a release: it may be told only with noise, the cost of which is in the
claim's event, and noise makes it a bound with some probability only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

from tacit._numbers import compact, rounded_up
from tacit._validation import non_negative, open_probability, shown, text
from tacit.errors import InvalidArgument

_SLACK: Final = 1e-9  # relative: what two builds of one accountant may differ by


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DataDependent:
    """An ε that was read off what was told; never the statement's claim.

    Args:
        epsilon: The ε.
        delta: The δ that goes with it, fixed beforehand.
        order: The Rényi order α at which the cost was told, chosen beforehand.
        divergence: What is told as a bound on the Rényi divergence at that order of all that was
            released, the telling itself included.
        failure: The probability, over the noise of telling, that it is none; a part of δ.
        what: How it was found and told, in words.

    Guarantee:
        ``epsilon`` is no smaller than what ``divergence`` at ``order`` amounts to at what
        ``failure`` leaves of ``delta``. That the divergence was told as it should be is for
        whoever told it, as ``tacit.transfer.sanitised_cost`` does.

    >>> DataDependent(
    ...     epsilon=2.0, delta=1e-5, order=16.0, divergence=0.9, failure=1e-6, what="noisily",
    ... ).epsilon
    2.0
    """

    epsilon: float
    delta: float
    order: float
    divergence: float
    failure: float
    what: str

    def __post_init__(self) -> None:
        for name in ("epsilon", "order", "divergence"):
            object.__setattr__(self, name, non_negative(name, getattr(self, name)))
        for name in ("delta", "failure"):
            object.__setattr__(self, name, open_probability(name, getattr(self, name)))
        if self.order <= 1.0:
            raise InvalidArgument(f"order must be above 1, got {self.order!r}")
        if self.failure >= self.delta:
            raise InvalidArgument(
                f"failure must be below delta = {self.delta!r}, of which it is a part, "
                f"got {self.failure!r}"
            )
        if not isinstance(self.what, str) or not self.what.strip():
            raise InvalidArgument(f"what must say how the figure was found, got {shown(self.what)}")
        text("what", self.what)
        least = epsilon_of(self.divergence, self.order, self.delta - self.failure)
        if self.epsilon < least * (1.0 - _SLACK):
            raise InvalidArgument(
                f"epsilon must be at least the {rounded_up(least)} that a divergence of "
                f"{self.divergence!r} at order {self.order!r} amounts to, got {self.epsilon!r}"
            )

    def describe(self) -> str:
        """In words, with what it is not."""
        return (
            "Beside the claim, and dependent on the data: all that was released has "
            f"ε = {rounded_up(self.epsilon)} at δ = {compact(self.delta, 10)} (a δ of its own), an "
            "ε that is read off what was released. On other data, or with other noise, the same "
            f"run may have cost as much as the claim says. {self.what}."
        )


def epsilon_of(divergence: float, order: float, delta: float) -> float:
    """The ε at ``delta`` of a Rényi divergence at one order."""
    from tacit.accounting import RenyiCurve, epsilon  # noqa: PLC0415 - SciPy only when it is asked

    return epsilon(RenyiCurve((order,), (divergence,)), delta, accountant="rdp")


def read(value: object) -> DataDependent | None:
    """The figure from itself, or from the dictionary that JSON holds; None if there is none."""
    if value is None or isinstance(value, DataDependent):
        return value
    names = {"epsilon", "delta", "order", "divergence", "failure", "what"}
    if isinstance(value, dict) and set(value) == names:
        given: dict[str, Any] = value
        return DataDependent(**given)
    raise InvalidArgument(f"data_dependent must be a DataDependent or None, got {shown(value)}")
