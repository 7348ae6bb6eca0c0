"""The list of all sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tacit.data import adult, cifar, corpus, digits, idx, svhn, tsv
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.data.catalogue import Known

SETS: Final = {
    known.name: known
    for known in (
        digits.DIGITS,
        idx.MNIST,
        idx.FASHION,
        cifar.CIFAR10,
        svhn.SVHN,
        adult.ADULT,
        tsv.SST2,
        tsv.SMS,
        corpus.SHAKESPEARE,
    )
}


def names() -> tuple[str, ...]:
    """The names of all sets.

    >>> names()[:4]
    ('digits', 'mnist', 'fashion', 'cifar10')
    """
    return tuple(SETS)


def known(name: str) -> Known:
    """What is known of a set."""
    if name not in SETS:
        raise InvalidArgument(f"name must be one of {', '.join(SETS)}, got {name!r}")
    return SETS[name]
