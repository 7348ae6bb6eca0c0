"""Privacy accounting: events, the theorems that bound them, and the exact answer with its proof.

>>> from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon
>>> run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
>>> round(epsilon(run, delta=1e-5), 7)
0.9468668
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy

if TYPE_CHECKING:
    from tacit.accounting.accountants import Approximation
    from tacit.accounting.adaptive import RenyiFilter, RenyiOdometer
    from tacit.accounting.calibration import (
        analytic_gaussian_sigma,
        calibrate,
        classical_gaussian_delta,
        classical_gaussian_sigma,
        noise_multiplier,
        sample_rate,
    )
    from tacit.accounting.curve import PrivacyCurve, profile
    from tacit.accounting.events import (
        AboveThreshold,
        Adjacency,
        ApproxDp,
        Composed,
        DiscreteGaussian,
        DiscreteLaplace,
        Event,
        Exponential,
        Gaussian,
        GaussianMixture,
        Laplace,
        LossDistribution,
        NoisyMax,
        PoissonRuns,
        PoissonSampled,
        PrivateSelection,
        PureDp,
        RandomAllocation,
        RandomizedResponse,
        RenyiCurve,
        Repeated,
        SampledWithoutReplacement,
        SampledWithReplacement,
        TruncatedConcentrated,
        TruncatedNegativeBinomial,
        ZeroConcentrated,
    )
    from tacit.accounting.exact.enclosure import Interval
    from tacit.accounting.exchange import (
        from_dp_accounting,
        from_laws,
        from_profile,
        from_tradeoff,
        loss_distribution,
        read_tradeoff,
        to_dp_accounting,
        write_tradeoff,
    )
    from tacit.accounting.factorization import (
        FixedEpochs,
        MinimumSeparation,
        Sensitivity,
        sensitivity,
        toeplitz_sensitivity,
    )
    from tacit.accounting.group_privacy import group
    from tacit.accounting.questions import Row, bounds, compare, delta, epsilon
    from tacit.accounting.serialization import from_json, to_json
    from tacit.errors import BudgetExceeded, Uncalibratable, UnsupportedEvent

__all__ = [
    "AboveThreshold",
    "Adjacency",
    "ApproxDp",
    "Approximation",
    "BudgetExceeded",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Exponential",
    "FixedEpochs",
    "Gaussian",
    "GaussianMixture",
    "Interval",
    "Laplace",
    "LossDistribution",
    "MinimumSeparation",
    "NoisyMax",
    "PoissonRuns",
    "PoissonSampled",
    "PrivacyCurve",
    "PrivateSelection",
    "PureDp",
    "RandomAllocation",
    "RandomizedResponse",
    "RenyiCurve",
    "RenyiFilter",
    "RenyiOdometer",
    "Repeated",
    "Row",
    "SampledWithReplacement",
    "SampledWithoutReplacement",
    "Sensitivity",
    "TruncatedConcentrated",
    "TruncatedNegativeBinomial",
    "Uncalibratable",
    "UnsupportedEvent",
    "ZeroConcentrated",
    "analytic_gaussian_sigma",
    "bounds",
    "calibrate",
    "classical_gaussian_delta",
    "classical_gaussian_sigma",
    "compare",
    "delta",
    "epsilon",
    "from_dp_accounting",
    "from_json",
    "from_laws",
    "from_profile",
    "from_tradeoff",
    "group",
    "loss_distribution",
    "noise_multiplier",
    "profile",
    "read_tradeoff",
    "sample_rate",
    "sensitivity",
    "to_dp_accounting",
    "to_json",
    "toeplitz_sensitivity",
    "write_tradeoff",
]

# Submodules are imported when one of their names is first used: asking for an event must not cost
# the import of SciPy.
__getattr__, __dir__ = lazy(__name__)
