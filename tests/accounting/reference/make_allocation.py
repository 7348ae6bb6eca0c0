"""Makes ``allocation.json``: ε of random allocation to 15 digits and more, removed and added.

With X = exp(Z/σ - 1/2σ²), Z ~ N(0, 1), and S the mean of t independent X, an epoch's likelihood
ratio under Q, the moments of the loss are E[S^(1+z)] (removed) and E[S^-z] (added). They are

    E[S^(n-ζ)] = 1/Γ(ζ)·∫ s^ζ·E[S^n·exp(-sS)] dy ,  s = e^(y-iθ) ,  Re ζ > 0 ,

and δ(ε) is the contour integral of their powers. Arb does the arithmetic; every integral is a
trapezoid sum whose step and range are chosen for about 25 digits, and all of it is done twice,
with other tilts, powers n, rays θ, lines Im z, steps and ranges. Both must agree to 15 digits.

    pip install python-flint
    python make_allocation.py
"""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from flint import acb, acb_mat, arb, ctx

ctx.prec = 200
HERE = Path(__file__).parent / "allocation.json"
DIGITS = 58.0  # -ln of what is left out
AGREE = 15
TERMS = 10  # of Taylor polynomials


@dataclass(frozen=True)
class Way:
    """One choice of everything that the answer must not depend on."""

    tilt: float
    order: int
    eta: float
    line: float
    finer: float


WAYS = (Way(1.3, 3, 0.05, 0.8, 1.0), Way(0.9, 4, 0.11, 0.6, 1.17))


