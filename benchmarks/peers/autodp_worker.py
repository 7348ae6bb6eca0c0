"""autodp: its RDP composition and its analytical Fourier accountant, as its tutorials use them."""

import math
from collections.abc import Callable, Sequence

from autodp.autodp_core import Mechanism
from autodp.calibrator_zoo import generalized_eps_delta_calibrator
from autodp.mechanism_zoo import (
    ExactGaussianMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    RandresponseMechanism,
    SubsampleGaussianMechanism,
)
from autodp.transformer_zoo import (
    AmplificationBySampling,
    AmplificationBySampling_pld,
    ComposeAFA,
    ComposeGaussian,
    Composition,
)

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


def truth_probability(task: RandomizedResponse) -> float:
    return 1 / (1 + math.exp(-task.epsilon))


def sampled_rdp(phase: Phase) -> Mechanism:
    gaussian = ExactGaussianMechanism(sigma=phase.noise_multiplier)
    if phase.sample_rate == 1:
        return gaussian
    return AmplificationBySampling()(gaussian, phase.sample_rate, improved_bound_flag=True)


def with_rdp(row: Row) -> float:
    match row.task:
        case SampledGaussian(phases):
            mechanisms = [sampled_rdp(phase) for phase in phases]
            counts = [phase.steps for phase in phases]
        case LaplaceNoise(scale, count):
            mechanisms, counts = [LaplaceMechanism(b=scale)], [count]
        case RandomizedResponse(count=count):
            mechanisms, counts = [RandresponseMechanism(p=truth_probability(row.task))], [count]
        case ApproximateDp():
            raise Unsupported("an (ε, δ)-DP mechanism has no RDP")
        case DiscreteNoise() | Group():
            raise Unsupported("no mechanism for discrete noise or a group of records")
        case Allocated():
            raise Unsupported("no accounting of random allocation")
        case Calibration():
            return calibrate(row.task, row.delta)
    return Composition()(mechanisms, counts).get_approxDP(row.delta)


def calibrate(task: Calibration, delta: float) -> float:
    mechanism = generalized_eps_delta_calibrator()(
        SubsampleGaussianMechanism,
        task.epsilon,
        delta,
        [0.5, 10],
        params={"prob": task.sample_rate, "sigma": None, "coeff": task.steps},
        para_name="sigma",
        name="SubsampleGaussian",
    )
    return mechanism.params["sigma"]


def exact_gaussian_note(row: Row) -> str | None:
    """Without sampling autodp can also compose Gaussians exactly."""
    match row.task:
        case SampledGaussian((Phase(sample_rate=1.0) as phase,)):
            gaussian = ExactGaussianMechanism(sigma=phase.noise_multiplier)
            epsilon = ComposeGaussian()([gaussian], [phase.steps]).get_approxDP(row.delta)
            return f"its `ComposeGaussian`, made for this case alone, says {epsilon:.10g}"
    return None


def sampled_fourier(phase: Phase, neighbour: str) -> Mechanism:
    # Of the Gaussian's representations only the characteristic function is wanted.
    gaussian = GaussianMechanism(
        phase.noise_multiplier, phi_off=False, RDP_off=True, approxDP_off=True
    )
    if phase.sample_rate == 1:
        return gaussian
    return AmplificationBySampling_pld(neighboring=neighbour)(gaussian, phase.sample_rate)


def with_fourier(row: Row) -> float:
    match row.task:
        case SampledGaussian(phases):
            counts = [phase.steps for phase in phases]
            return max(
                fourier_epsilon([sampled_fourier(p, neighbour) for p in phases], counts, row.delta)
                for neighbour in ("add_only", "remove_only")
            )
        case LaplaceNoise(scale, count):
            laplace = LaplaceMechanism(b=scale, phi_off=False, RDP_off=True)
            return fourier_epsilon([laplace], [count], row.delta)
        case RandomizedResponse(count=count):
            response = RandresponseMechanism(
                p=truth_probability(row.task), phi_off=False, RDP_off=True
            )
            return fourier_epsilon([response], [count], row.delta)
        case ApproximateDp():
            raise Unsupported("no characteristic function for an (ε, δ)-DP mechanism")
        case DiscreteNoise() | Group():
            raise Unsupported("no mechanism for discrete noise or a group of records")
        case Allocated():
            raise Unsupported("no accounting of random allocation")
        case Calibration():
            raise Unsupported("the calibrator works on RDP")


def fourier_epsilon(mechanisms: Sequence[Mechanism], counts: Sequence[int], delta: float) -> float:
    compose: Callable[..., Mechanism] = ComposeAFA()
    return compose(list(mechanisms), list(counts)).get_approxDP(delta)


if __name__ == "__main__":
    serve(
        {
            "rdp": Accountant(with_rdp, note=exact_gaussian_note),
            "fourier": Accountant(with_fourier),
        },
        packages=("autodp", "numpy", "scipy"),
    )
