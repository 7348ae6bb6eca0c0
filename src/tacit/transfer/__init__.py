"""Knowledge transfer: a private crowd votes, a student learns, and it alone is released.

The room will hold teachers, aggregators, Private-kNN, reverse-kNN and students. It holds now what
the votes of teachers cost: ``Votes``, the analysis of LNMax (``laplace_votes``), GNMax
(``gaussian_votes``) and Confident-GNMax (``confident_votes``), what it costs to tell GNMax's
data-dependent cost with noise (``smooth_sensitivity``), and the table of PATE's ``rates``.

Each analysis has a ``charge``, an event that holds whatever the votes are, and functions called
``data_dependent``, whose results are as private as the votes.
"""

from __future__ import annotations

from tacit.transfer import confident_votes, gaussian_votes, laplace_votes, smooth_sensitivity
from tacit.transfer.confident_votes import Screening
from tacit.transfer.rates import Rate, rates
from tacit.transfer.votes import Votes

__all__ = [
    "Rate",
    "Screening",
    "Votes",
    "confident_votes",
    "gaussian_votes",
    "laplace_votes",
    "rates",
    "smooth_sensitivity",
]