class Moments:
    """E[S^w] on one line Re w, by one way."""

    def __init__(self, sigma: float, steps: int, epochs: int, removed: bool, way: Way) -> None:
        self.sigma, self.steps, self.way = arb(sigma), steps, way
        self.order = way.order if removed else 0
        self.zeta = way.order - 1 - arb(way.tilt) if removed else arb(way.tilt)
        spread = 1.0 / (sigma * math.sqrt(steps))
        self.reach = math.sqrt(2.0 * (DIGITS + 25.0) / epochs) / spread * way.finer
        self.eta = way.eta * min(1.0, 60.0 / self.reach)  # what is cancelled grows by exp(ηu)
        tail = max(math.sqrt(2.0 * DIGITS + 40.0) / spread, DIGITS / 3.0 + 5.0)
        self.step = arb(2.0 * math.pi / ((self.reach + tail) * way.finer))
        self._line(sigma)
        self._lay()

    def _line(self, sigma: float) -> None:
        shift = min(0.45 * math.pi * sigma, self.way.line)
        step = 2.0 * math.pi * shift / ((DIGITS + 10.0 + 2.0 * shift * shift) * self.way.finer)
        far = math.sqrt(2.0 * DIGITS + 20.0)
        first, last = math.floor(-far / step), math.ceil((far + self.order / sigma) / step)
        norm = arb(step) / (2 * arb.pi()).sqrt()
        rows, self.x = [], []
        for at in range(first, last + 1):
            z = acb(arb(step) * at, arb(shift))
            x = (z / self.sigma - 1 / (2 * self.sigma**2)).exp() / self.steps
            weight = (-z * z / 2).exp() * norm
            row = [weight]
            for k in range(1, self.order + 1):
                row.append(row[-1] * x / k)
            rows.append(row)
            self.x.append(x)
        self.weights = acb_mat(rows)

    def _transform(self, s: acb) -> acb:
        """E[S^n·exp(-sS)]."""
        kernel = acb_mat([[(-s * x).exp() for x in self.x]])
        found = kernel * self.weights
        first = found[0, 0]
        series = [found[0, k] / first for k in range(self.order + 1)]
        power = [acb(1)]
        for k in range(1, self.order + 1):
            total = acb(0)
            for j in range(1, k + 1):
                total += (self.steps * j - (k - j)) * series[j] * power[k - j]
            power.append(total / k)
        return power[-1] * math.factorial(self.order) * first**self.steps

    def _moments(self) -> list[arb]:
        """E[S^(n+k)]/k!·(-1)^k, F_n's Taylor coefficients, by E[X^k] = exp(k(k-1)/2σ²)."""
        last = self.order + TERMS
        series = [
            (arb(k * (k - 1)) / (2 * self.sigma**2)).exp()
            / (math.factorial(k) * arb(self.steps) ** k)
            for k in range(last + 1)
        ]
        power = [arb(1)]
        for k in range(1, last + 1):
            total = arb(0)
            for j in range(1, k + 1):
                total += (self.steps * j - (k - j)) * series[j] * power[k - j]
            power.append(total / k)
        return [
            power[self.order + k] * math.factorial(self.order + k) / math.factorial(k) * (-1) ** k
            for k in range(TERMS + 1)
        ]

    def _lay(self) -> None:
        """Nodes in y, from where F_n is its Taylor polynomial to where it has died."""
        self.taylor = self._moments()
        room = -DIGITS - 8.0 - float((abs(self.taylor[-1]) / self.taylor[0]).log().mid())
        lowest = math.floor(room / TERMS / float(self.step))
        theta = arb.pi() / 2 - arb(self.eta)
        ray = acb(0, -theta).exp()
        self.y: list[arb] = []
        self.values: list[acb] = []
        top = None
        at = math.ceil(math.log(4.0 / 1e-3) / float(self.step))
        done = 0
        for direction in (1, -1):
            index, small = (at, 0) if direction == 1 else (at - 1, 0)
            while small < 3 and index >= lowest:
                y = self.step * index
                value = self._transform(ray * y.exp()) * (self.zeta * y).exp() * self.step
                size = float(abs(value).log().mid())
                top = size if top is None else max(top, size)
                small = small + 1 if size < top - DIGITS - 8.0 else 0
                self.y.append(y)
                self.values.append(value)
                index += direction
                done += 1
                if done > 40_000:
                    raise ArithmeticError("too many nodes")
        self.theta, self.last = theta, self.step * index
        self.turns = [(-ray) ** k * (-1) ** k * one for k, one in enumerate(self.taylor[:-1])]

    def _below(self, zeta: acb) -> acb:
        """The nodes from ``last`` down: geometric series."""
        total = acb(0)
        for k, coefficient in enumerate(self.turns):
            power = zeta + k
            total += coefficient * (power * self.last).exp() / (1 - (-power * self.step).exp())
        return total * self.step

    def spectrum(self, step: float, count: int) -> list[acb]:
        """E[S^(n-ζ0+iu)] at u = 0, step, …"""
        fine = math.ceil(math.sqrt(count))
        low = acb_mat(
            [
                [value * acb(0, -arb(step) * k * y).exp() for k in range(fine)]
                for y, value in zip(self.y, self.values, strict=True)
            ]
        )
        rows = range(0, count, fine)
        table = acb_mat([[acb(0, -arb(step) * k * y).exp() for y in self.y] for k in rows]) * low
        found = []
        for k in range(count):
            zeta = acb(self.zeta, -arb(step) * k)
            factor = (acb(0, -1) * self.theta * zeta).exp() / zeta.gamma()
            found.append((table[k // fine, k % fine] + self._below(zeta)) * factor)
        return found


def loss(sigma: float, steps: int, epochs: int, delta: float, removed: bool, way: Way) -> arb:
    """ε at which δ(ε) = ``delta``; 0 if δ(0) is below."""
    moments = Moments(sigma, steps, epochs, removed, way)
    period = (DIGITS - math.log(delta)) / way.tilt * way.finer
    # Copies above ε: the loss passes ε + period with a chance that Chernoff bounds.
    step = 2.0 * math.pi / (period + 40.0)
    count = math.ceil(moments.reach / step) + 1
    found = moments.spectrum(step, count)
    terms = []
    for k, value in enumerate(found):
        z = acb(arb(way.tilt), arb(step) * k)
        one = (value if removed else value.conjugate()) ** epochs / (z * (z + 1))
        terms.append((z, one / 2 if k == 0 else one))
    scale = arb(step) / arb.pi()

    def at(epsilon: arb) -> arb:
        return scale * sum(((-z * epsilon).exp() * one).real for z, one in terms)

    goal = arb(delta)
    if at(arb(0)) < goal:
        return arb(0)
    low, high = arb(0), arb(1)
    while at(high) > goal:
        low, high = high, 2 * high
    for _ in range(30):
        middle = ((low + high) / 2).mid()
        low, high = (middle, high) if at(middle) > goal else (low, middle)
    one, other = low.mid(), high.mid()
    log_one, log_other = (at(one) / goal).log(), (at(other) / goal).log()
    for _ in range(8):
        if not (abs(log_other) > arb("1e-45")):
            break
        new = (other - log_other * (other - one) / (log_other - log_one)).mid()
        one, log_one, other, log_other = other, log_other, new, (at(new) / goal).log()
    return other.mid()


def settings() -> list[tuple[float, int, int, float]]:
    """Issue 22's, random ones, and some of many steps, which take minutes each."""
    found = [(1.0, 8, 1, 1e-8), (1.0, 64, 1, 1e-8), (0.65, 98, 20, 1e-5), (0.6, 234, 3, 1e-6),
             (2.0, 64, 1, 1e-8), (1.0, 128, 1, 1e-8), (1.0, 100, 10, 1e-5), (9.12, 12, 73, 1e-5)]  # fmt: skip
    draw = random.Random(22)
    while len(found) < 120:
        sigma = math.exp(draw.uniform(math.log(0.45), math.log(6.0)))
        steps = round(math.exp(draw.uniform(math.log(2), math.log(400))))
        epochs = round(math.exp(draw.uniform(0.0, math.log(1000))))
        delta = 10.0 ** -draw.uniform(3, 10)
        # Frequencies times nodes, about: the dearest would take minutes each.
        if sigma * sigma * steps < 60.0 and epochs / (sigma * sigma * steps) < 4.0:
            found.append((sigma, steps, epochs, delta))
    found += [(0.8, 10_000, 1, 1e-8), (0.8, 10_000, 10, 1e-8), (1.0, 1_000, 1, 1e-8),
              (1.0, 10_000, 10, 1e-8), (1.0, 10_000, 100, 1e-8), (2.0, 1_000, 10, 1e-6),
              (1.5, 10_000, 100, 1e-8), (8.0, 1_000, 100, 1e-5)]  # fmt: skip
    return sorted(found, key=lambda one: one[0] ** 2 * one[1])


def main() -> None:
    """Computes what is missing, and writes after each setting."""
    known = json.loads(HERE.read_text()) if HERE.exists() else {"settings": [], "failed": []}
    seen = {(one["sigma"], one["steps"], one["epochs"], one["delta"])
            for one in known["settings"] + known["failed"]}  # fmt: skip
    for setting in settings():
        if setting in seen:
            continue
        row = dict(zip(("sigma", "steps", "epochs", "delta"), setting, strict=True))
        try:
            for name, removed in (("remove", True), ("add", False)):
                pair = [loss(*setting, removed, way) for way in WAYS]
                off = abs(pair[0] - pair[1])
                if not off < arb(10) ** -AGREE * (1 + abs(pair[0])):
                    raise ArithmeticError(f"{name}: {pair[0].str(25)} and {pair[1].str(25)}")
                row[f"epsilon_{name}"] = "0" if pair[0] == 0 else pair[0].str(18, radius=False)
            larger = max(("remove", "add"), key=lambda one: float(row[f"epsilon_{one}"]))
            known["settings"].append({**row, "epsilon": row[f"epsilon_{larger}"]})
        except (ArithmeticError, ValueError) as error:
            known["failed"].append({**row, "why": str(error)})
        HERE.write_text(json.dumps(known, indent=1) + "\n")
        print(setting, row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
