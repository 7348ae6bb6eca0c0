"""``tacit transfer`` in a process of its own, in which every vote is slow and leaves a line.

The votes of ``pate`` are given query by query, so that each look at them can be told on standard
error and kept in a log; the teachers and the student are small ones.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import main
from tacit.recipes.transferring import features, pate
from tacit.transfer import label

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.transfer import Answers, Votes


def tell(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def slow(votes: Votes, aggregator: Any, **given: Any) -> Answers:
    def counts(query: int) -> NDArray[np.int64]:
        with Path(os.environ["ASKED"]).open("a") as log:
            log.write(f"{query}\n")
        tell(f"asked {query}")
        time.sleep(float(os.environ["EACH"]))
        return votes.counts[query]

    tell("labelling")
    return label(counts, aggregator, queries=votes.queries, **given)


def slow_features(*given: Any, **named: Any) -> Any:
    tell("features")
    time.sleep(float(os.environ["EACH"]))
    return make_features(*given, **named)


make_features = features.maker


def command(*arguments: str) -> int:
    """``tacit`` with these arguments and slow votes, in a process of its own."""
    pate.label = slow  # type: ignore[attr-defined]
    features.maker = slow_features
    sys.argv = ["tacit", *arguments]
    return main()
