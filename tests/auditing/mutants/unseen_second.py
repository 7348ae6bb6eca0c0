"""A second round of ten bugs, by somebody who had not read the self-test, after it was widened.

Each comment says why the claim does not hold, by how much in the mutant's own setting, and where
the like is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tacit
from tacit.training.styles import AdaptiveQuantile

from . import settings
from . import unseen_second_bugs as bugs
from .mutant import Mutant

if TYPE_CHECKING:
    from tacit.auditing.replay import Setting


def large_views() -> Setting:
    """Four views of each example, of which two fit into memory."""
    return settings.linear(
        plan=settings.plan(views=4, clip=0.5), performance=tacit.Performance(batch=2)
    )


def fast_adaptive() -> Setting:
    """A clip that starts far below the median norm, and is let move fast."""
    style = AdaptiveQuantile(count_noise=0.6, learning_rate=0.7)
    return settings.linear(plan=settings.plan(clip=0.1, clipping=style))


SECOND_UNSEEN = (
    # One lot in fourteen is cut: there a record that comes pushes another one out, and the sum
    # moves by up to two clips, which nobody charges (TruncatedPoisson would, in δ). Seen: batches
    # of fixed shape in JAX (Chua et al. 2024 is about what they must be charged).
    Mutant(
        name="lots cut to a fixed shape",
        says="what of a lot is above the size of its buffer is dropped, and not charged",
        components=("sampling", "gradients", "charging"),
        setting=settings.linear,
        patch=bugs.of_one_shape,
    ),
    # Whoever is in a lot of the first epoch is in the same lot of each later one. At δ = 1e-5 the
    # six steps have ε = 6.43; 4.88 is claimed. Seen: itertools.cycle(loader), which keeps the first
    # pass; samplers that are seeded again in each epoch.
    Mutant(
        name="first epoch's lots again",
        says="later epochs go through the lots of the first one instead of drawing new ones",
        components=("sampling", "charging"),
        setting=settings.linear,
        patch=bugs.first_epoch_again,
    ),
    # A sum that is moved by a clip reaches where the other never does: in one step with chance
    # 0.02 (0.005 with sampling), so that no ε holds at δ = 1e-5. Seen: truncated_normal of
    # TensorFlow and JAX taken for normal.
    Mutant(
        name="noise without tails",
        says="noise beyond three standard deviations is drawn again",
        components=("noise",),
        setting=settings.linear,
        patch=bugs.without_tails,
    ),
    # Half of a release added to the next takes the old noise off: against what is left, a record
    # in one lot weighs up to 1.29 clips, and one in all of them 2.2 a step, where 1 is charged.
    # Seen: correlated noise (DP-FTRL, banded matrices in jax_privacy) under DP-SGD's accountant.
    Mutant(
        name="noise partly taken back",
        says="each step's noise holds minus half of the last step's, at the same scale",
        components=("noise",),
        setting=settings.mlp,
        patch=bugs.taken_back,
    ),
    # Both parts of an example may be a clip long: it moves the sum by 2.0 clips. Seen: augmentation
    # multiplicity (De et al. 2022) put on top of memory managers that cut batches by rows.
    Mutant(
        name="views in two batches",
        says="an example whose views do not fit into a batch is clipped once in each of several",
        components=("clipping", "gradients"),
        setting=large_views,
        patch=bugs.views_apart,
    ),
    # One record with an infinite loss takes its neighbours out of the sum: three here, and all of
    # the lot where that is one batch. Seen: "if not loss.isfinite(): continue" in training loops;
    # GradScaler, which leaves out steps that way.
    Mutant(
        name="batch with a NaN left out",
        says="a batch in which one loss is not finite is left out, with all its other examples",
        components=("gradients", "clipping", "control flow"),
        setting=settings.small_batches,
        patch=bugs.not_finite_left_out,
    ),
    # Which weights move tells the exact order of the first gradient's entries: no ε covers that.
    # Seen: masks of sparse fine-tuning (FISH Mask, Sung et al. 2021) taken from the private data.
    Mutant(
        name="trained entries by the exact gradient",
        says="only entries whose exact gradient in the first lot was large are ever updated",
        components=("update", "gradients", "noise", "control flow"),
        setting=settings.mlp,
        patch=bugs.only_what_matters,
    ),
    # Six steps are an epoch and a half, of which four are counted: at δ = 1e-5 they have ε = 4.88,
    # and 4.21 is claimed. Seen: accountants stepped at the end of an epoch; n // L steps an epoch.
    Mutant(
        name="broken-off epoch not counted",
        says="ε is that of the whole epochs; the steps after the last of them are free",
        components=("charging",),
        setting=settings.linear,
        patch=bugs.by_whole_epochs,
    ),
    # After three steps the clip is about 2.9 times the plan's: the first step of a run that is
    # resumed there has a σ of 0.34, where 1 is charged. Seen: no instance; but Opacus keeps clip
    # and noise in objects apart, which users save by hand.
    Mutant(
        name="moved clip resumed without its noise",
        says="a resumed run clips by the clip that it had reached, with noise for the plan's",
        components=("resuming", "noise", "clipping"),
        setting=fast_adaptive,
        patch=bugs.bounds_alone,
    ),
    # Whoever sees every step also sees which was chosen, by numbers that got no noise: no ε covers
    # that. Seen: restore_best_weights in Keras, ModelCheckpoint(monitor="train_loss") in Lightning.
    Mutant(
        name="best weights by the training loss",
        says="the weights with the least exact training loss are put back when a run ends",
        components=("control flow", "update"),
        setting=settings.momentum,
        patch=bugs.best_restored,
    ),
)
SECOND_UNSEEN_BY_NAME = {mutant.name: mutant for mutant in SECOND_UNSEEN}
