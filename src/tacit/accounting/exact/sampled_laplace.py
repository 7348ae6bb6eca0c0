"""Poisson samples of Laplace noise: the loss, its transform at any frequency, one's profile.

With neighbours d scales apart Q has half of its mass at the base's loss -d, ½·e^{-d} at d, and the
density ¼·e^{-(d+l)/2} between; the sample's loss is L = ln w(l), w(l) = 1 - q + q·e^l, or -L under
Q. So M(z) is two atoms and an integral of ¼·e^{-(d+l)/2}·w^a, a = z + 1 or -z.

**At low frequencies** by n nodes of Gauss and Legendre on panels. Each is off by at most
64/15·m·ρ²⁻²ⁿ/(1 - ρ⁻²) times half its width, if |integrand| ≤ m in the ellipse whose half-axes add
up to ρ such halves (Trefethen 2008, Theorem 4.5). At x + iv, |v| < π/2, there
1 - q + q·e^x·cos v ≤ |w| ≤ w(x), and |arg w| is largest at the largest x and v.

**At high frequencies** from the ends. As a function of L = ln w the tilted density is, up to a
constant, h(L) = e^{bL}·(e^L - (1-q))^{-3/2}, b = z₀ + 2, or with L for -L, b = 1 - z₀. By the
binomial series that is a sum of exponentials with coefficients that are all positive, so that
|h(L + ζ)| ≤ h(L + Re ζ), and h is bounded on vertical lines. Hence, by Cauchy,

    ∫ h(L)·e^{iuL} dL = i·(e^{iuL₋}·J(L₋) - e^{iuL₊}·J(L₊)) ,   J(L) = ∫₀^∞ h(L + is)·e^{-us} ds ,

and |J(L)| ≤ h(L)/u. With h(L + ζ) = Σ t_k·ζᵏ, J = Σ_{k<m} t_k·iᵏ·k!/u^{k+1} but for a rest: with
G the larger of h(L ± r), by Cauchy's estimate the series' rest is at most 2G·(s/r)^m below s = r/2;
beyond, h and the sum are at most 3G·(2s/r)^m together. Integrated against e^{-us} that is at most
G/u·(2·m!/(ur)^m + 6·e^{-ur/2}) for ur ≥ 4m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.atoms import AtomLoss, sampled_loss, tilt_atoms
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, TooSlow
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from tacit.accounting.exact.atoms import TiltedAtoms
    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.transforms import Complexes, Floats

_UNIT = 2.0**-53
_NODES, _RHO = 16, 4.0
_X, _WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
_SHAPE = 64.0 / 15.0 * _RHO ** (2 - 2 * _NODES) / (1.0 - _RHO**-2)
_PANEL, _TURN = 0.8, 8.0  # what the base's loss, and the phase, may move by on a panel
_MOST_QUADRATURE, _PLACES = 300_000, 401
_TERMS, _FAR = 16, 80.0  # of a series in 1/u, and u times its radius from where it is summed
_FACTORIALS = np.array([float(math.factorial(k)) for k in range(_TERMS)])
_NEAR, _STEEP = 0.6, 2.0  # the radius: of the distance to where h is infinite; times b, at most


@dataclass(frozen=True)
class SampledLaplaceLoss:
    """The loss of a Poisson sample of Laplace noise, with neighbours ``distance`` scales apart."""

    distance: float
    rate: float
    reverse: bool = False

    @property
    def largest(self) -> float:
        """The supremum of the loss, rounded up."""
        d = -self.distance if self.reverse else self.distance
        loss = float(sampled_loss(np.array([d]), self.rate)[0])
        share = math.exp(min(math.log(self.rate) + d - loss, 0.0))
        return abs(loss) * (1.0 + 8.0 * _UNIT) + 4.0 * _UNIT * share * self.distance

    @property
    def rough_variance(self) -> float:
        """The variance of the loss."""
        return self.real_line(0.0, 0.0).moments(0.0)[2]

    def real_line(self, reach: float, digits: float) -> AtomLoss:  # noqa: ARG002
        """Nodes that serve every tilt up to ``reach``."""
        return _line(self, 2.0 ** math.ceil(math.log2(reach + 1.0)))

    def tilted(
        self,
        tilt: float,
        frequency: float,
        digits: float,  # noqa: ARG002
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedLaplace:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        return tilt_laplace(self, tilt, frequency)

    def atoms(self, tilt: float, frequency: float) -> AtomLoss:
        """The two atoms and the nodes between, for tilts and frequencies up to these.

        Raises:
            TooSlow: if that takes too many nodes.
        """
        edges = self._edges(tilt, frequency)
        half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
        loss = (middle[:, None] + half[:, None] * _X).ravel()
        d = self.distance
        q = 0.25 * np.exp(-0.5 * (d + loss)) * np.multiply.outer(half, _WEIGHTS).ravel()
        loss = np.concatenate([[-d], loss, [d]])
        q = np.concatenate([[0.5], q, [0.5 * math.exp(-d)]])
        sampled = sampled_loss(loss, self.rate)
        masses = q if self.reverse else q * np.exp(sampled)
        return AtomLoss(
            -sampled if self.reverse else sampled,
            masses,
            _UNIT * (32.0 + 8.0 * d + 4.0 * np.abs(sampled)),
            _UNIT
            * (8.0 * np.abs(sampled) + 4.0 * np.abs(loss) * self.rate * np.exp(loss - sampled)),
            self.largest,
            quadrature=self._quadrature(half, middle, tilt, frequency),
        )

    def ends(self) -> tuple[Floats, Floats]:
        """The two atoms: losses and ln of P's probabilities."""
        base = np.array([-self.distance, self.distance])
        log_q = math.log(0.5) - np.array([0.0, self.distance])
        sampled = sampled_loss(base, self.rate)
        return (-sampled, log_q) if self.reverse else (sampled, log_q + sampled)

    def _edges(self, tilt: float, frequency: float) -> Floats:
        """Panels over each of which neither the base's loss nor the phase moves far."""
        d, turns = self.distance, (tilt + 1.0 + frequency) / _TURN
        rough = np.linspace(-d, d, _PLACES)
        place = (rough + d) / _PANEL + turns * sampled_loss(rough, self.rate)
        place -= place[0]
        count = math.ceil(float(place[-1])) + 1
        if count * len(_X) > _MOST_QUADRATURE:
            raise TooSlow
        edges: Floats = np.interp(np.linspace(0.0, float(place[-1]), count + 1), place, rough)
        edges[0], edges[-1] = -d, d
        return edges

    def _quadrature(self, half: Floats, middle: Floats, tilt: float, frequency: float) -> float:
        """A bound on the error relative to M(tilt), at any smaller tilt and frequency, too.

        What the integrand grows by in an ellipse is taken relative to its least value on the panel.
        """
        tall, reach = 0.5 * half * (_RHO - 1.0 / _RHO), 0.5 * half * (_RHO + 1.0 / _RHO)
        if float(tall.max()) > 1.5:
            raise TooSlow
        left, right = middle - reach, middle + reach
        grown = 0.5 * (reach + half)  # of exp(-l/2)
        moved = self.rate * np.exp(np.minimum(right, 700.0))
        turned = np.arctan2(moved * np.sin(tall), 1.0 - self.rate + moved * np.cos(tall))
        if self.reverse:
            least = 1.0 - self.rate + self.rate * np.exp(left) * np.cos(tall)
            grown += tilt * (sampled_loss(middle + half, self.rate) - np.log(least))
        else:
            rise = sampled_loss(right, self.rate) - sampled_loss(middle - half, self.rate)
            grown += (tilt + 1.0) * rise
        return 0.5 * _SHAPE * math.exp(min(float((grown + frequency * turned).max()), 700.0))


