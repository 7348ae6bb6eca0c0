"""The private records in one place, and the part of them that some teachers are trained on."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from tacit._validation import whole
from tacit.data.units import unit_numbers
from tacit.errors import InvalidArgument
from tacit.transfer.teachers.schedule import seeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@final
@dataclass(frozen=True, eq=False)
class TeacherRecords:
    """All inputs and labels, row by row, and which rows belong to one unit of privacy.

    ``owners`` numbers the units from 0; without groups every row is its own. Inputs stay on the
    device they came on.
    """

    inputs: Tensor
    labels: Tensor
    owners: NDArray[np.int64]
    units: int

    def digest(self) -> str:
        """SHA-256 of everything: tells whether a folder is of these records. Private as they are.

        >>> len(read((np.zeros((4, 2)), [0, 1, 1, 0]), 2).digest())
        64
        """
        found = hashlib.sha256()
        for one in (self.inputs, self.labels, torch.from_numpy(self.owners)):
            found.update(f"{one.dtype} {tuple(one.shape)};".encode())
            found.update(one.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return found.hexdigest()


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Some teachers and nothing but their records: the first one's, then the second's."""

    teachers: tuple[int, ...]
    inputs: Tensor
    labels: Tensor
    sizes: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each teacher's records begin."""
        ends: NDArray[np.int64] = np.cumsum(self.sizes)
        return ends - self.sizes

    def of(self, place: int) -> tuple[Tensor, Tensor]:
        """The inputs and labels of the teacher at this place of ``teachers``."""
        rows = slice(int(self.starts[place]), int(self.starts[place] + self.sizes[place]))
        return self.inputs[rows], self.labels[rows]

    def to(self, device: torch.device | str) -> Part:
        """The same on another device."""
        return Part(self.teachers, self.inputs.to(device), self.labels.to(device), self.sizes)


def rows_by_teacher(
    records: TeacherRecords, assignment: NDArray[np.int64], count: int
) -> list[NDArray[np.int64]]:
    """The rows of each teacher in increasing order; ``assignment`` has the teacher of each unit."""
    teachers = assignment[records.owners]
    order = np.argsort(teachers, kind="stable")
    ends = np.cumsum(np.bincount(teachers, minlength=count))
    return np.split(order, ends[:-1])


def part(
    records: TeacherRecords, rows_of: Sequence[NDArray[np.int64]], teachers: Sequence[int]
) -> Part:
    """The records of these teachers."""
    rows = [rows_of[teacher] for teacher in teachers]
    chosen = torch.from_numpy(np.concatenate(rows))
    inputs = records.inputs[chosen.to(records.inputs.device)]
    sizes = np.array([len(one) for one in rows], dtype=np.int64)
    return Part(tuple(teachers), inputs, records.labels[chosen], sizes)


def read(
    dataset: Any, classes: int, groups: Sequence[int] | NDArray[np.int64] | None = None
) -> TeacherRecords:
    """The records of ``(inputs, labels)`` or of a map-style data set of such pairs.

    One whose label is no class is left out.
    """
    inputs, labels = _pair(dataset)
    rows = as_tensor("inputs", inputs)
    given = as_tensor("labels", labels).cpu()
    if given.ndim != 1 or len(given) != len(rows) or not len(rows):
        raise InvalidArgument(
            "dataset must have one label for each of its inputs, one or more; there are more or "
            f"fewer, or labels of {given.ndim} dimensions"
        )
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InvalidArgument(f"labels must be whole numbers, got {given.dtype}")
    given = given.long()  # of unsigned ones what is too large becomes negative, and so no class
    owners, units = _owners(groups, len(rows))
    known = (given >= 0) & (given < classes)
    if not bool(known.all()):  # as if they were not there: a refusal would tell of one
        rows, given, owners = rows[known.to(rows.device)], given[known], owners[known.numpy()]
    return TeacherRecords(rows, given, owners, units)


def as_tensor(name: str, value: Any) -> Tensor:
    """``value`` as a tensor of numbers; float64 becomes float32."""
    try:
        if isinstance(value, Tensor):
            found = value
        else:  # a copy of what cannot be written to: torch would warn of it
            found = torch.from_numpy(np.require(value, requirements="W"))
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(
            f"{name} must be an array of numbers, each row of the same shape; give "
            f"np.asarray({name}, dtype=…)"
        ) from None
    if found.ndim == 0:
        raise InvalidArgument(f"{name} must have one row for each record, got a single number")
    return found.detach().float() if found.dtype == torch.float64 else found.detach()


