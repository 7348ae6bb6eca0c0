"""tacit's LogisticRegression at its defaults, under replace-one as the peers."""

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from convex_data import Split
from convex_worker import work
from tacit.convex import LogisticRegression


def fit(split: Split, epsilon: float, delta: float, setting: Mapping[str, Any]) -> float:
    given = {"delta": delta} | dict(setting)
    classes = range(int(split.test_labels.max()) + 1)  # as many as there are, which is public
    model = LogisticRegression(
        epsilon, data_norm=split.norm, adjacency="replace-one", classes=classes, **given
    )
    model.fit(split.train, split.train_labels)
    return float(model.score(split.test, split.test_labels))


if __name__ == "__main__":
    pure = {"delta": 0.0} if "--pure" in sys.argv else {}
    work(
        fit,
        {data: [pure, pure | {"clip": "half"}] for data in ("adult", "mnist")},
        {name: version(name) for name in ("tacit", "scikit-learn")},
    )
