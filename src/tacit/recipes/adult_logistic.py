"""``tacit train adult-logistic --epsilon 1``: private logistic regression, the convex baseline.

On the census rows of Adult. There is no network, and there are no steps to choose: one minimum with
noise (``tacit.convex.LogisticRegression``, whose theory picks the method). The encoding is public:
categories and ranges as published with the data set, and nothing measured on it. It needs
scikit-learn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from tacit.runs import Recipe

if TYPE_CHECKING:
    from tacit.runs import Job, Trained


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``norm`` is the largest norm of a row: eight answers out of several and five numbers between 0
    and 1 are at most √13, and longer rows would be shortened. ``clip="half"`` halves the noise and
    changes the loss a little (see the estimator).
    """

    norm: float = math.sqrt(13.0)
    method: Literal["auto", "output", "objective", "amp", "noisy-gd", "noisy-sgd"] = "auto"
    clip: Literal["none", "half"] = "half"


def settings(epsilon: float) -> Settings:
    """The same for every ε: the theory does the rest."""
    del epsilon
    return Settings()


def train(job: Job) -> Trained:
    """One fit, which is one release."""
    from tacit.convex import LogisticRegression  # noqa: PLC0415 - needs scikit-learn

    chosen: Settings = job.settings
    estimator = LogisticRegression(
        job.epsilon, job.delta, data_norm=chosen.norm, method=chosen.method,
        clip="half" if chosen.clip == "half" else None,
        classes=tuple(range(len(job.data.classes))), budget=job.budget,
    )  # fmt: skip
    estimator.fit(job.data.train.inputs, job.data.train.labels)
    claim = estimator.statement()
    return job.conclude(
        {"coefficients": estimator.coef_, "intercepts": estimator.intercept_},
        event=estimator.event_,
        what=f"the coefficients, by {estimator.method_}",
        accuracy=float(estimator.score(job.data.test.inputs, job.data.test.labels)),
        sampling=claim.sampling,
        noise=claim.noise,
        assumptions=claim.assumptions,
    )


RECIPE = Recipe(
    name="adult-logistic",
    summary="private logistic regression on census rows: the convex baseline",
    data="adult",
    settings=settings,
    train=train,
    tuning="none: the norm is public and the method follows from theory",
)