@lru_cache(maxsize=16)
def _line(loss: SampledLaplaceLoss, reach: float) -> AtomLoss:
    return loss.atoms(reach, 0.0)


@dataclass(frozen=True, eq=False)
class End:
    """One end of the loss: an atom, and the density that begins there.

    Attributes:
        place: The loss there, less the centre.
        mass: The atom's tilted mass.
        density: h there, tilted.
        slope: e^L/(e^L - (1-q)) there.
        power: b.
        sign: -1 if the loss is -L, and 1 otherwise.
        radius: r.
        most: G over h.
    """

    place: float
    mass: float
    density: float
    slope: float
    power: float
    sign: float
    radius: float
    most: float

    @cached_property
    def _series(self) -> tuple[Floats, Floats]:
        """k!·tₖ/h, upwards, and bounds on their errors."""
        terms, sizes = _series(self.slope, self.power)
        k = np.arange(_TERMS)
        errors = 32.0 * _UNIT * (k + 1.0) ** 2 * sizes
        return terms * self.sign**k * _FACTORIALS, errors * _FACTORIALS

    def series(self, frequencies: Floats) -> Complexes:
        """J, in powers of i/u."""
        terms, inverse = self._series[0], 1.0 / frequencies
        square = inverse * inverse
        real, imaginary = np.zeros(len(square)), np.zeros(len(square))
        for k in range(_TERMS - 2, -1, -2):  # i²ᵏ = (-1)ᵏ
            real = terms[k] - square * real
            imaginary = terms[k + 1] - square * imaginary
        return np.asarray(self.density * inverse * (real + 1j * (inverse * imaginary)))

    def series_error(self, frequencies: Floats) -> Floats:
        """A bound on the error of ``series`` at frequencies from ``_FAR`` over the radius on."""
        first = float(frequencies[0])
        terms = float((self._series[1] * first ** -np.arange(float(_TERMS))).sum())
        turn = first * self.radius
        rest = 2.0 * math.factorial(_TERMS) * turn**-_TERMS + 6.0 * math.exp(-0.5 * turn)
        found: Floats = self.density / frequencies * (terms + self.most * rest + 16.0 * _UNIT)
        return found


