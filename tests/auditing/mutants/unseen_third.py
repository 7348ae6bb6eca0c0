"""A third round of ten bugs, by a third author, for whom the whole command was run on each.

Each comment says why the claim does not hold, by how much in the author's own reckoning, and which
check was added for it, where one was missing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tacit.auditing.replay import standard_settings
from tacit.auditing.replay.part_checks import random_numbers, refusals, sessions, strategies
from tacit.auditing.replay.standard import special_settings

from . import settings
from . import unseen_third_bugs as bugs
from .mutant import Mutant

if TYPE_CHECKING:
    from tacit.auditing.replay import Setting


def standard(name: str) -> Setting:
    """One of the command's own settings."""
    return {**standard_settings(), **special_settings()}[name]


THIRD_UNSEEN = (
    # One record more moves others into other groups, and fixes all sizes: sums differ in several
    # groups where one is charged. Ten groups at μ = 1: ε is 2.1 times the claim.
    Mutant(
        name="balanced groups",
        says="records are dealt into groups by their rank, equally many to each, and not each by "
        "its own word",
        components=("sampling", "noise", "charging", "control flow"),
        setting=settings.correlated,
        patch=bugs.dealt_by_rank,
        part=random_numbers.groups,
    ),
    # Of 200 records in lots of 60, 24 steps are 8 epochs of 3 lots, and 6 of 4 are charged: at
    # δ = 1e-4 and σ = 2 that is ε = 3.17, and 2.29 is claimed.
    Mutant(
        name="allocation floor",
        says="an epoch of allocation is dealt into ⌊examples/lot_size⌋ lots, and charged as one of "
        "⌈examples/lot_size⌉",
        components=("sampling", "charging"),
        setting=partial(standard, "allocated"),
        patch=bugs.epochs_of_fewer_lots,
        scope="lots",
    ),
    # A record of one token 24 times has a computed norm of 34.6 and a true one of 48: it adds
    # 1.386 clips, √2 at most.
    Mutant(
        name="repeated tokens counted half",
        says="of two places with the same id the cross term counts once in an embedding's norm",
        components=("clipping", "gradients"),
        setting=partial(standard, "tied"),
        patch=bugs.each_pair_once,
        scope="release",
    ),
    # Patches are read side by side and not a stride apart, and the far edge never: a record whose
    # energy is there has a computed norm of 0. No bound at all.
    Mutant(
        name="strided convolution by the Gram of pixels",
        says="norms of strided convolutions go by Gram matrices that are for a stride of one",
        components=("clipping", "gradients"),
        setting=partial(standard, "channels"),
        patch=bugs.gram_of_strided,
        scope="sums",
    ),
    # With n weights, n odd, entry (n-1)/2 of a step has the noise of entry 0 of the next one: their
    # difference is released without any.
    Mutant(
        name="odd draws give their last word back",
        says="the next draw after one of an odd count of numbers begins with its last word again",
        components=("noise",),
        setting=partial(standard, "linear"),
        patch=bugs.last_word_again,
        scope="noise",
    ),
    # A clip that starts at 0.05 is 1.91 after 60 steps, and the noise is still 0.05: ε = 12.5 is
    # claimed, 16,500 are true.
    Mutant(
        name="grid of the first step",
        says="noise on a grid keeps the first step's scale while the clip moves",
        components=("noise", "clipping"),
        setting=partial(standard, "adaptive, secure"),
        patch=bugs.first_grid,
        scope="noise",
    ),
    # Whoever knows or guesses the seed knows lots and noise of all later steps: ε = 0.87 is
    # claimed, none holds.
    Mutant(
        name="seed forgotten on resuming",
        says="a run that is resumed with a fixed seed has a statement as if it had none",
        components=("charging", "resuming", "noise", "control flow"),
        setting=settings.linear,
        patch=bugs.seed_forgotten,
        part=sessions.seeds,
    ),
    # Charged is ε = 0.93 of one example, where the budget promises for users: one with ten
    # examples loses 13.6.
    Mutant(
        name="example plans in a user's budget",
        says="a plan for examples is charged to a budget that promises for users",
        components=("charging", "control flow"),
        setting=settings.users,
        patch=bugs.users_budget_for_examples,
        part=refusals.forbidden_charges,
    ),
    # Groups whose turns were in lost steps take them again, where one turn is charged: ε = 0.77 is
    # claimed, 1.14 at least are true.
    Mutant(
        name="lost steps read too early",
        says="a resumed run with groups goes on as if no step had been lost",
        components=("resuming", "sampling", "noise", "charging", "control flow"),
        setting=settings.correlated,
        patch=bugs.lost_too_early,
        part=sessions.turns,
    ),
    # Whoever has the last checkpoint takes the noise of the last steps off: no ε holds for those
    # who are in them. Only checkpoints of a run that is not over are said to be secret.
    Mutant(
        name="noise left in the last checkpoint",
        says="the checkpoint after the step of stop_after still holds the noise of the last steps",
        components=("noise", "charging", "control flow", "resuming"),
        setting=settings.correlated,
        patch=bugs.kept_noise,
        part=strategies.forgotten,
    ),
)
THIRD_UNSEEN_BY_NAME = {mutant.name: mutant for mutant in THIRD_UNSEEN}
