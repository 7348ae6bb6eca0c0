"""Ten more bugs, written by somebody who had not read the self-test's checks.

Each comment says why the claim does not hold, and by how much, in the mutant's own setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import settings, unseen_lots, unseen_steps
from .mutant import Mutant

if TYPE_CHECKING:
    from tacit.auditing.replay import Setting


def fast_learning() -> Setting:
    """A learning rate of 1, with which gradients soon are others than at first."""

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0)

    return settings.linear(optimizer=optimizer)


UNSEEN = (
    # One lot in forty holds a given record twice: it then moves the sum by two clips, or more.
    Mutant(
        name="sampling with replacement",
        says="a lot's records are drawn with replacement, so that one may be in it twice",
        components=("sampling", "clipping"),
        setting=settings.linear,
        patch=unseen_lots.with_replacement,
    ),
    # At δ = 1e-5 the six steps have ε = 6.60; 4.88 is claimed.
    Mutant(
        name="lot size warm-up",
        says="lots grow to twice their size over the run, and are charged at the rate of the first",
        components=("sampling", "charging"),
        setting=settings.linear,
        patch=unseen_lots.warming_up,
    ),
    # A third of the lots is empty, and each releases the lot before it once more: a record that is
    # in one is in the next with chance 0.37, where 0.02 is charged.
    Mutant(
        name="sum left over by an empty lot",
        says="a lot's first batch clears the sums, so that an empty lot releases the last again",
        components=("gradients", "control flow", "sampling", "update"),
        setting=settings.small_lots,
        patch=unseen_lots.cleared_by_the_first_batch,
    ),
    # A record that is added pushes another one out: the sum moves by 1.40 clips here, and by up to
    # two.
    Mutant(
        name="hardest six of a batch",
        says="of each batch, only the six examples with the largest losses are used",
        components=("gradients", "clipping", "control flow"),
        setting=settings.mlp,
        patch=unseen_lots.hardest_six,
    ),
    # A gradient that has grown since is scaled too little: after 30 steps one moves the sum by 6.4
    # clips, and one that was 0 at first is not clipped at all.
    Mutant(
        name="norms kept from the first use",
        says="an example is clipped by the norm that its gradient had when it was first drawn",
        components=("clipping", "gradients"),
        setting=fast_learning,
        patch=unseen_lots.norms_kept,
    ),
    # Two spheres around neighbouring sums meet almost nowhere: ε is infinite.
    Mutant(
        name="noise of one length",
        says="noise is scaled to its expected length, so that its direction alone is random",
        components=("noise",),
        setting=settings.mlp,
        patch=unseen_steps.of_one_length,
    ),
    # A lot of one record never yields the half space against it, which noise alone does half the
    # time: no ε covers that.
    Mutant(
        name="noise never against the gradient",
        says="noise is drawn again where the noisy step would go against the exact gradient",
        components=("noise", "control flow", "update"),
        setting=settings.linear,
        patch=unseen_steps.never_backwards,
    ),
    # The rest of a gradient is released one step later, without any bound: the second sum is 50
    # clips long here, instead of 6.7.
    Mutant(
        name="error feedback",
        says="what clipping cut off is kept, and added to the next step's sum",
        components=("update", "clipping", "gradients", "sampling"),
        setting=settings.linear,
        patch=unseen_steps.error_feedback,
    ),
    # Two runs are charged as one: at δ = 1e-5 they have ε = 6.45, and 4.88 is in the ledger.
    Mutant(
        name="second run not charged",
        says="a plan that is already in the ledger is not charged when it is run again",
        components=("charging",),
        setting=settings.linear,
        patch=unseen_steps.one_reservation_a_plan,
    ),
    # The steps before the checkpoint are released too: ε = 4.88, and 3.81 is claimed after half.
    Mutant(
        name="only the steps since resumed",
        says="the ε of a resumed run is that of the steps since it was resumed",
        components=("resuming", "charging"),
        setting=settings.linear,
        patch=unseen_steps.only_since_resumed,
    ),
)
UNSEEN_BY_NAME = {mutant.name: mutant for mutant in UNSEEN}
