"""What theory promises of PATE: how fast the student's excess error falls.

The table of Liu, Zhu, Chaudhuri & Wang (2020, Table 1), as in Yu-Xiang Wang's lecture: n private
examples, m public points, labels from a class of VC dimension d, and ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from tacit._validation import positive, probability, whole
from tacit.errors import InvalidArgument

Setting: TypeAlias = Literal["realizable", "noise", "agnostic", "agnostic-ensemble"]


@final
@dataclass(frozen=True, slots=True)
class PateRate:
    """One entry of the table.

    Args:
        algorithm: ``"gaussian"`` (Papernot et al. 2017), ``"sparse-vector-2018"`` (Bassily et al.),
            ``"sparse-vector"`` and ``"active"`` (both Liu et al. 2020).
        setting: ``"realizable"``: some hypothesis is always right. ``"noise"``: Tsybakov's noise
            condition with exponent τ. ``"agnostic"``: against the best hypothesis h*.
            ``"agnostic-ensemble"``: against the vote of infinitely many teachers.
        formula: The entry as it stands there, logarithms and constants left out.
        excess_error: Its value, up to those; None where the table has no rate.
    """

    algorithm: str
    setting: Setting
    formula: str
    excess_error: float | None


def rates(
    *,
    examples: int,
    public: int,
    dimension: int,
    epsilon: float,
    noise_exponent: float = 1.0,
    disagreement: float = 1.0,
    best_error: float = 0.0,
) -> tuple[PateRate, ...]:
    """The table's entries for given numbers, algorithm by algorithm.

    They are rates and no bounds: compare them with each other, and with themselves at other
    numbers.

    Args:
        examples: n, private.
        public: m, unlabelled.
        dimension: d, the VC dimension.
        epsilon: ε, of all answers together.
        noise_exponent: τ of Tsybakov's condition, above 0 and at most 1 (no noise).
        disagreement: θ, the disagreement coefficient, for active learning.
        best_error: Err(h*), the error of the best hypothesis.

    >>> found = rates(examples=10**6, public=10**6, dimension=10, epsilon=1.0)
    >>> [f"{one.excess_error:.1e}" for one in found if one.setting == "realizable"]
    ['1.0e-03', '3.2e-03', '3.2e-05', '3.2e-05']
    """
    d = float(whole("dimension", dimension))
    labelled = d / whole("public", public)
    private = whole("examples", examples) * positive("epsilon", epsilon)
    tau, theta = positive("noise_exponent", noise_exponent), positive("disagreement", disagreement)
    if tau > 1.0:
        raise InvalidArgument(f"noise_exponent must be at most 1, got {noise_exponent!r}")
    base, active = d**1.5 / private, d**1.5 * math.sqrt(theta) / private
    agnostic = 13.0 * probability("best_error", best_error) + max(
        d**0.6 / private**0.4, math.sqrt(labelled)
    )
    fast, slow = tau / (2.0 - tau), 2.0 * tau / (4.0 - tau)
    needs, all_agnostic = "Ω(Err(h*)) required", "13·Err(h*) + d^{3/5}/(nε)^{2/5} ∨ √(d/m)"
    ensemble: Setting = "agnostic-ensemble"
    return (
        PateRate("gaussian", "realizable", "d/(nε)^{2/3} ∨ d/m", max(base ** (2 / 3), labelled)),
        PateRate("gaussian", "noise", "(d^{3/2}/nε)^{2τ/(4-τ)} ∨ d/m", max(base**slow, labelled)),
        PateRate("gaussian", "agnostic", needs, None),
        PateRate("gaussian", ensemble, "-", None),
        PateRate(
            "sparse-vector-2018",
            "realizable",
            "d/(nε)^{2/3} ∨ √(d/m)",
            max(base ** (2 / 3), math.sqrt(labelled)),
        ),
        PateRate("sparse-vector-2018", "noise", "as agnostic", agnostic),
        PateRate("sparse-vector-2018", "agnostic", all_agnostic, agnostic),
        PateRate("sparse-vector-2018", ensemble, "-", None),
        PateRate("sparse-vector", "realizable", "d^{3/2}/nε ∨ d/m", max(base, labelled)),
        PateRate(
            "sparse-vector", "noise", "(d^{3/2}/nε)^{τ/(2-τ)} ∨ d/m", max(base**fast, labelled)
        ),
        PateRate("sparse-vector", "agnostic", needs, None),
        PateRate("sparse-vector", ensemble, "consistent under weaker conditions", None),
        PateRate("active", "realizable", "d^{3/2}·θ^{1/2}/nε ∨ d/m", max(active, labelled)),
        PateRate(
            "active", "noise", "(d^{3/2}·θ^{1/2}/nε)^{τ/(2-τ)} ∨ d/m", max(active**fast, labelled)
        ),
        PateRate("active", "agnostic", needs, None),
        PateRate("active", ensemble, "-", None),
    )
