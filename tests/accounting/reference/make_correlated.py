"""Makes reference values of runs with correlated noise.  It imports nothing of tacit.

    python make_correlated.py      # writes correlated.json beside this script; needs mpmath

A run of n steps releases G + gain·C⁻¹Z, and is as private as C G / gain + Z. Everything is done in 40
digits: C is written out as a matrix from its coefficients, and the record adds a gradient of norm 1
in the same direction whenever it takes part.

"whole groups": it takes part in the steps start, start + groups, …; the answer is moved by the norm μ
of the sum of those columns, the largest of all starts, and δ(ε) = Φ(μ/2σ - εσ/μ) - e^ε Φ(-μ/2σ - εσ/μ).

"coins": columns have norm 1 and their bands do not meet, so that one or two turns of a group are one
or two Gaussians that are moved by 1 with probability q. One turn has a closed form; of two, the
second one's closed form is integrated over the first one's outcome, in both directions (where
"add" can be the larger one at all).
"""

from __future__ import annotations

import json
from pathlib import Path

from mpmath import erfc, exp, findroot, inf, log, matrix, mp, mpf, quad, sqrt

mp.dps = 40
HERE = Path(__file__).parent
DIGITS = 25

BANDED = {
    "two": ["1", "0.75"],
    "three": ["1", "0.7", "0.4"],
    "five": ["1", "0.875", "0.75", "0.5", "0.25"],
}
INVERSE = {
    "one back": ["1", "-0.75"],
    "three back": ["1", "-0.5", "-0.25", "-0.125"],
}
BUFFERED = {"buffers": (["-0.0625", "-0.25"], ["0.875", "0.5"])}


def upper(x: mpf) -> mpf:
    """The standard normal mass above x."""
    return erfc(x / sqrt(2)) / 2


def below(x: mpf) -> mpf:
    return upper(-x)


# ---- strategies, as matrices


def toeplitz(first: list[mpf], n: int) -> matrix:
    return matrix(n, n) + matrix(
        [[first[i - j] if 0 <= i - j < len(first) else mpf(0) for j in range(n)] for i in range(n)]
    )


def column_norm(c: matrix, j: int) -> mpf:
    return sqrt(sum(c[i, j] ** 2 for i in range(c.rows)))


def banded(name: str, n: int) -> matrix:
    c = toeplitz([mpf(one) for one in BANDED[name]], n)
    norms = [column_norm(c, j) for j in range(n)]
    return matrix([[c[i, j] / norms[j] for j in range(n)] for i in range(n)])


def from_inverse(first: list[mpf], n: int) -> matrix:
    c = toeplitz(first, n) ** -1
    norm = column_norm(c, 0)
    return matrix([[c[i, j] / norm for j in range(n)] for i in range(n)])


def strategy(kind: str, name: str, n: int) -> matrix:
    if kind == "Banded":
        return banded(name, n)
    if kind == "Buffered":
        scales, decays = ([mpf(one) for one in part] for part in BUFFERED[name])
        tail = [sum(w * d**k for w, d in zip(scales, decays, strict=True)) for k in range(n - 1)]
        return from_inverse([mpf(1), *tail], n)
    return from_inverse([mpf(one) for one in INVERSE[name]], n)


def moved(c: matrix, groups: int) -> mpf:
    """The largest norm of a sum of columns ``groups`` apart."""
    found = []
    for start in range(min(groups, c.rows)):
        rows = (sum(c[i, j] for j in range(start, c.rows, groups)) for i in range(c.rows))
        found.append(sqrt(sum(one**2 for one in rows)))
    return max(found)


# ---- δ(ε)


def gaussian_delta(mu: mpf, epsilon: mpf) -> mpf:
    return upper(epsilon / mu - mu / 2) - exp(epsilon) * upper(epsilon / mu + mu / 2)


def odds(q: mpf, sigma: mpf, y: mpf) -> mpf:
    """The likelihood ratio of a turn with the record and without, at y standard deviations."""
    return 1 - q + q * exp(y / sigma - 1 / (2 * sigma**2))


def remove_once(q: mpf, sigma: mpf, t: mpf) -> mpf:
    """E[(A - t)₊] of the ratio A, without the record."""
    if t <= 1 - q:
        return 1 - t
    y = sigma * log((t - 1 + q) / q) + 1 / (2 * sigma)
    return (1 - q - t) * upper(y) + q * upper(y - 1 / sigma)


def add_once(q: mpf, sigma: mpf, t: mpf) -> mpf:
    """E[(1 - t A)₊], without the record."""
    if 1 / t <= 1 - q:
        return mpf(0)
    y = sigma * log((1 / t - 1 + q) / q) + 1 / (2 * sigma)
    return (1 - t * (1 - q)) * below(y) - t * q * below(y - 1 / sigma)