@dataclass(frozen=True, eq=False)
class TiltedLaplace:
    """M of a Poisson sample of Laplace noise on one vertical line.

    Attributes:
        low: Atoms that stand for it at low frequencies.
        ends: Its lower and its upper end, from which it is known at high ones.
        last: The frequency up to which it is low.
    """

    low: TiltedAtoms
    ends: tuple[End, End]
    last: float

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return self.low.log_mgf

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""
        return self.low.log_mgf_error

    @property
    def centre(self) -> float:
        """The mean of the tilted loss."""
        return self.low.centre

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""
        return self.low.size

    def _split(self, frequencies: Floats) -> int:
        """How many of the first frequencies are low."""
        return int(np.searchsorted(frequencies, self.last, side="right"))

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        few = self._split(frequencies)
        return self._joined(frequencies, few, self.low.ratio(frequencies[:few]))

    def ratio_at(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """``ratio`` at frequencies that need not be equally spaced."""
        few = self._split(frequencies)
        return self._joined(frequencies, few, self.low.ratio_at(frequencies[:few]))

    def _joined(
        self, frequencies: Floats, few: int, low: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """What is known of the first ``few``, and the others from the ends."""
        real, imaginary = low
        if few == len(frequencies):
            return real, imaginary
        far = frequencies[few:]
        lower, upper = self.ends
        found = np.exp(1j * lower.place * far) * (lower.mass + 1j * lower.series(far))
        found += np.exp(1j * upper.place * far) * (upper.mass - 1j * upper.series(far))
        return np.append(real, found.real - 1.0), np.append(imaginary, found.imag)

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        few = self._split(frequencies)
        return self._error(frequencies, few, self.low.ratio_error(frequencies[:few]))

    def error_at(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio_at``."""
        few = self._split(frequencies)
        return self._error(frequencies, few, self.low.error_at(frequencies[:few]))

    def _error(self, frequencies: Floats, few: int, known: NodeErrors) -> NodeErrors:
        if few == len(frequencies):
            return known
        far = frequencies[few:]
        lower, upper = self.ends
        rest = lower.series_error(far) + upper.series_error(far)
        size = lower.mass + upper.mass + (lower.density + upper.density) / far
        given = float(self.low.mass_errors.max()) + 32.0 * _UNIT * (1.0 + abs(self.log_mgf))
        moved = float(self.low.spread_errors.max()) + 8.0 * _UNIT * max(
            abs(lower.place), abs(upper.place)
        )
        rounding = rest + size * (given + moved * far)
        return NodeErrors(known.truncation, known.quadrature, np.append(known.rounding, rounding))

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency."""
        lower, upper = self.ends
        faded = (lower.density + upper.density) / max(frequency, 1e-300)
        error = self.low.log_mgf_error
        off = float(error.truncation + error.quadrature + error.rounding) + 1e-9
        return min(0.0, math.log(lower.mass + upper.mass + faded) + off)


def tilt_laplace(loss: SampledLaplaceLoss, tilt: float, frequency: float) -> TiltedLaplace:
    """Nodes for low frequencies up to ``frequency``, and series at both ends for those above."""
    base = np.array([-loss.distance, loss.distance])
    radii = [_radius(loss, tilt, one) for one in base.tolist()]
    last = _FAR / min(radii)
    low = tilt_atoms(loss.atoms(tilt, min(frequency, last)), tilt)
    losses, log_p = loss.ends()
    masses = np.exp(log_p + tilt * losses - low.log_mgf)
    places = losses - low.centre
    ends = [
        _end(loss, low, place, mass, one, radius)
        for place, mass, one, radius in zip(
            places.tolist(), masses.tolist(), base.tolist(), radii, strict=True
        )
    ]
    if loss.reverse:
        ends.reverse()
    return TiltedLaplace(low, (ends[0], ends[1]), last)


def _power(loss: SampledLaplaceLoss, tilt: float) -> float:
    """The exponent b."""
    return 1.0 - tilt if loss.reverse else tilt + 2.0


def _radius(loss: SampledLaplaceLoss, tilt: float, base: float) -> float:
    """r: next to the end whose base's loss is ``base``."""
    away = math.log1p(loss.rate / (1.0 - loss.rate) * math.exp(base))  # from ln(1 - q)
    return min(_NEAR * away, _STEEP / (1.0 + abs(_power(loss, tilt))))


def _end(
    loss: SampledLaplaceLoss,
    low: TiltedAtoms,
    place: float,
    mass: float,
    base: float,
    radius: float,
) -> End:
    rate, power = loss.rate, _power(loss, low.tilt)
    sampled = float(sampled_loss(np.array([base]), rate)[0])
    # e^L - (1-q) = q·e^l, and of h itself: ¼·e^{-d/2}·√q·(q·e^l)^{-3/2}·e^{bL}.
    log_density = math.log(0.25) - 0.5 * loss.distance - math.log(rate) - 1.5 * base
    log_density += power * sampled - low.log_mgf
    away = math.log1p(rate / (1.0 - rate) * math.exp(base))
    most = max(_grown(away, power, -radius), _grown(away, power, radius))
    return End(
        place=place,
        mass=mass,
        density=math.exp(log_density),
        slope=math.exp(sampled - base) / rate,
        power=power,
        sign=-1.0 if loss.reverse else 1.0,
        radius=radius,
        most=most * (1.0 + 1e-6),
    )


def _grown(away: float, power: float, step: float) -> float:
    """h(L + step)/h(L), L being ``away`` from ln(1 - q)."""
    return math.exp(power * step - 1.5 * math.log(math.expm1(away + step) / math.expm1(away)))


def _series(slope: float, power: float) -> tuple[Floats, Floats]:
    """tₖ/h of h = e^{bL}·(e^L - c)^{-3/2}, and the same with all signs positive.

    With ``slope`` s = e^L/(e^L - c), ψ = s·e^ζ/(1 + s·(e^ζ - 1)) is the slope at L + ζ, and
    h' = (b - 3/2·ψ)·h.
    """
    parts = [slope / math.factorial(k) for k in range(_TERMS)]
    psi, psi_size = [slope], [slope]
    for k in range(1, _TERMS):
        psi.append(parts[k] - math.fsum(parts[j] * psi[k - j] for j in range(1, k + 1)))
        psi_size.append(parts[k] + math.fsum(parts[j] * psi_size[k - j] for j in range(1, k + 1)))
    found, sizes = [1.0], [1.0]
    for k in range(_TERMS - 1):
        signed = [-1.5 * psi[j] + (power if j == 0 else 0.0) for j in range(k + 1)]
        positive = [1.5 * psi_size[j] + (abs(power) if j == 0 else 0.0) for j in range(k + 1)]
        found.append(math.fsum(signed[j] * found[k - j] for j in range(k + 1)) / (k + 1))
        sizes.append(math.fsum(positive[j] * sizes[k - j] for j in range(k + 1)) / (k + 1))
    return np.array(found), np.array(sizes)


@dataclass(frozen=True)
class SampledLaplaceProfile:
    """δ(ε) of one Poisson sample of Laplace noise.

    L > ε where the base's loss is above c = ln(1 + (e^ε - 1)/q); there P₀ has 1 - ½·e^{(c-d)/2} and
    Q ½·e^{-(c+d)/2}, so that δ = q·(1 - e^{(c-d)/2}). The other way round it is
    q·e^{ε+c}·(1 - e^{-(c+d)/2}), with c = ln(1 + (e^{-ε} - 1)/q).
    """

    loss: SampledLaplaceLoss

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        q, d, reverse = self.loss.rate, self.loss.distance, self.loss.reverse
        if epsilon > self.loss.largest * (1.0 + 1e-13):
            return Enclosure(0.0, ErrorTerms(), 0.0)
        odds = math.expm1(-epsilon if reverse else epsilon) / q
        cut = math.log1p(odds) if odds > -1.0 else -math.inf
        if (cut <= -d) if reverse else (cut >= d):
            # By rounding only: next to the largest loss.
            return Enclosure(0.0, ErrorTerms(truncation=64.0 * _UNIT * q * (1.0 + d)), 0.0)
        if reverse:
            grown = q * math.exp(epsilon)
            value = grown * math.exp(cut) * -math.expm1(-0.5 * (cut + d))
            below, other = 1.0 - 0.5 * math.exp(-0.5 * (d + cut)), 0.5 * math.exp(0.5 * (cut - d))
            slope = -math.exp(epsilon) * ((1.0 - q) * below + q * other)
        else:
            grown = q
            value = q * -math.expm1(0.5 * (cut - d))
            slope = -0.5 * math.exp(epsilon - 0.5 * (d + cut))
        # A cut errs by its own size and by that of what it is the logarithm of.
        rounding = 16.0 * _UNIT * (value * (1.0 + epsilon) + grown * (2.0 + abs(cut) + d))
        return Enclosure(max(0.0, value), ErrorTerms(rounding=rounding), slope)

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        low, high = 0.0, self.loss.largest
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = self.enclose(middle).estimate > delta
            low, high = (middle, high) if above else (low, middle)
        return low
