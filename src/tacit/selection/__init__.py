"""Private choice among candidates: hyper-parameter tuning, with what it costs.

Trying several settings and keeping the best tells more about the data than one run does. A private
search draws the number of runs at random, tells only the winner, and charges for the choice. Where
the candidates are there already and only their scores are private, ``first_above`` finds one that
is good enough by the sparse vector technique, at a cost that does not grow with their number.
"""

from __future__ import annotations

from tacit._pickles import ModelFormat, PickledModels
from tacit._workers import RayCluster
from tacit.selection.found import Found
from tacit.selection.scores import (
    PrivateScore,
    PublicScore,
    ReturnedScore,
    Trained,
    noisy_accuracy,
    public_set,
)
from tacit.selection.screening import first_above
from tacit.selection.search import private_search
from tacit.selection.terms import Allowance

__all__ = [
    "Allowance",
    "Found",
    "ModelFormat",
    "PickledModels",
    "PrivateScore",
    "PublicScore",
    "RayCluster",
    "ReturnedScore",
    "Trained",
    "first_above",
    "noisy_accuracy",
    "private_search",
    "public_set",
]
