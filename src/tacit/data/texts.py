"""Texts: with labels, one a line (SST-2, the SMS spam collection, your own), or to be continued."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tacit._files import read as read_plain
from tacit.data.contents import LARGEST, Contents, members, unpacked
from tacit.data.description import (
    UNVERIFIED,
    Examples,
    File,
    FileLayout,
    Known,
    Split,
    file,
    files,
    fixed_split,
    packed,
)
from tacit.errors import DataError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


LABEL_NAMES = frozenset({"label", "class", "target", "sentiment"})
TEXT_NAMES = frozenset({"text", "sentence", "message", "review", "sms"})
SST2_ARCHIVE = ("SST-2/train.tsv", "SST-2/dev.tsv")
SMS_TESTED = 0.2


def read_tsv(
    path: str | Path, *, classes: Sequence[str] | None = None
) -> tuple[Examples, tuple[str, ...]]:
    """Reads lines ``label<TAB>text`` or ``text<TAB>label``, with a line of column names or without.

    Args:
        path: The file, in UTF-8, plain or packed by gzip.
        classes: The labels as they are written, in the order of their numbers. When they are given,
            they also tell which column has the labels. Otherwise the column names tell, or else the
            column with fewer different values; the classes are then the labels found, sorted. They
            are a (small) fact about the data: give them where the data is private.

    Returns:
        The examples, and the classes.
    """
    try:
        data = read_plain(Path(path), most=LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from None
    return parsed(Contents(str(path), data, False), None if classes is None else tuple(classes))


def read_sst2(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """GLUE's training sentences, cut in two or whole, then the sentences to test on."""
    *train, test = (parsed(one, ("0", "1"))[0] for one in contents)
    return joined(train), test


