"""What the experiment with secrets in a text came to, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tacit.auditing.secrets import exposure_bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.auditing import LowerBound
    from tacit.auditing.secrets import Canary, MeasuredSecret

LEVEL: Final = 0.01  # where exposures are called more than chance


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFigures:
    """What a model reveals of one secret.

    Args:
        name: Whose secret it is; the attacker knows this.
        secret: The digits.
        found: The likeliest digits by beam search.
        greedy: The digits by greedy search.
        place: The secret's place in the beam, from 1; None if it is not there.
        log_perplexity: The secret's, in bits.
        exposure: In bits, by the most exact method that reached it.
        method: Which that was: ``"rank"``, ``"sample"`` or ``"skew-normal"``.
        p_value: How likely a secret that the model never saw is to be so high among the random
            candidates.
        bound_p_value: The same by rank or sample, as ``exposure_bound`` takes it.
        extrapolated: The exposure by the skew normal law.
        fit_p_value: Of that law's fit.
    """

    name: str
    secret: str
    found: str
    greedy: str
    place: int | None
    log_perplexity: float
    exposure: float
    method: str
    p_value: float
    bound_p_value: float
    extrapolated: float
    fit_p_value: float

    @classmethod
    def of(cls, name: str, canary: Canary, measured: MeasuredSecret) -> SecretFigures:
        """From what was measured."""
        fit = measured.extrapolated.fit_p_value
        assert fit is not None
        return cls(
            name=name,
            secret=canary.secret,
            found="".join(map(chr, measured.best.secret)),
            greedy="".join(map(chr, measured.greedy.secret)),
            place=measured.found,
            log_perplexity=measured.log_perplexity,
            exposure=measured.exposure.bits,
            method=measured.exposure.method,
            p_value=measured.sampled.p_value,
            bound_p_value=measured.p_value,
            extrapolated=measured.extrapolated.bits,
            fit_p_value=fit,
        )

    @property
    def extracted(self) -> bool:
        """Whether a search takes out the secret: greedily, or as the first of the beam."""
        return self.secret in (self.found, self.greedy)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One training: how often each secret stood in its unit, and with which guarantee.

    Args:
        name: In a word or two.
        times: How many copies of each secret its one unit held.
        epsilon: Of the guarantee for one unit; None without one.
        delta: Likewise.
        steps: Of training.
        bits_per_character: On the held-out text.
        secrets: What the model reveals of each.
        p_value: How likely secrets that the model never saw are to be so exposed, all together.
    """

    name: str
    times: int
    epsilon: float | None
    delta: float | None
    steps: int
    bits_per_character: float
    secrets: tuple[SecretFigures, ...]
    p_value: float

    @property
    def extracted(self) -> int:
        """How many secrets a search took out."""
        return sum(one.extracted for one in self.secrets)

    @property
    def mean_exposure(self) -> float:
        """The mean over the secrets, in bits; 1.44 by chance."""
        return sum(one.exposure for one in self.secrets) / len(self.secrets)

    def bound(self, delta: float, confidence: float = 0.95) -> LowerBound:
        """The least ε under which the secrets can be so exposed."""
        return exposure_bound([one.bound_p_value for one in self.secrets], delta, confidence)

    @property
    def like_chance(self) -> bool:
        """Whether the exposures look like those of secrets the model never saw."""
        return self.p_value > LEVEL

    def describe(self) -> str:
        """One line for people."""
        often = "once" if self.times == 1 else f"{self.times} times"
        guarantee = "no privacy" if self.epsilon is None else f"ε = {self.epsilon:g}"
        chance = "as by chance" if self.like_chance else "far from chance"
        least = min(one.exposure for one in self.secrets)
        most = max(one.exposure for one in self.secrets)
        return (
            f"{often} in one unit, {guarantee}: exposure {least:.1f} to {most:.1f} bits, mean "
            f"{self.mean_exposure:.1f} ({chance}: p = {self.p_value:.2g}); "
            f"{self.extracted} of {len(self.secrets)} secrets extracted"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretResult:
    """The whole experiment.

    Args:
        settings: How it was made.
        seed: Of the secrets, the units and the first weights; never of noise.
        units: How many privacy units the text has.
        max_exposure: log2 of the number of possible secrets.
        situations: The trainings.
    """

    settings: Mapping[str, Any]
    seed: int
    units: int
    max_exposure: float
    situations: tuple[Situation, ...]

    def describe(self) -> str:
        """A line for each training."""
        head = (
            f"{len(self.situations[0].secrets)} secrets, exposure at most {self.max_exposure:.1f}"
        )
        return "\n".join([head, *(one.describe() for one in self.situations)])

    def as_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return asdict(self) | {"settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SecretResult:
        """What ``as_dict`` took apart."""
        situations = [dict(one) for one in plain["situations"]]
        for one in situations:
            one["secrets"] = tuple(SecretFigures(**each) for each in one["secrets"])
        return cls(**{**plain, "situations": tuple(Situation(**one) for one in situations)})
