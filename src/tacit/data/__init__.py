"""Public sets to learn privately from: found on this machine or downloaded, and checked.

`load` gives out a set as arrays, `get` downloads one, `names` lists them; `read_tsv` and
`read_text` read texts of your own. `by_document`, `by_author` and `by_window` make units of privacy
of a corpus. NumPy is all they need (and SciPy for SVHN).
"""

from __future__ import annotations

from tacit.data.description import Examples, Split
from tacit.data.sets import get, load, names
from tacit.data.texts import read_text, read_tsv
from tacit.data.units import Corpus, by_author, by_document, by_window

__all__ = [
    "Corpus",
    "Examples",
    "Split",
    "by_author",
    "by_document",
    "by_window",
    "get",
    "load",
    "names",
    "read_text",
    "read_tsv",
]