def read_sst2_archive(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """GLUE's archive: its dev sentences are the test, for those of its test have no labels."""
    return read_sst2(iter(members(next(contents), SST2_ARCHIVE)))


def read_sms(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """Messages, split by the fixed permutation."""
    found = parsed(next(contents), ("ham", "spam"))[0]
    train, test = fixed_split(len(found), int(SMS_TESTED * len(found)))
    return _chosen(found, train.tolist()), _chosen(found, test.tolist())


def joined(parts: Sequence[Examples]) -> Examples:
    """The examples of several parts, one after the other."""
    texts = tuple(str(text) for part in parts for text in part.inputs)
    return Examples(texts, np.concatenate([part.labels for part in parts]))


def parsed(contents: Contents, classes: tuple[str, ...] | None) -> tuple[Examples, tuple[str, ...]]:
    """What `read_tsv` gives, of bytes that were read already."""
    where = contents.where
    rows = _rows(unpacked(contents))
    names = tuple(cell.strip().lower() for cell in rows[0])
    named = len(LABEL_NAMES & {*names}) == 1 and len(TEXT_NAMES & {*names}) == 1
    body = rows[1:] if named else rows
    if not body:
        raise DataError(f"{where} has column names, but no lines below them")
    label = int(names[1] in LABEL_NAMES) if named else _label_column(where, body, classes)
    labels = [row[label].strip() for row in body]
    if classes is None:
        classes = tuple(sorted({*labels}))
    number = {name: place for place, name in enumerate(classes)}
    for line, one in enumerate(labels, start=1 + named):
        if one not in number:
            raise DataError(
                f"{where}, line {line}: the label {one!r:.40} is none of {', '.join(classes)}"
            )
    texts = tuple(row[1 - label].strip() for row in body)
    return Examples(texts, np.array([number[one] for one in labels], np.int64)), classes


def _rows(contents: Contents) -> list[list[str]]:
    try:
        text = contents.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{contents.where} is not in UTF-8 ({error.reason}); convert it") from None
    # Not splitlines(): a message may hold one of the rarer signs that it takes for a line's end.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip()]
    for number, row in rows:
        if len(row) != 2:
            raise DataError(
                f"{contents.where}, line {number}: there must be a label, a tab and a text, "
                f"got {len(row)} column{'' if len(row) == 1 else 's'}"
            )
    if not rows:
        raise DataError(f"{contents.where} holds no lines")
    return [row for _, row in rows]


def _label_column(where: str, rows: list[list[str]], classes: tuple[str, ...] | None) -> int:
    values = [{row[column].strip() for row in rows} for column in (0, 1)]
    if classes is not None:
        return int(not values[0] <= {*classes})
    if len(values[0]) == len(values[1]):
        raise DataError(f"{where}: either column could hold the labels; give the classes")
    return int(len(values[1]) < len(values[0]))


def _chosen(found: Examples, rows: Sequence[int]) -> Examples:
    return Examples(tuple(str(found.inputs[row]) for row in rows), found.labels[rows])


_SST2_MD5: Final = ("da409a0a939379ed32a470bc0f7fe99a", "268856b487b2a31a28c0a93daaff7288")
_SMS_SHA256: Final = "7d039a24a6083ed9ef0f806ebad56bbb976e3aeb8de05669173bfdc4996c239d"
# The MD5 are those that torchtext and PaddleNLP check. The last layout has GLUE's training
# sentences in two parts, train and dev, and GLUE's dev under the name of test.
SST2: Final = Known(
    name="sst2",
    summary="GLUE's SST-2, sentences on films: good?",
    licence="as GLUE",
    examples=(67_349, 872),
    classes=("negative", "positive"),
    folders=("text/sst2", "sst2", "SST-2", "text/sst2/SST-2"),
    layouts=(
        FileLayout(
            files=(
                file(
                    "SST-2.zip",
                    7_439_277,
                    "9f81648d4199384278b86e315dac217c",
                    "https://dl.fbaipublicfiles.com/glue/data/",
                ),
            ),
            read=read_sst2_archive,
        ),
        FileLayout(
            files=(
                file("train.tsv", None, _SST2_MD5[0]),
                file("dev.tsv", None, _SST2_MD5[1]),
            ),
            read=read_sst2,
        ),
        FileLayout(
            files=files(
                """
train.tsv 3422882 920e317b2c52e12cd22db1da2c6708312bd7dc4f3712b9bbf1b50ee6c2c792ba
dev.tsv 383214 92353770071a2a889f75d000a38a9e541ea8f0a5499e50f040b17917a5cbf66f
test.tsv 94931 54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0
"""
            ),
            read=read_sst2,
        ),
    ),
)

SMS: Final = Known(
    name="sms",
    summary="the SMS spam collection, messages: spam?",
    licence="CC BY 4.0",
    examples=(4_460, 1_114),
    classes=("ham", "spam"),
    folders=("text", "sms"),
    layouts=(
        FileLayout(
            files=(
                packed(
                    "sms+spam+collection.zip",
                    "SMSSpamCollection",
                    _SMS_SHA256,
                    "https://archive.ics.uci.edu/static/public/228/sms+spam+collection.zip",
                    "https://archive.ics.uci.edu/ml/machine-learning-databases/00228/"
                    "smsspamcollection.zip",
                ),
            ),
            read=read_sms,
        ),
        FileLayout(files=(file("sms_spam.tsv", 477_907, _SMS_SHA256),), read=read_sms),
        FileLayout(files=(file("SMSSpamCollection", 477_907, _SMS_SHA256),), read=read_sms),
    ),
)


# ---- plain text to be continued


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
    return Split(name, train, test, CLASSES, {name: UNVERIFIED})


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


_SHAKESPEARE: Final = File(
    name="tinyshakespeare.txt",
    size=1_115_394,
    digest="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    urls=(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "https://raw.githubusercontent.com/jcjohnson/torch-rnn/master/data/tiny-shakespeare.txt",
    ),
)

SHAKESPEARE: Final = Known(
    name="shakespeare",
    summary="Tiny Shakespeare, text in windows of 128 bytes",
    licence="public domain",
    examples=(7_781, 864),
    classes=CLASSES,
    folders=("text", "shakespeare"),
    layouts=(FileLayout(files=(_SHAKESPEARE,), read=read),),
)


def read_speeches(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """The speeches of a play, each with the number of its speaker in the order of the alphabet.

    Speakers are told apart without regard to case and spaces: NURSE and Nurse are one.
    A speech begins with its speaker's name and a colon, and ends at an empty line. Those that begin
    in the first nine tenths of the text are to learn from, the others to test on.
    """
    where, data, _ = unpacked(next(contents))
    try:
        parts = data.decode("utf-8").split("\n\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not in UTF-8 ({error.reason}); convert it") from None
    ends = np.cumsum([len(part.encode()) + 2 for part in parts])
    speeches = [part.strip("\n") for part in parts]
    names = [speech.partition("\n")[0].strip(" :").casefold() for speech in speeches]
    speakers = [" ".join(name.split()) for name in names]
    number = {name: at for at, name in enumerate(sorted({*speakers}))}
    found = Examples(tuple(speeches), np.array([number[one] for one in speakers], np.int64))
    cut = int(np.searchsorted(ends, TRAINED * len(data)))
    rows = range(len(found))
    return _chosen(found, [*rows[:cut]]), _chosen(found, [*rows[cut:]])


SPEECHES: Final = Known(
    name="speeches",
    summary="Tiny Shakespeare by speeches, with their speakers",
    licence="public domain",
    examples=(6_282, 940),
    classes=tuple(f"speaker {number}" for number in range(302)),
    folders=("text", "shakespeare"),
    layouts=(FileLayout(files=(_SHAKESPEARE,), read=read_speeches),),
)
