"""Truths of hard corners of the accountant, by mpmath and no code of tacit's.

    python benchmarks/accounting_rare_truth.py [--out tests/accounting/reference/rare.json]

Rare sampling (q from 1e-6 to 1e-2) of Gaussian and discrete Gaussian noise, few steps, samples of
fixed size, and discrete Gaussian noise by itself. Needs mpmath (gmpy2 makes it ten times faster).

With P against Q the densities of one step, A = P/Q and L the sum of log A over the steps,
δ(ε) = P(L > ε) - e^ε·Q(L > ε). One step of a Gaussian has a closed form. Two steps are an integral
of it, δ₂(ε) = ∫ P(x)·δ₁(ε - log A(x)) dx. A few steps of the sampled discrete Gaussian are sums
over all outcomes, half of the steps against the other half. Discrete Gaussian noise by itself has a
loss on a lattice: the convolution is a product of whole numbers. Nothing is discretised but the one
integral, which is computed twice, by different rules on different panels; both must agree to
AGREEMENT digits.

Samples of ``size`` out of ``population`` records attain the pair of Poisson sampling at the rate
size/population, at the distance 2: let all other records add -1, and the record in question 1, or
(its neighbour) -1 or nothing, for then another one is drawn. Under add-remove that is the worst
there is; under replace-one, for several steps, the truth may be above it.
"""

import argparse
import itertools
import json
import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from mpmath import erfc, exp, expm1, inf, libmp, log, mp, mpf, pi, quad, sqrt
from mpmath.calculus.quadrature import GaussLegendre

DIGITS = 30  # stored
AGREEMENT = 27  # of two computations, at least
WORKING = 60
Direction = str  # "remove": P against Q; "add": Q against P


# ---- one step of a Gaussian at a distance of 1, sampled at the rate q


def gaussian_delta(mu: mpf, epsilon: mpf) -> mpf:
    """Two Gaussians of deviation 1 at the distance mu, for any real ε (Balle & Wang 2018)."""

    def tail(x: mpf) -> mpf:
        return erfc(x / sqrt(mpf(2))) / 2

    return tail(epsilon / mu - mu / 2) - exp(epsilon) * tail(epsilon / mu + mu / 2)


def one_step(q: mpf, sigma: mpf, grown: mpf, direction: Direction) -> mpf:
    """δ₁ at the ε whose e^ε - 1 is ``grown``, for any real ε: so the smallest keep their digits.

    P - e^ε·Q = q·(N(1) - (1 + (e^ε - 1)/q)·N(0)), and Q - e^ε·P the same with the sign of the rest.
    """
    if direction == "remove":
        inner = 1 + grown / q
        return -grown if inner <= 0 else q * gaussian_delta(1 / sigma, log(inner))
    rest = q - grown * (1 - q)  # 1 - e^ε(1 - q)
    if rest <= 0:
        return mpf(0)
    return rest * gaussian_delta(1 / sigma, log((1 + grown) * q / rest))


# ---- two steps of it


def two_steps(q: mpf, sigma: mpf, epsilon: mpf, direction: Direction, variant: int) -> mpf:
    """∫ P(x)·δ₁(ε - log A(x)) dx, or the same with the signs turned; ``variant`` is the rule."""
    grown = expm1(epsilon)

    def rise(x: mpf) -> mpf:
        """A - 1, which keeps its digits where A is near 1."""
        return q * expm1((2 * x - 1) / (2 * sigma**2))

    def term(x: mpf) -> mpf:
        density = exp(-(x**2) / (2 * sigma**2)) / (sigma * sqrt(2 * pi))
        above = rise(x)
        if direction == "remove":  # e^{ε - log A} - 1
            return (
                density * (1 + above) * one_step(q, sigma, (grown - above) / (1 + above), direction)
            )
        return density * one_step(q, sigma, grown + above + grown * above, direction)

    # Where the inner δ₁ stops being a Gaussian's: beyond, one step alone decides.
    turned = (q / (1 - q) - grown) / (1 + grown)
    edge = (grown + q) / (1 - q) if direction == "remove" else turned
    if 1 + edge / q <= 0:
        return mpf(0)
    corner = sigma**2 * log(1 + edge / q) + mpf(1) / 2
    nats = (WORKING - 8) * log(mpf(10)) + 40
    far = sigma * sqrt(2 * nats)
    low, high = -far, (1 + far if direction == "remove" else min(far, corner))
    width = min(sigma, sigma**2, mpf(1)) * (mpf(9) / 10 if variant else mpf(7) / 10)
    return panels(term, low, high, corner, width, variant)


