"""Opacus's three accountants at their defaults: PRV, RDP and GDP (a CLT approximation).

The history is set whole, as Opacus's own calibration does: calling `step()` a million times would
time the bookkeeping, not the accounting.
"""

import warnings

from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier

from accounting_rows import Calibration, Row, SampledGaussian
from accounting_worker import Accountant, Unsupported, serve


def answer(mechanism: str, row: Row) -> float:
    match row.task:
        case SampledGaussian(phases):
            if mechanism == "gdp" and len(phases) > 1:
                raise Unsupported("sample rate and noise multiplier have to stay constant")
            accountant = create_accountant(mechanism=mechanism)
            accountant.history = [(p.noise_multiplier, p.sample_rate, p.steps) for p in phases]
            return accountant.get_epsilon(delta=row.delta)
        case Calibration(epsilon, sample_rate, steps):
            return get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=row.delta,
                sample_rate=sample_rate,
                steps=steps,
                accountant=mechanism,
            )
        case _:
            raise Unsupported("only the Poisson-sampled Gaussian mechanism is accounted")


def accountant(mechanism: str) -> Accountant:
    return Accountant(lambda row: answer(mechanism, row))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the GDP accountant warns at every construction
    serve(
        {mechanism: accountant(mechanism) for mechanism in ("prv", "rdp", "gdp")},
        packages=("opacus", "torch", "numpy", "scipy"),
    )
