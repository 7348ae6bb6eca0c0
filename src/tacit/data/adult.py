"""UCI Adult: does a person earn more than $50,000 a year? Encoded without looking at the data.

Guarantee: an encoded row depends on that person's line and on the constants below, never on other
people's lines. The categories are those of the published ``adult.names``; the ranges follow from
what a column means. A number outside its range is put at its end, so every feature lies in [0, 1]
and a row is never longer than `LONGEST_ROW`, whatever the file holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tacit.data.contents import Contents, unpacked
from tacit.data.description import Examples, FileLayout, Known, files, packed
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CLASSES: Final = ("<=50K", ">50K")
UNKNOWN: Final = "?"


@final
@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, put onto [0, 1] in proportion."""

    low: int
    high: int


@final
@dataclass(frozen=True, slots=True)
class Logarithm:
    """Amounts x from 0 to ``most``, put onto [0, 1] as log(1 + x) in proportion."""

    most: int


# The columns in the file's order: how it is put onto [0, 1], its categories, or nothing (left out:
# fnlwgt is a weight of the census, not a fact about the person).
COLUMNS: Final[dict[str, Range | Logarithm | tuple[str, ...] | None]] = {
    "age": Range(17, 90),
    "workclass": (
        *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov"),
        *("State-gov", "Without-pay", "Never-worked"),
    ),
    "fnlwgt": None,
    "education": (
        *("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm"),
        *("Assoc-voc", "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate"),
        *("5th-6th", "Preschool"),
    ),
    "education-num": Range(1, 16),
    "marital-status": (
        *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
        *("Married-spouse-absent", "Married-AF-spouse"),
    ),
    "occupation": (
        *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial"),
        *("Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical"),
        *("Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv"),
        "Armed-Forces",
    ),
    "relationship": (
        *("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    ),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": Logarithm(100_000),
    "capital-loss": Logarithm(100_000),
    "hours-per-week": Range(1, 99),
    "native-country": (
        *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany"),
        *("Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba"),
        *("Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico"),
        *("Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan"),
        *("Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand"),
        *("Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands"),
    ),
}
FEATURES: Final = tuple(
    feature
    for column, encoding in COLUMNS.items()
    if encoding is not None
    for feature in (
        [f"{column}={value}" for value in encoding] if isinstance(encoding, tuple) else [column]
    )
)
LONGEST_ROW: Final = math.sqrt(sum(encoding is not None for encoding in COLUMNS.values()))


def read(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """``adult.data``, then ``adult.test``."""
    return _people(next(contents)), _people(next(contents))


def _people(contents: Contents) -> Examples:
    where, data, _ = unpacked(contents)
    rows = [
        [cell.strip() for cell in line.split(",")]
        for line in data.decode("latin-1").splitlines()
        if line.strip() and not line.startswith("|")  # adult.test opens with such a remark
    ]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(COLUMNS) + 1:
            raise DataError(
                f"{where}: person {number} has {len(row)} columns, not 15; get it again"
            )
    columns = list(zip(*rows, strict=True))
    if not columns:
        raise DataError(f"{where} holds nobody; get it again")
    blocks = [
        _encoded(where, name, cells)
        for name, cells in zip(COLUMNS, columns[:-1], strict=True)
        if COLUMNS[name] is not None
    ]
    return Examples(np.hstack(blocks), _labels(where, columns[-1]))


def _encoded(where: str, name: str, cells: tuple[str, ...]) -> NDArray[np.float64]:
    encoding = COLUMNS[name]
    match encoding:
        case Range(low, high):
            return np.clip((_numbers(where, name, cells) - low) / (high - low), 0.0, 1.0)
        case Logarithm(most):
            return np.clip(np.log1p(_numbers(where, name, cells)) / math.log1p(most), 0.0, 1.0)
        case _:
            return _one_hot(where, name, cells, encoding or ())


def _numbers(where: str, name: str, cells: tuple[str, ...]) -> NDArray[np.float64]:
    try:
        values = np.array(cells, dtype=np.float64)[:, None]
    except ValueError as error:
        raise DataError(f"{where}: {name} holds what is no number ({error})") from None
    if not (values >= 0).all():
        raise DataError(f"{where}: {name} holds a number below 0, which no person has")
    return values


def _one_hot(
    where: str, name: str, cells: tuple[str, ...], categories: tuple[str, ...]
) -> NDArray[np.float64]:
    """A one at the person's category; all zeros where it is unknown."""
    place = {category: number for number, category in enumerate(categories)} | {UNKNOWN: -1}
    try:
        places = np.array([place[cell] for cell in cells])
    except KeyError as error:
        raise DataError(f"{where}: {name} holds {error}, which adult.names has not") from None
    encoded = np.zeros((len(cells), len(categories)))
    known = np.flatnonzero(places >= 0)
    encoded[known, places[known]] = 1.0
    return encoded


def _labels(where: str, cells: tuple[str, ...]) -> NDArray[np.int64]:
    """In adult.test the labels end with a full stop."""
    try:
        return np.array([CLASSES.index(cell.rstrip(".")) for cell in cells], np.int64)
    except ValueError:
        raise DataError(f"{where} has labels other than {' and '.join(CLASSES)}") from None


_ADULT_SHA256: Final = (
    "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
)
ADULT: Final = Known(
    name="adult",
    summary="UCI Adult, a census of 1994: above $50,000?",
    licence="CC BY 4.0",
    examples=(32_561, 16_281),
    classes=CLASSES,
    folders=("adult",),
    layouts=(
        FileLayout(
            files=files(
                f"adult.data 3974305 {_ADULT_SHA256[0]}\nadult.test 2003153 {_ADULT_SHA256[1]}",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
            ),
            read=read,
        ),
        FileLayout(
            files=(
                packed("adult.data.gz", "gzip", _ADULT_SHA256[0]),
                packed("adult.test.gz", "gzip", _ADULT_SHA256[1]),
            ),
            read=read,
        ),
    ),
)
