"""Units of text: what of a corpus belongs together, and is protected as one.

A guarantee protects units. Whether a unit is a document, everything that one author wrote, or a
window of a long text is a choice that nobody can read off the numbers: it is made here, in public,
and said in the claim (``unit_in_words`` of ``tacit.Prepared`` and ``tacit.hf.PrivateTrainer``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable
from dataclasses import dataclass
from operator import eq
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


_WORDS = {
    "document": "one document of the corpus, whoever wrote it: an author of several is not "
    "protected as a whole, nor is a text that is there more than once",
    "author": "everything that one author contributed to the corpus under one name",
    "window": "one window of the text: what fills several windows, or is said in several, is not "
    "protected as a whole",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Texts, and the unit that each belongs to.

    Args:
        texts: The texts, one row each.
        groups: The unit of every text, as ``tacit.private(groups=...)`` takes them.
        kind: What a unit is.
    """

    texts: tuple[str, ...]
    groups: NDArray[np.int64]
    kind: Literal["document", "author", "window"]

    def __post_init__(self) -> None:
        if not self.texts or len(self.texts) != len(self.groups):
            raise InvalidArgument(
                "texts must be one or more, each with its unit, got "
                f"{len(self.texts)} texts and {len(self.groups)} units"
            )
        for at, text in enumerate(self.texts):
            if not isinstance(text, str):
                raise InvalidArgument(
                    f"texts must be strings, got a {type(text).__name__} for text {at}: leave out "
                    "what is missing, and decode bytes"
                )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def units(self) -> int:
        """How many units there are; the plan's ``examples``. It is public."""
        return len(np.unique(self.groups))

    @property
    def unit_in_words(self) -> str:
        """What a unit is, for the claim."""
        return _WORDS[self.kind]

    def plan_terms(self, *, examples_per_user: int | None = None) -> dict[str, Any]:
        """What a plan must say of these units: ``Plan.for_budget(..., **corpus.plan_terms())``.

        ``examples_per_user`` is needed for authors, and only for them: the public cap on the texts
        that one of them adds to a lot. It must not be read off the texts.

        >>> by_document(["to be", "or not"]).plan_terms()
        {'examples': 2, 'unit': 'example'}
        """
        if (examples_per_user is not None) != (self.kind == "author"):
            raise InvalidArgument(
                f"examples_per_user must be given for authors, and only for them, got "
                f"{examples_per_user!r} for units that are {self.kind}s"
            )
        if examples_per_user is not None:
            cap = whole("examples_per_user", examples_per_user)
            return {"examples": self.units, "unit": "user", "examples_per_user": cap}
        return {"examples": self.units, "unit": "example"}


def by_document(texts: Iterable[str]) -> Corpus:
    """Every text is a unit by itself.

    >>> by_document(["to be", "or not"]).units
    2
    """
    found = _several(texts)
    return Corpus(found, np.arange(len(found), dtype=np.int64), "document")


def _several(texts: Iterable[str]) -> tuple[str, ...]:
    """Refuses one text, of which each character would be a unit."""
    if isinstance(texts, str | bytes):
        raise InvalidArgument(
            f"texts must be several, got one of {len(texts)} characters: pass a list of documents, "
            "or cut it with by_window(text, length)"
        )
    return tuple(texts)


def by_author(texts: Sequence[str], authors: Sequence[Hashable]) -> Corpus:
    """All texts of an author are one unit, however many there are.

    Args:
        texts: The texts.
        authors: Who wrote each: a name or a number; an array or a tensor of them will do.

    Guarantee:
        Two texts have the same unit if and only if their authors are equal. Texts without an author
        are refused, and so are authors who differ only in case, spaces or type ("7" and 7), for
        they may be one person whose texts would be protected apart.

    >>> by_author(["to be", "or not", "away"], ["Ann", "Ben", "Ann"]).groups.tolist()
    [0, 1, 0]
    """
    rows = _several(texts)
    if len(rows) != len(authors):
        raise InvalidArgument(
            f"authors must name the author of every text, got {len(authors)} for {len(rows)}"
        )
    # The numbers in a tensor are tensors, of which no two are equal as keys.
    named = authors.tolist() if hasattr(authors, "tolist") else [*authors]
    numbers: dict[Hashable, int] = {}
    spellings: dict[str, int] = {}  # the first text of each
    groups = []
    for at, author in enumerate(named):
        if _is_missing(author):
            raise InvalidArgument(
                f"authors must name the author of every text, got none for text {at}; leave such "
                "texts out, or give each of them an author of its own"
            )
        if author not in numbers:
            first = spellings.setdefault(_spelling(author), at)
            if first != at:
                raise InvalidArgument(
                    f"the authors of texts {first} and {at} differ only in case, spaces or type: "
                    "write them alike if they are one person, or number the authors"
                )
        groups.append(numbers.setdefault(author, len(numbers)))
    return Corpus(rows, np.array(groups, np.int64), "author")


def _is_missing(author: Any) -> bool:
    """Whether it is None, NaN or pandas' NA, a blank, or nothing that names anybody."""
    if author is None or not isinstance(author, Hashable) or not str(author).strip():
        return True
    try:
        return not bool(eq(author, author))
    except (TypeError, ValueError):
        return True


def unit_numbers(groups: Any) -> tuple[NDArray[np.int64], int]:
    """The unit of every record by the name of its group, numbered from 0, and how many there are.

    Guarantee:
        Two records have the same number if and only if their groups are equal. Records without a
        group (None, NaN, a masked or blank one) are refused: whose they are is not known, and may
        be somebody's who has others.

    >>> unit_numbers(["b", "a", "b"])
    (array([1, 0, 1]), 2)
    """
    # Of a list NumPy makes one type, and so the text "nan" of a number that is missing.
    names = np.asarray(groups, dtype=object if isinstance(groups, list | tuple) else None)
    if np.ma.is_masked(groups) or bool(np.any(_without_name(names))):
        raise InvalidArgument(
            "groups must name the group of every record, got none for some of them; leave those "
            "out, or give each a group of its own"
        )
    try:
        found, numbers = np.unique(names, return_inverse=True)
    except TypeError:
        found, numbers = names[:0], names[:0]
    # Sorting also tears apart what has no order, such as sets.
    if names.dtype == object and len(found) != len(set(names.ravel().tolist())):
        raise InvalidArgument("groups must be of one type: all numbers, or all texts")
    return numbers.astype(np.int64), len(found)


def _without_name(names: NDArray[Any]) -> Any:
    """Which names of groups are none."""
    if names.dtype.kind in "fc":
        return np.isnan(names)
    if names.dtype.kind in "mM":
        return np.isnat(names)
    if names.dtype.kind == "U":
        return np.char.strip(names) == ""
    if names.dtype.kind == "S":
        return np.char.strip(names) == b""
    if names.dtype.kind == "O":
        return np.fromiter(map(_is_missing, names.ravel().tolist()), dtype=np.bool_)
    return np.zeros(names.shape, dtype=np.bool_)


def _spelling(author: Hashable) -> str:
    known = unicodedata.normalize("NFKC", str(author)).casefold()
    seen = (sign for sign in known if unicodedata.category(sign) != "Cf")  # of no width, say
    return " ".join("".join(seen).split())


def by_window(text: str, length: int) -> Corpus:
    """A long text in windows of ``length`` characters that do not overlap; the last is shorter.

    >>> by_window("to be or not", 5).texts
    ('to be', ' or n', 'ot')
    """
    size = whole("length", length)
    found = tuple(text[begin : begin + size] for begin in range(0, len(text), size))
    return Corpus(found, np.arange(len(found), dtype=np.int64), "window")
