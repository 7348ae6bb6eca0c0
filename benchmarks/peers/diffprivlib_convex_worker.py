"""diffprivlib's LogisticRegression: pure ε under replace-one, one class against the rest."""

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from diffprivlib.models import LogisticRegression

from convex_data import Split
from convex_worker import work


def fit(split: Split, epsilon: float, delta: float, setting: Mapping[str, Any]) -> float:  # noqa: ARG001
    model = LogisticRegression(epsilon=epsilon, data_norm=split.norm, **setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the solver has not converged
        model.fit(split.train, split.train_labels)
    return float(model.score(split.test, split.test_labels))


if __name__ == "__main__":
    # C = 1 is the default; a smaller one regularises more, which pure noise needs.
    work(
        fit,
        {data: [{"C": c} for c in (1.0, 0.01, 0.001)] for data in ("adult", "mnist")},
        {name: version(name) for name in ("diffprivlib", "scikit-learn")},
    )
