"""prv-accountant, with an ε error of 0.01 and a δ error of δ/1000; the upper end of its bracket."""

from collections.abc import Sequence

from prv_accountant import (
    ApproximateDPMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    PoissonSubsampledGaussianMechanism,
    PrivacyRandomVariable,
    PRVAccountant,
    PureDPMechanism,
)
from prv_accountant.dpsgd import find_noise_multiplier

from accounting_rows import (
    Allocated,
    ApproximateDp,
    Calibration,
    DiscreteNoise,
    Group,
    LaplaceNoise,
    Phase,
    RandomizedResponse,
    Row,
    SampledGaussian,
)
from accounting_worker import Accountant, Unsupported, serve

EPSILON_ERROR = 0.01


def phase_variable(phase: Phase) -> PrivacyRandomVariable:
    if phase.sample_rate == 1:
        return GaussianMechanism(phase.noise_multiplier)
    return PoissonSubsampledGaussianMechanism(
        sampling_probability=phase.sample_rate, noise_multiplier=phase.noise_multiplier
    )


def composed(
    variables: Sequence[PrivacyRandomVariable], counts: Sequence[int], delta: float
) -> tuple[float, float, float]:
    """Lower end, estimate and upper end of ε."""
    accountant = PRVAccountant(
        prvs=list(variables),
        max_self_compositions=list(counts),
        eps_error=EPSILON_ERROR,
        delta_error=delta / 1000,
    )
    return accountant.compute_epsilon(delta, list(counts))


def solve(row: Row) -> tuple[float, float, float]:
    match row.task:
        case SampledGaussian(phases):
            variables = [phase_variable(phase) for phase in phases]
            return composed(variables, [phase.steps for phase in phases], row.delta)
        case LaplaceNoise(scale, count):
            return composed([LaplaceMechanism(mu=1 / scale)], [count], row.delta)
        case RandomizedResponse(epsilon, count):
            return composed([PureDPMechanism(epsilon)], [count], row.delta)
        case ApproximateDp(epsilon, delta, count):
            return composed([ApproximateDPMechanism(epsilon, delta)], [count], row.delta)
        case DiscreteNoise() | Group():
            raise Unsupported("no variable for discrete noise or a group of records")
        case Allocated():
            raise Unsupported("no accounting of random allocation")
        case Calibration():
            raise TypeError("a calibration has no ε to bracket")


def answer(row: Row) -> float:
    if isinstance(row.task, Calibration):
        return find_noise_multiplier(
            sampling_probability=row.task.sample_rate,
            num_steps=row.task.steps,
            target_epsilon=row.task.epsilon,
            target_delta=row.delta,
            eps_error=EPSILON_ERROR,
        )
    return solve(row)[2]


def bracket(row: Row) -> tuple[float, float] | None:
    if isinstance(row.task, Calibration):
        return None
    lower, _, upper = solve(row)
    return lower, upper


if __name__ == "__main__":
    serve(
        {"prv": Accountant(answer, bracket=bracket)}, packages=("prv-accountant", "numpy", "scipy")
    )
