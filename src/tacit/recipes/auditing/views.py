"""What an audit asks about: examples, each in one or several views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.data import Examples

# Down and right, in pixels; view 0 is the image as it is.
_MOVES: Final = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))


def with_views(examples: Examples, views: int) -> Examples:
    """Every image as it is and moved by a pixel, all views of an image one after the other.

    >>> from tacit.data import load
    >>> len(with_views(load("digits").test, 5))
    1800
    """
    count = whole("views", views)
    if count == 1:
        return examples
    if count > len(_MOVES):
        raise InvalidArgument(f"views must be at most {len(_MOVES)}, got {count}")
    images = np.asarray(examples.inputs)
    if images.ndim != 4:
        raise InvalidArgument(f"views = {count} needs images, got inputs of {images.ndim} axes")
    moved = np.stack([_moved(images, *_MOVES[view]) for view in range(count)], axis=1)
    return replace(
        examples,
        inputs=moved.reshape(-1, *images.shape[1:]),
        labels=np.repeat(examples.labels, count),
    )


def _moved(images: NDArray[np.generic], down: int, right: int) -> NDArray[np.generic]:
    """Images moved by a pixel, continued by their own edges."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    height, width = images.shape[2:]
    return padded[:, :, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
