"""Numbers with noise, and randomised answers: many draws by one call on many equal numbers."""

from __future__ import annotations

import numpy as np

from tacit.auditing.mechanism_audits.case import Asked, Case, Drawn, at_once
from tacit.mechanisms import (
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    laplace,
    randomized_response,
)

_PAIR = "a number that a record moves by its sensitivity: 1 and 0"
_OUTPUT = "the noisy number, which the ratio of densities grows with"


def _laplace(inside: bool, draws: int, asked: Asked) -> Drawn:
    numbers = np.full(draws, float(inside))
    released = laplace(numbers, sensitivity=1, epsilon=asked.epsilon, stream=asked.stream)
    return at_once(released, released.value)


def _gaussian(inside: bool, draws: int, asked: Asked) -> Drawn:
    released = gaussian(
        np.full(draws, float(inside)),
        sensitivity=1,
        epsilon=asked.epsilon,
        delta=asked.delta,
        stream=asked.stream,
    )
    return at_once(released, released.value)


def _discrete_laplace(inside: bool, draws: int, asked: Asked) -> Drawn:
    numbers = np.full(draws, int(inside))
    released = discrete_laplace(numbers, epsilon=asked.epsilon, stream=asked.stream)
    return at_once(released, released.value)


def _discrete_gaussian(inside: bool, draws: int, asked: Asked) -> Drawn:
    released = discrete_gaussian(
        np.full(draws, int(inside)), epsilon=asked.epsilon, delta=asked.delta, stream=asked.stream
    )
    return at_once(released, released.value)


def _response(inside: bool, draws: int, asked: Asked) -> Drawn:
    released = randomized_response(
        np.full(draws, int(inside)), categories=3, epsilon=asked.epsilon, stream=asked.stream
    )
    return at_once(released, np.array([-1.0, 1.0, 0.0])[released.value])


CASES = (
    Case("laplace", _PAIR, _OUTPUT, _laplace),
    Case("gaussian", _PAIR, _OUTPUT, _gaussian, gaussian=True),
    Case("discrete-laplace", _PAIR, _OUTPUT, _discrete_laplace),
    Case("discrete-gaussian", _PAIR, _OUTPUT, _discrete_gaussian, gaussian=True),
    Case(
        "randomized-response",
        "the answers 1 and 0, of three possible ones",
        "1 if the answer is 1, -1 if it is 0, else 0: the order of the ratios",
        _response,
    ),
)