def sampled_delta(q: mpf, sigma: mpf, turns: int, direction: str, epsilon: mpf) -> mpf:
    once = remove_once if direction == "remove" else add_once
    if turns == 1:
        return once(q, sigma, exp(epsilon))

    def inner(y: mpf) -> mpf:
        ratio, density = odds(q, sigma, y), exp(-(y**2) / 2) / sqrt(2 * mp.pi)
        if direction == "remove":
            return density * ratio * once(q, sigma, exp(epsilon) / ratio)
        return density * once(q, sigma, exp(epsilon) * ratio)

    # Where the second turn's threshold meets 1 - q, the integrand has a kink.
    edge = exp(epsilon) / (1 - q) if direction == "remove" else exp(-epsilon) / (1 - q)
    kink = sigma * log((edge - 1 + q) / q) + 1 / (2 * sigma) if edge > 1 - q else -inf
    ends = [mpf(one) for one in range(-16, 17, 8)] + [16 + 2 / sigma]
    ends = sorted({*ends, *([kink] if -16 < kink < 16 + 2 / sigma else [])})
    return quad(inner, ends)


def solved(delta_of: object, delta: mpf) -> mpf:
    """The ε at which δ(ε) falls to ``delta``; by bisection, then by secants."""
    low, high = mpf(0), mpf(1)
    if delta_of(low) <= delta:  # type: ignore[operator]
        return mpf(0)
    while delta_of(high) > delta:  # type: ignore[operator]
        high *= 2
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)  # type: ignore[operator]
    return findroot(lambda e: log(delta_of(e)) - log(delta), (low, high), tol=mpf(10) ** -54)  # type: ignore[operator]


def text(value: mpf) -> str:
    return mp.nstr(value, DIGITS)


def whole_groups() -> list[dict[str, object]]:
    rows = []
    kinds = [("Banded", one) for one in BANDED] + [("Buffered", one) for one in BUFFERED]
    kinds += [("InverseBanded", one) for one in INVERSE]
    for at, (kind, name) in enumerate(kinds):
        for steps, groups, sigma, delta in (
            (12, 4, 2.0, 1e-5), (30, 7, 4.0, 1e-6), (40, 40, 1.0, 1e-8), (9, 1, 16.0, 1e-5),
        ):  # fmt: skip
            sigma = sigma * (1 + at / 16)
            mu = moved(strategy(kind, name, steps), groups) / mpf(sigma)
            epsilon = solved(lambda e, mu=mu: gaussian_delta(mu, e), mpf(delta))
            rows.append(
                {
                    "kind": kind, "name": name, "steps": steps, "groups": groups, "sigma": sigma,
                    "delta": delta, "epsilon": text(epsilon),
                }
            )  # fmt: skip
    return rows


def coins() -> list[dict[str, object]]:
    rows = []
    for name, steps, rate, sigma, delta in (
        ("two", 2, 0.05, 0.8, 1e-5), ("two", 1, 0.3, 1.5, 1e-6), ("two", 4, 0.1, 1.0, 1e-5),
        ("two", 3, 0.02, 0.7, 1e-6), ("three", 3, 0.01, 0.6, 1e-7), ("three", 6, 0.2, 1.25, 1e-5),
        ("three", 4, 0.25, 2.0, 1e-4), ("three", 5, 0.05, 1.0, 1e-8), ("five", 5, 0.15, 0.75, 1e-6),
        ("five", 10, 0.075, 0.9, 1e-5), ("five", 8, 0.19, 3.0, 1e-5), ("five", 7, 0.001, 0.5, 1e-6),
    ):  # fmt: skip
        bands = len(BANDED[name])
        turns, q = -(-steps // bands), mpf(rate * bands)
        found = []
        for direction in ("remove", "add"):
            # Without the record a turn's ratio is at least 1 - q: so large is ε under "add" at most.
            if direction == "add" and -turns * log(1 - q) < found[0]:
                break
            found.append(
                solved(
                    lambda e, d=direction, q=q, t=turns, s=sigma: sampled_delta(q, mpf(s), t, d, e),
                    mpf(delta),
                )
            )
        rows.append(
            {
                "name": name, "steps": steps, "rate": rate, "sigma": sigma, "delta": delta,
                "turns": turns, "epsilon": text(max(found)), "epsilon_remove": text(found[0]),
                "epsilon_add": text(found[1]) if len(found) > 1 else None,
            }
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    made = {
        "coefficients": {"Banded": BANDED, "InverseBanded": INVERSE, "Buffered": BUFFERED},
        "whole groups": whole_groups(),
        "coins": coins(),
    }
    (HERE / "correlated.json").write_text(json.dumps(made, indent=1) + "\n")
