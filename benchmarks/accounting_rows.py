"""The rows on which accountants are compared: every worker and the driver read them from here.

Only the standard library is imported, because each peer's environment imports this file.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """Releases of a Gaussian mechanism on Poisson samples; a `sample_rate` of 1 is no sampling."""

    sample_rate: float
    noise_multiplier: float
    steps: int


@dataclass(frozen=True)
class SampledGaussian:
    """Phases of DP-SGD, one after another."""

    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise of scale `scale` on a count of sensitivity 1, `count` times."""

    scale: float
    count: int


@dataclass(frozen=True)
class RandomizedResponse:
    """Binary randomised response that is `epsilon`-DP, `count` times."""

    epsilon: float
    count: int


@dataclass(frozen=True)
class ApproximateDp:
    """Any (`epsilon`, `delta`)-DP mechanism, `count` times."""

    epsilon: float
    delta: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """The smallest noise multiplier of Poisson-sampled DP-SGD that keeps to `epsilon`."""

    epsilon: float
    sample_rate: float
    steps: int


@dataclass(frozen=True)
class DiscreteNoise:
    """Discrete Gaussian noise of `sigma` on a count of sensitivity 1, `count` times."""

    sigma: float
    count: int


@dataclass(frozen=True)
class Group:
    """One phase of DP-SGD as `size` records together see it: all are added or removed."""

    phase: Phase
    size: int


@dataclass(frozen=True)
class Allocated:
    """Epochs of Gaussian steps, in exactly one of which each record takes part, at random."""

    noise_multiplier: float
    steps: int
    epochs: int


Task = (
    SampledGaussian
    | LaplaceNoise
    | RandomizedResponse
    | ApproximateDp
    | Calibration
    | DiscreteNoise
    | Group
    | Allocated
)


@dataclass(frozen=True)
class Row:
    """One question and its answer.

    `truth` is ε, or the noise multiplier for a `Calibration`; `accounting_truth.py` derives it.
    """

    name: str
    title: str
    task: Task
    delta: float
    truth: float


def _dpsgd(sample_rate: float, noise_multiplier: float, steps: int) -> SampledGaussian:
    return SampledGaussian((Phase(sample_rate, noise_multiplier, steps),))


_HUNDRED_PHASES = SampledGaussian(
    tuple(Phase(0.005 + 0.0002 * i, 2 + 0.03 * i, 50 + i) for i in range(100))
)

_TEN_THOUSAND_STEPS = SampledGaussian(tuple(Phase(0.01, 1 + i / 10_000, 1) for i in range(10_000)))
_GROUP = Group(Phase(0.001, 50.0, 100), 1000)

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("a", "q=.01 σ=4 T=10⁴", _dpsgd(0.01, 4.0, 10_000), 1e-5, 0.9468668007643805),
        Row("b", "q=.01 σ=5 T=10³", _dpsgd(0.01, 5.0, 1_000), 1e-6, 0.2490260117061591),
        Row(
            "c", "q=256/60k σ=1.1 T=14062", _dpsgd(256 / 60_000, 1.1, 14062), 1e-5, 2.3815969214244
        ),
        Row("d", "q=4096/50k σ=3 T=2468", _dpsgd(4096 / 50_000, 3.0, 2468), 1e-5, 6.52928010737798),
        Row("e", "q=1 σ=20 T=10³", _dpsgd(1.0, 20.0, 1_000), 1e-6, 8.306225049954728),
        Row("f", "q=1e-4 σ=.8 T=10⁶", _dpsgd(1e-4, 0.8, 1_000_000), 1e-8, 1.001769440069914),
        Row("g", "100 different phases", _HUNDRED_PHASES, 1e-5, 1.745016923910061),
        Row("h1", "Laplace b=50 T=10⁴", LaplaceNoise(50.0, 10_000), 1e-6, 10.94991349076035),
        Row(
            "h2",
            "rand. response ε₀=.1 T=10³",
            RandomizedResponse(0.1, 1_000),
            1e-6,
            19.34467144799305,
        ),
        Row("h3", "(.1, 1e-9)-DP T=10³", ApproximateDp(0.1, 1e-9, 1_000), 1e-5, 17.86870800530132),
        Row("i", "σ for ε=2 q=.01 T=10⁴", Calibration(2.0, 0.01, 10_000), 1e-5, 2.127375434714145),
        Row("k1", "q=.01 σ=1 T=10³", _dpsgd(0.01, 1.0, 1_000), 1e-12, 3.914298156037470),
        Row("k2", "q=.1 σ=.7 T=10³", _dpsgd(0.1, 0.7, 1_000), 1e-5, 54.02418463454048),
        Row("k3", "q=1 σ=.5 T=10", _dpsgd(1.0, 0.5, 10), 1e-12, 63.81873029091637),
        Row("n", "discrete σ=.5 T=20", DiscreteNoise(0.5, 20), 1e-9, 91.86232065785317),
        Row("s", "10⁴ different steps", _TEN_THOUSAND_STEPS, 1e-5, 3.609786678726588),
        Row("u", "1000 records, q=1e-3 σ=50 T=100", _GROUP, 1e-6, 0.8378652292631161),
        Row("m1", "allocation σ=1 t=8", Allocated(1.0, 8, 1), 1e-8, 3.718520815414178),
        Row("m2", "allocation σ=1 t=64", Allocated(1.0, 64, 1), 1e-8, 1.798661788279059),
        Row("m3", "allocation σ=.65 t=98 E=20", Allocated(0.65, 98, 20), 1e-5, 7.324602675025441),
        Row("m4", "allocation σ=.6 t=234 E=3", Allocated(0.6, 234, 3), 1e-6, 4.117573089774951),
    )
}
