"""The runs of a search, carried out here, in other processes, or on Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from tacit import _workers
from tacit.errors import Diverged
from tacit.selection.scores import apply_score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit._workers import Workers
    from tacit.selection.scores import Score
    from tacit.selection.terms import Allowance
    from tacit.selection.trainers import Trainer

    Needed = Callable[[int], bool]


@final
@dataclass(frozen=True, slots=True, eq=False)
class SearchWork:
    """All that the runs have in common, so that it is sent to each worker once."""

    trainer: Trainer
    score: Score
    allowance: Allowance
    candidates: Sequence[Any]

    def run(self, choice: int) -> tuple[Any, float | None]:
        """One run: the model and its score, or neither if its training diverged.

        That is an outcome of the run as a model is. Were it an error, to go on would be to try the
        run again until it ends well, which one charge does not cover.
        """
        try:
            result = self.trainer(self.candidates[choice], self.allowance)
        except Diverged:
            return None, None
        return apply_score(self.score, result)


Finished: TypeAlias = tuple[int, Any, float | None]
"""The number of a run, its model and its score; None for both if it diverged."""


def carried_out(
    work: SearchWork, tasks: Sequence[tuple[int, int]], workers: Workers, needed: Needed
) -> Iterator[Finished]:
    """Carries out tasks (run, choice) in their order, and gives each as it is finished.

    A task that is not ``needed`` any more when its turn comes is left out.
    """
    left = ((run, choice) for run, choice in tasks if needed(run))
    done = _workers.carried_out(
        SearchWork.run, work, left, workers, names="train, score and candidates"
    )
    return ((run, model, score) for run, (model, score) in done)