def panels(
    term: Callable[[mpf], mpf], low: mpf, high: mpf, corner: mpf, width: mpf, variant: int
) -> mpf:
    """Gauss and Legendre's rule on short panels; the double exponential one next to the corner.

    The corner is smooth, but not analytic: a Gaussian in the logarithm of the distance from it.
    """
    total = mpf(0)
    near = (corner - 2 * width, corner + 2 * width)
    for left, right in ((low, min(high, near[0])), (max(low, near[1]), high)):
        if right > left:
            count = int((right - left) / width) + 1
            ends = [left + (right - left) * k / count for k in range(count + 1)]
            total += sum(legendre(term, a, b, variant) for a, b in itertools.pairwise(ends))
    inside = [max(low, near[0]), corner, min(high, near[1])]
    ends = sorted({end for end in inside if low <= end <= high})
    if len(ends) > 1:
        total += quad(term, ends, method="tanh-sinh", maxdegree=10)
    return total


_NODES: dict[int, list[tuple[mpf, mpf]]] = {}


def legendre(term: Callable[[mpf], mpf], a: mpf, b: mpf, variant: int) -> mpf:
    degree = (4 if mp.dps > 20 else 2) + variant  # 24 or 48 nodes, or 6 for a rough guess
    if degree not in _NODES:
        _NODES[degree] = GaussLegendre(mp).calc_nodes(degree, mp.prec + 20)
    half, middle = (b - a) / 2, (a + b) / 2
    return half * sum(weight * term(middle + half * node) for node, weight in _NODES[degree])


# ---- steps of the discrete Gaussian, sampled: sums over the integers


