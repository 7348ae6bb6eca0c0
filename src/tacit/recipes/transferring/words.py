"""What every transfer's statement says, whatever the method."""

from __future__ import annotations

from typing import Final

RELEASES: Final = (
    "the student's weights",
    "the noisy labels of public images, with the places of those images",
    "the student's accuracy on images of the evaluation",
)
TRUST: Final = "how far each of the noisy labels is trusted"
PUBLIC: Final = (
    "the public images are public: nobody in the private data minds that they are seen, and none "
    "of them was chosen or changed by looking at the private data. Their labels are not used"
)
NOT_PROMISED: Final = (
    "anything for the people whose images are public: the student shows them as it likes",
    "that an image of the same person is not among the public ones",
)
TEACHERS: Final = (
    "anything if the teachers or their votes become known: they are as private as the data and are "
    "not released. While the run goes, or waits to be resumed, they lie in its folder 'private'; "
    "at its end they are deleted"
)
VOTES: Final = (
    "anything if the votes without noise become known: they are as private as the data and are not "
    "released"
)
NOISE: Final = (
    "drawn from the operating system's entropy on a grid, with its exact law; floating point has "
    "no part in it"
)


def tuning(compared: str, dataset: str) -> str:
    """How the default settings for a data set were found; ``compared`` were those of mnist."""
    match dataset:
        case "mnist":
            return (
                f"{compared} were compared on parts of the training images, but for one change of "
                "the student that was taken back after a look at the evaluated ones; this choice "
                "is not charged"
            )
        case "digits":
            return (
                f"{compared} were tried out on digits, its evaluated images included: this is a "
                "demonstration, not a measurement; the choice is not charged"
            )
        case "svhn" | "cifar10":
            return (
                "features, neighbours and teachers were compared on training images by how many "
                "labels were right, and students by what they learned from such labels; this "
                "choice is not charged"
            )
        case _:
            return (
                f"{compared} are not tuned for {dataset}: they follow those for mnist and what was "
                "published; this choice is not charged"
            )


def lost(count: int) -> tuple[str, ...]:
    """A note on answers that were paid for and that a crash took."""
    if not count:
        return ()
    return (f"{count:,} queries were charged and lost when the run was cut off",)
