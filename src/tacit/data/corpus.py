"""Plain text to be continued: windows of bytes, and for each byte the one that follows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tacit._files import read as read_plain
from tacit.data.catalogue import File, Known, Layout
from tacit.data.contents import LARGEST, Contents, digest, unpacked
from tacit.data.examples import Examples, Split
from tacit.errors import DataError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

# A byte's value is its class: an alphabet counted on the text would be a fact about the text.
CLASSES: Final = tuple(f"{value:#04x}" for value in range(256))
WINDOW: Final = 128
TRAINED: Final = 0.9


def read_text(path: str | Path, *, window: int = WINDOW) -> Split:
    """Reads a text of your own, split as `windows` says.

    Args:
        path: The file, plain or packed by gzip; its encoding does not matter.
        window: How many bytes an example has.
    """
    try:
        data = read_plain(Path(path), most=LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from None
    train, test = windows(Contents(str(path), data, False), window)
    name = Path(path).name
    return Split(name, train, test, CLASSES, {name: f"unverified {digest(data, None)}"})


def read(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """A published text."""
    return windows(next(contents), WINDOW)


def windows(contents: Contents, window: int) -> tuple[Examples, Examples]:
    """The first nine tenths to learn from, the last tenth to test on, each cut into windows.

    An example is ``window`` + 1 bytes in a row: all but the last are the input, all but the first
    the labels. No byte is in two examples, so that one example is all that a byte can change. What
    is left over at the end of each part is dropped.
    """
    if window < 1:
        raise InvalidArgument(f"window must be a whole number, 1 or more, got {window!r}")
    where, data, _ = unpacked(contents)
    text = np.frombuffer(data, np.uint8)
    cut = int(TRAINED * len(text))
    if min(cut, len(text) - cut) <= window:
        raise DataError(
            f"{where} has {len(text):,} bytes, too few for windows of {window}; choose shorter ones"
        )
    return _cut(text[:cut], window), _cut(text[cut:], window)


def _cut(text: np.ndarray[tuple[int], np.dtype[np.uint8]], window: int) -> Examples:
    count = len(text) // (window + 1)
    rows = text[: count * (window + 1)].reshape(count, window + 1)
    return Examples(rows[:, :-1].copy(), rows[:, 1:].astype(np.int64))


SHAKESPEARE: Final = Known(
    name="shakespeare",
    summary="Tiny Shakespeare, text in windows of 128 bytes",
    licence="public domain",
    examples=(7_781, 864),
    classes=CLASSES,
    folders=("text", "shakespeare"),
    layouts=(
        Layout(
            files=(
                File(
                    name="tinyshakespeare.txt",
                    size=1_115_394,
                    digest="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                    urls=(
                        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                        "tinyshakespeare/input.txt",
                        "https://raw.githubusercontent.com/jcjohnson/torch-rnn/master/data/"
                        "tiny-shakespeare.txt",
                    ),
                ),
            ),
            read=read,
        ),
    ),
)