def lattice_steps(q: mpf, sigma: mpf, steps: int, delta: mpf, direction: Direction) -> mpf:
    """ε of a few steps, by summing up all outcomes, half of the steps against the other half.

    Of the outcomes with L > ε, δ = a - e^ε·b is linear in e^ε: the next ε solves it.
    """
    kinds = outcomes(q, sigma, direction)
    half, rest = several(kinds, steps // 2), several(kinds, steps - steps // 2)
    rest.sort()
    losses = [loss for loss, _, _ in rest]
    above = [
        [*list(itertools.accumulate(one[side] for one in reversed(rest)))[::-1], mpf(0)]
        for side in (1, 2)
    ]

    def exceeding(threshold: mpf) -> tuple[mpf, mpf]:
        """P(L > threshold) and Q(L > threshold)."""
        places = [bisect_right(losses, threshold - loss) for loss, _, _ in half]
        first, second = (
            mp.fsum(one[side + 1] * above[side][at] for one, at in zip(half, places, strict=True))
            for side in (0, 1)
        )
        return first, second

    return newton(exceeding, delta)


def outcomes(q: mpf, sigma: mpf, direction: Direction) -> list[tuple[mpf, mpf, mpf]]:
    """The loss of each outcome of one step, and its chance on either side."""
    reach = int(sigma * sqrt(2 * (WORKING - 10) * log(mpf(10)))) + 3
    points = range(-reach, reach + 2)
    base = [exp(-(mpf(k) ** 2) / (2 * sigma**2)) for k in points]
    total = 1 + 2 * mp.nsum(lambda k: exp(-(k**2) / (2 * sigma**2)), [1, inf])
    found = []
    for k, weight in zip(points, base, strict=True):
        ratio, plain = 1 + q * expm1((2 * mpf(k) - 1) / (2 * sigma**2)), weight / total
        sides = (log(ratio), plain * ratio, plain)
        found.append(sides if direction == "remove" else (-sides[0], sides[2], sides[1]))
    return found


def several(kinds: list[tuple[mpf, mpf, mpf]], steps: int) -> list[tuple[mpf, mpf, mpf]]:
    """The same of that many steps; orders of the same outcomes count as one."""
    found = []
    for chosen in itertools.combinations_with_replacement(range(len(kinds)), steps):
        orders = math.factorial(steps)
        for count in Counter(chosen).values():
            orders //= math.factorial(count)
        picked = [kinds[place] for place in chosen]
        found.append(
            (
                mp.fsum(one[0] for one in picked),
                orders * mp.fprod(one[1] for one in picked),
                orders * mp.fprod(one[2] for one in picked),
            )
        )
    return found


def newton(exceeding: Callable[[mpf], tuple[mpf, mpf]], delta: mpf) -> mpf:
    """The root of a convex, falling δ(ε) from the left, where Newton's steps never go too far."""
    a, b = exceeding(mpf(0))
    if a - b <= delta:
        return mpf(0)
    epsilon = mpf(0)
    while True:
        a, b = exceeding(epsilon)
        following = log((a - delta) / b)
        if following - epsilon <= epsilon * mpf(10) ** -(WORKING - 12):
            return following
        epsilon = following


# ---- the discrete Gaussian by itself: whole numbers


def plain_lattice(sigma: float, moved: int, steps: int, delta: mpf) -> mpf:
    """The sum X of T draws has the loss (2·moved·X - T·moved²)/2σ²; its law is a power.

    Weights are whole numbers of 2^-bits, and a product of the two numbers that hold them in fields
    wide enough is their convolution.
    """
    bits = 480
    with mp.workprec(bits + 40):
        wide = mpf(sigma)
        reach = int(wide * sqrt(2 * bits * log(mpf(2)))) + 1
        weights = [int(mp.floor(mp.ldexp(exp(-(mpf(k) ** 2) / (2 * wide**2)), bits)))
                   for k in range(-reach, reach + 1)]  # fmt: skip
        law = power(weights, steps)
        total = mpf(sum(law))
        first = -reach * steps
        tails = list(itertools.accumulate(reversed(law)))[::-1]  # of X ≥ first + place

        def at_least(place: int) -> mpf:
            if place <= 0:
                return mpf(1)
            return mpf(tails[place]) / total if place < len(tails) else mpf(0)

        def exceeding(epsilon: mpf) -> tuple[mpf, mpf]:
            """X > place; under P, X is larger by T·moved."""
            limit = (2 * wide**2 * epsilon + steps * moved**2) / (2 * moved)
            place = int(mp.floor(limit)) + 1 - first
            return at_least(place - steps * moved), at_least(place)

        return newton(exceeding, delta)


def power(weights: list[int], steps: int) -> list[int]:
    """The ``steps``-fold convolution, by one power of one number."""
    length = steps * (len(weights) - 1) + 1
    field = (max(weights).bit_length() + len(weights).bit_length()) * steps + 8
    width = (field + 7) // 8
    packed = int.from_bytes(b"".join(w.to_bytes(width, "little") for w in weights), "little")
    raised = int(libmp.MPZ(packed) ** steps)
    data = raised.to_bytes(width * length + width, "little")
    return [int.from_bytes(data[width * k : width * (k + 1)], "little") for k in range(length)]


# ---- roots, and the settings


def gaussian_steps(
    q: mpf, sigma: mpf, steps: int, delta: mpf, direction: Direction
) -> tuple[mpf, float]:
    """ε, and the digits to which two computations agree."""
    if steps == 1:
        with mp.workdps(2 * WORKING):
            exact = root(lambda e: one_step(q, sigma, expm1(e), direction), delta)
        other = root(lambda e: one_step(q, sigma, expm1(e), direction), delta)
        return exact, 99.0 if exact == other else digits((exact - other) / exact)
    with mp.workdps(15):
        rough = root(lambda e: two_steps(q, sigma, e, direction, 0), delta)
    if rough == 0:
        return rough, 99.0
    exact, slope = polished(lambda e: two_steps(q, sigma, e, direction, 1), delta, rough)
    gap = log(two_steps(q, sigma, exact, direction, 0) / delta)  # the other rule's
    return exact, digits(gap / slope / exact)


def digits(error: mpf) -> float:
    return 99.0 if error == 0 else float(-mp.log10(abs(error)))


def polished(value: Callable[[mpf], mpf], delta: mpf, guess: mpf) -> tuple[mpf, mpf]:
    """The root next to a good guess, by secants of log δ, and the slope there."""
    one, other = guess, guess * (1 + mpf(10) ** -9)
    at_one, at_other = (log(value(e) / delta) for e in (one, other))
    for _ in range(12):
        slope = (at_other - at_one) / (other - one)
        following = other - at_other / slope
        if abs(following - other) <= abs(other) * mpf(10) ** -(DIGITS + 8):
            return following, slope
        one, at_one, other, at_other = other, at_other, following, log(value(following) / delta)
    raise ArithmeticError("no convergence")


def root(value: Callable[[mpf], mpf], delta: mpf) -> mpf:
    """Where the falling ``value`` is ``delta``: secants of its logarithm, kept within a bracket."""
    goal = log(delta)

    def gap(epsilon: mpf) -> mpf:
        return log(max(value(epsilon), mpf(10) ** -400)) - goal

    if value(mpf(0)) <= delta:
        return mpf(0)
    high = mpf(1)
    while (at_high := gap(high)) > 0:
        high *= 2
    low = high / 8
    while (at_low := gap(low)) <= 0:  # ε may be of the order of q
        high, at_high, low = low, at_low, low / 8
    small = mpf(10) ** -(mp.dps * 3 // 4)
    previous = low
    for _ in range(400):
        middle = low - at_low * (high - low) / (at_high - at_low)
        if at_low > 5 or at_high < -5:  # far from straight
            middle = (low + high) / 2
        at_middle = gap(middle)
        if abs(middle - previous) <= middle * small or at_middle == 0:
            return middle
        previous = middle
        if at_middle > 0:  # Illinois: an end that stays counts half
            low, at_low, at_high = middle, at_middle, at_high / 2
        else:
            high, at_high, at_low = middle, at_middle, at_low / 2
    raise ArithmeticError("no convergence")


RATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def settings() -> Iterator[dict[str, Any]]:
    """All settings; δ is a share of q, so that ε is above 0."""
    shares = (1e-2, 1e-4, 1e-6)
    for k, (q, sigma) in enumerate(itertools.product(RATES, (0.5, 0.7, 1.0, 2.0, 5.0))):
        for share in (shares[k % 3], shares[(k + 1) % 3]):
            yield {
                "kind": "poisson-gaussian",
                "q": q,
                "sigma": sigma,
                "steps": 1,
                "delta": q * share,
            }
    few = [(0.5, 1), (0.5, 4), (0.5, 8), (0.9, 2), (0.9, 6), (2.0, 1), (2.0, 4)]
    for k, (q, (sigma, steps)) in enumerate(itertools.product(RATES, few)):
        yield {"kind": "poisson-discrete-gaussian", "q": q, "sigma": sigma, "steps": steps,
               "delta": q * shares[k % 3]}  # fmt: skip
    for k, (sigma, steps) in enumerate(
        itertools.product((0.3, 0.4, 0.5, 0.7, 1.0, 2.0, 7.5, 30.0), (1, 2, 6, 20))
    ):
        yield {"kind": "discrete-gaussian", "sigma": sigma, "sensitivity": 1 + k // 4 % 2,
               "steps": steps, "delta": (1e-3, 1e-5, 1e-9, 1e-12)[(k + k // 4) % 4]}  # fmt: skip
    sizes = ((1_000_000, 1), (50_000, 1), (60_000, 600), (1_000, 1), (300, 2), (10, 5))
    for k, (steps, (population, size), sigma) in enumerate(
        itertools.product((1, 2), sizes, (1.2, 3.0))
    ):
        delta = size / population * shares[k % 3]
        yield {"kind": "fixed-size-gaussian", "population": population, "size": size,
               "sigma": sigma, "steps": steps, "delta": delta}  # fmt: skip
    for k, (q, sigma) in enumerate(itertools.product(RATES, (0.6, 0.8, 1.0, 1.5, 3.0))):
        yield {"kind": "poisson-gaussian", "q": q, "sigma": sigma, "steps": 2,
               "delta": q * shares[k % 3]}  # fmt: skip


def truth(setting: dict[str, Any]) -> dict[str, Any]:
    """ε in each direction, as texts, and the digits to which they agree."""
    sigma, steps, delta = mpf(setting["sigma"]), setting["steps"], mpf(setting["delta"])
    if setting["kind"] == "discrete-gaussian":
        found = plain_lattice(setting["sigma"], setting["sensitivity"], steps, delta)
        return {"epsilon": text(found)}
    answers, agreement = {}, 99.0
    for direction in ("remove", "add"):
        if setting["kind"] == "poisson-discrete-gaussian":
            found = lattice_steps(mpf(setting["q"]), sigma, steps, delta, direction)
        elif setting["kind"] == "poisson-gaussian":
            found, agreed = gaussian_steps(mpf(setting["q"]), sigma, steps, delta, direction)
            agreement = min(agreement, agreed)
        else:
            rate = Fraction(setting["size"], setting["population"])
            q = mpf(rate.numerator) / rate.denominator
            found, agreed = gaussian_steps(q, sigma / 2, steps, delta, direction)
            agreement = min(agreement, agreed)
        answers[direction] = found
    if agreement < AGREEMENT:
        raise ArithmeticError(f"only {agreement:.1f} digits agree: {setting}")
    larger = max(answers.values())
    return {"epsilon": text(larger)} | {f"epsilon_{k}": text(v) for k, v in answers.items()}


def text(number: mpf) -> str:
    return mp.nstr(number, DIGITS, min_fixed=-inf, max_fixed=inf)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("tests/accounting/reference/rare.json"))
    arguments = parser.parse_args()
    mp.dps = WORKING
    known = json.loads(arguments.out.read_text())["settings"] if arguments.out.exists() else []
    kept, failed = [], []
    for setting in settings():
        began = time.process_time()
        stored = [one for one in known if setting.items() <= one.items()]
        try:
            kept.append(stored[0] if stored else setting | truth(setting))
        except ArithmeticError as error:
            failed.append(setting | {"why": str(error)})
        if not stored:
            print(f"{time.process_time() - began:6.1f} s  {setting}", flush=True)
            write(arguments.out, kept + [one for one in known if one not in kept], failed)
    write(arguments.out, kept, failed)
    print(f"{len(kept)} settings, {len(failed)} failed")


def write(out: Path, kept: list[dict[str, Any]], failed: list[dict[str, Any]]) -> None:
    """After every setting, so that whoever stops it goes on from there."""
    rows, lost = (",\n".join(map(json.dumps, some)) for some in (kept, failed))
    out.write_text(f'{{\n"settings": [\n{rows}\n],\n"failed": [{lost}]\n}}\n')


if __name__ == "__main__":
    main()
