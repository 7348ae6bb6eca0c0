"""The profile of few or rare steps of losses with atoms: all their sums, in two halves.

Half of the steps make a sum A, the others a sum B. Of either all values are listed that matter:
all counts of all atoms, each with its multinomial probability. Then

    δ(ε) = Σ_a p_a·(P(B > ε - a) - e^{ε-a}·E[e^{-B}; B > ε - a]) ,

two sums over the upper values of B for every a, which are made beforehand. Lists of some thousands
thus stand for as many millions of pairs. Where all losses are small the two nearly cancel; then

    1 - e^{ε-a-b} = (1 - e^{ε-a}) + e^{ε-a}·(1 - e^{-b}) ,

whose terms are as small as the losses.

What is left out is rare where it counts: under the law that is tilted by e^{tL}/M(t), of which δ
sees (1 - e^{ε-l})·e^{-tl} ≤ c(t)·e^{-tε}, Chernoff's constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

from tacit.accounting.exact.atoms import AtomLoss, lost_of, tilt_atoms
from tacit.accounting.exact.contour import log_chernoff_constant
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, solve_convex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.exact.atoms import TiltedAtoms
    from tacit.accounting.exact.transforms import Composition, Floats

_UNIT = 2.0**-53
_MOST, _MOST_ATOMS, _MOST_STEPS = 40_000, 100, 200_000  # values; atoms, but of a list as it is
_MOST_AS_THEY_ARE = 50_000
_RARE = 1e-17  # tilted probability of counts that are left out
_LIKELY, _FEWER = 6.0, 4.0  # standard deviations of a count; ln of how many fewer there may be
_SMALL = 0.3  # losses below which 1 - e^-loss has fewer digits than it could
_SPAN = 600.0  # of the values of a half, beyond which e^-B is no number


class Half(NamedTuple):
    """All values of a half's sum that matter, rising.

    Attributes:
        losses: They.
        masses: Their probabilities under P.
        log_mgf: ln M(t) of the half.
        missing: The tilted probability of what is left out.
        mass_error: A bound on the relative errors of ``masses``.
        loss_error: A bound on the errors of ``losses``.
        mgf_error: A bound on the error of ``log_mgf``.
    """

    losses: Floats
    masses: Floats
    log_mgf: float
    missing: float
    mass_error: float
    loss_error: float
    mgf_error: float


@dataclass(frozen=True, eq=False)
class PairedSums:
    """δ(ε) of the sum of two halves.

    Attributes:
        tilt: t, by which it was chosen what to leave out.
        one: The half that is looked through.
        other: The other half.
        above: Σ of P's probabilities of its values from each on, and 0.
        shares: The same of e^{-(b - losses[0])} times the probabilities.
        excess: The same of 1 - e^{-b} times them.
        sizes: The same of |1 - e^{-b}|.
        lost: The probability of losses that are left out, before tilting.
    """

    tilt: float
    one: Half
    other: Half
    above: Floats
    shares: Floats
    excess: Floats
    sizes: Floats
    lost: float

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        least, most = self.other.losses[[0, -1]].tolist()
        start = int(np.searchsorted(self.one.losses, epsilon - most, side="right"))
        losses, masses = self.one.losses[start:], self.one.masses[start:]
        place = np.searchsorted(self.other.losses, epsilon - losses, side="right")
        seen = float((masses * self.above[place]).sum())
        grown = np.exp(np.minimum(epsilon - least - losses, 700.0))
        shared = float((masses * grown * self.shares[place]).sum())
        value, size = max(0.0, seen - shared), seen + shared
        reach = abs(epsilon) + max(abs(least), abs(most))
        if reach < _SMALL:
            over, above = np.expm1(epsilon - losses), self.above[place]
            small = (over + 1.0) * self.sizes[place] + np.abs(over) * above
            if (least_size := 2.0 * float((masses * small).sum())) < size:
                terms = (over + 1.0) * self.excess[place] - over * above
                value, size = max(0.0, float((masses * terms).sum())), least_size
        # Sums over the other half run from its upper end; a loss that is off by η moves each term
        # by η times its share at most, on whichever side of ε it falls.
        rounding = 2.0 * _UNIT * (len(self.other.losses) + 40.0 + 2.0 * reach) * size
        off = self.one.loss_error + self.other.loss_error
        off += 4.0 * _UNIT * (abs(epsilon) + abs(least) + abs(most))
        rounding += 1.01 * off * shared
        rounding += 1.01 * (self.one.mass_error + self.other.mass_error) * value
        log_scale = self.one.log_mgf + self.other.log_mgf - self.tilt * epsilon
        log_scale += self.one.mgf_error + self.other.mgf_error
        missing = 1.01 * (self.one.missing + self.other.missing) + 1e-300
        log_missing = math.log(missing) + log_chernoff_constant(self.tilt) + log_scale
        truncation = math.exp(min(log_missing, 700.0)) + self.lost
        errors = ErrorTerms(truncation=truncation, rounding=rounding)
        return Enclosure(value, errors, -shared)

    def guess(self, delta: float, start: float) -> float:
        """About ε(δ)."""
        return solve_convex(self, delta, start)


def paired_sums(parts: Composition, tilt: float) -> PairedSums | None:
    """All sums that matter, if they are few."""
    listed = []
    for loss, count in parts:
        if not isinstance(loss, AtomLoss) or loss.quadrature > 0.0 or count > _MOST_STEPS:
            return None
        listed.append((loss, count))
    tilted = [(tilt_atoms(loss, tilt), count) for loss, count in listed]
    less, more = _split([count for _, count in tilted])
    laws = [law for law, _ in tilted]
    other = _half(laws, more, tilt)
    one = other if less == more or other is None else _half(laws, less, tilt)
    if one is None or other is None:
        return None
    falls = np.exp(other.losses[0] - other.losses) * other.masses
    over = -np.expm1(-other.losses) * other.masses
    sums = (np.cumsum(x[::-1])[::-1] for x in (other.masses, falls, over, np.abs(over)))
    above, shares, excess, sizes = (np.append(x, 0.0) for x in sums)
    return PairedSums(tilt, one, other, above, shares, excess, sizes, lost_of(parts))


def _split(counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Half of each; what is odd goes by turns, first to the second half."""
    one, other, behind = [], [], 0
    for count in counts:
        one.append((count + behind) // 2)
        other.append(count - one[-1])
        behind ^= count % 2
    return one, other


def _half(laws: Sequence[TiltedAtoms], counts: Sequence[int], tilt: float) -> Half | None:
    losses, masses = np.zeros(1), np.ones(1)
    log_mgf = missing = mass_error = loss_error = mgf_error = 0.0
    for tilted, count in zip(laws, counts, strict=True):
        if count == 0:
            continue
        found = _counts(tilted.mass, tilted.spread + tilted.centre, count)
        if found is None or len(found.losses) * len(losses) > max(_MOST, len(found.losses)):
            return None
        losses = np.add.outer(losses, found.losses).ravel()
        masses = np.multiply.outer(masses, found.masses).ravel()
        known = tilted.log_mgf_error
        mgf_error += count * float(known.truncation + known.rounding)
        log_mgf += count * tilted.log_mgf
        missing += found.missing + count * tilted.missing
        # Counts' probabilities are those of masses that add up to 1.
        mass_error += count * (2.0 * float(tilted.mass_errors.max()) + tilted.missing)
        mass_error += _counting_error(tilted.mass, count)
        loss_error += count * float(tilted.spread_errors.max())
    order = np.argsort(losses)
    losses = losses[order]
    reach = float(np.abs(losses[[0, -1]]).max())
    if losses[-1] - losses[0] > _SPAN or tilt * reach > _SPAN or abs(log_mgf) > _SPAN:
        return None
    exponents = log_mgf - tilt * losses
    mass_error += mgf_error + 4.0 * _UNIT * (2.0 + abs(log_mgf) + tilt * reach)
    mass_error += 2.0 * tilt * loss_error
    loss_error += 4.0 * _UNIT * reach * len(laws)
    if mass_error > 1e-3 or missing > 1e-3:
        return None
    masses = masses[order] * np.exp(exponents)
    return Half(losses, masses, log_mgf, missing, mass_error, loss_error, mgf_error)


class _Counted(NamedTuple):
    losses: Floats
    masses: Floats
    missing: float


def _counts(mass: Floats, losses: Floats, count: int) -> _Counted | None:
    """Sums of ``count`` draws and their probabilities; None if too many matter.

    Atom after atom, how often each is drawn is binomial given those before it; the likeliest one
    comes last and has what is left.
    """
    if count == 1 and len(mass) <= _MOST_AS_THEY_ARE:
        return _Counted(losses, mass, 0.0)
    order = np.argsort(-mass)
    # About as many counts of each atom as it has likely ones: of all together there are fewer.
    likely = float(np.log1p(_LIKELY * np.sqrt(count * mass[order[1:]])).sum())
    many = likely > math.log(_MOST) + _FEWER and math.comb(len(mass) + count - 1, count) > 2 * _MOST
    if len(mass) > _MOST_ATOMS or many:
        return None
    last, others = int(order[0]), order[1:].tolist()
    factorials = gammaln(np.arange(count + 1) + 1.0)
    # What is left of the mass before each atom: added up from the end, as probabilities of what
    # comes later, so that one stage's errors are undone by the next one's.
    rests = np.log(np.cumsum(mass[[last, *reversed(others)]])[::-1])
    logs = np.log(mass)
    left, sums, p, missing = np.array([count]), np.zeros(1), np.ones(1), 0.0
    for stage, j in enumerate(others):
        share = math.exp(float(logs[j] - rests[stage]))
        most = min(count, math.ceil(count * share + 10.0 * math.sqrt(count * share) + 16.0))
        times = np.arange(most + 1)
        if len(p) * len(times) > 8 * _MOST:
            return None
        after = left[:, None] - times
        possible = np.maximum(after, 0)
        log_p = factorials[left][:, None] - factorials[times] - factorials[possible]
        log_p += times * float(logs[j] - rests[stage])
        log_p += possible * float(rests[stage + 1] - rests[stage])
        found = np.where(after >= 0, p[:, None] * np.exp(log_p), 0.0)
        keep = found > _RARE
        missing += float(found[~keep].sum()) + _beyond(count * share, most, count)
        p, left = found[keep], after[keep]
        sums = (sums[:, None] + times * float(losses[j]))[keep]
        if len(p) > _MOST:
            return None
    return _Counted(sums + left * float(losses[last]), p, missing)


def _beyond(mean: float, most: int, count: int) -> float:
    """A bound on the probability that a binomial count of that mean is above ``most``: Chernoff's.

    Given the counts before, fewer draws are left: their mean is no larger.
    """
    if most >= count:
        return 0.0
    first = most + 1.0
    return math.exp(min(0.0, first - mean + first * math.log(mean / first)))


def _counting_error(mass: Floats, count: int) -> float:
    """A bound on the rounding of counts' probabilities, relative to each."""
    likeliest, least = -math.log(float(mass.max())), -math.log(float(mass.min()))
    per_draw = len(mass) * (1.0 + likeliest) + 4.0 + least
    choices = min(len(mass), count) * float(gammaln(count + 1.0))
    return 8.0 * _UNIT * (count * per_draw + choices) if count > 1 else 0.0