def _pair(dataset: Any) -> tuple[Any, Any]:
    if isinstance(dataset, DataLoader | IterableDataset):
        raise InvalidArgument(
            f"dataset must be (inputs, labels) or map-style, got a {type(dataset).__name__}; "
            "pass loader.dataset"
        )
    if type(dataset) is TensorDataset:
        dataset = dataset.tensors
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        return dataset[0], dataset[1]
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(
        dataset, tuple | list | np.ndarray | Tensor
    ):
        raise InvalidArgument(
            "dataset must be (inputs, labels) or a map-style data set of such pairs, got "
            f"{type(dataset).__name__}"
        )
    with seeded(0):
        pairs = [_alone(dataset, row) for row in range(len(dataset))]
    try:
        collected = default_collate(pairs)
    except (TypeError, ValueError, RuntimeError):  # whose message has a record's number and shape
        raise InvalidArgument(
            "dataset must give pairs (input, label) of one shape and type; bring them to one first"
        ) from None
    if not isinstance(collected, tuple | list) or len(collected) != 2:
        raise InvalidArgument("dataset must give pairs (input, label)")
    return collected[0], collected[1]


def _alone(dataset: Any, row: int) -> Any:
    """A record, read in the same random state as every other: as if there were no others.

    A random transform would else give all records behind one that is left out another distortion.
    """
    torch.default_generator.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the state that transforms draw from
    random.seed(0)
    return dataset[row]


def _owners(
    groups: Sequence[int] | NDArray[np.int64] | None, rows: int
) -> tuple[NDArray[np.int64], int]:
    if groups is None:
        return np.arange(rows, dtype=np.int64), rows
    named = np.shape(groups)
    if named != (rows,):
        raise InvalidArgument(
            f"groups must name the group of each record, and have one dimension, got {len(named)} "
            "dimensions, or more or fewer names"
        )
    return unit_numbers(groups)


TURN: Final = 0.18  # radians, at most
SCALE: Final = 0.1
SHEAR: Final = 0.16
SHIFT: Final = 0.09  # of half the image's width
BEND: Final = 0.05  # the spread of the same, at 5×5 places between which the image is bent


def views(images: NDArray[np.uint8] | Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Images with distorted copies: shape (images, count, channels, height, width).

    The distortions are drawn once from a public seed, and all images get the same ones. Were they
    drawn image by image from a known seed, to leave a record out would give all that follow it
    other copies, and change every teacher. Give all views of a record the same group:

    ``Teachers(make, (rows, labels.repeat(count)), …, groups=np.arange(n).repeat(count))``

    Guarantee:
        The views of an image depend on it and on public numbers alone.

    Args:
        images: uint8, shape (images, channels, height, width).
        count: How many views, the image itself being the first.
        seed: Of the distortions.

    >>> views(torch.zeros(3, 1, 28, 28, dtype=torch.uint8), 4).shape
    torch.Size([3, 4, 1, 28, 28])
    """
    if str(images.dtype) not in ("uint8", "torch.uint8") or images.ndim != 4:
        raise InvalidArgument(
            "images must be uint8 of shape (images, channels, height, width), got "
            f"{images.dtype} of shape {tuple(images.shape)}"
        )
    pixels = images if isinstance(images, Tensor) else torch.tensor(images)
    drawn = np.random.default_rng(whole("seed", seed, at_least=0))
    found = [pixels]
    for _ in range(whole("count", count) - 1):
        grid = _grid(drawn, pixels.shape[2], pixels.shape[3]).to(pixels.device)
        moved = functional.grid_sample(
            pixels.float(), grid.expand(len(pixels), -1, -1, -1), align_corners=False
        )
        found.append(moved.round_().clamp_(0, 255).to(torch.uint8))
    return torch.stack(found, dim=1)


def _grid(drawn: np.random.Generator, height: int, width: int) -> Tensor:
    """Where each pixel of one random distortion comes from, shape (1, height, width, 2)."""
    turn, scale, shear = drawn.uniform(-1, 1, 3) * (TURN, SCALE, SHEAR)
    cosine, sine = (1 + scale) * np.cos(turn), np.sin(turn)
    shift = drawn.uniform(-SHIFT, SHIFT, 2)
    affine = np.array([[[cosine, shear - sine, shift[0]], [sine, cosine, shift[1]]]])
    bend = torch.from_numpy(drawn.normal(0.0, BEND, (1, 2, 5, 5))).float()
    smooth = functional.interpolate(bend, (height, width), mode="bicubic", align_corners=True)
    grid = functional.affine_grid(
        torch.from_numpy(affine).float(), [1, 1, height, width], align_corners=False
    )
    return grid + smooth.permute(0, 2, 3, 1)
