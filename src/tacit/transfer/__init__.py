"""Knowledge transfer: a private crowd votes, a student learns, and it alone is released.

| part | names |
|---|---|
| a crowd | `Teachers` (with `views` of their images), `Votes` made elsewhere |
| answers | `LNMax`, `GNMax`, `ConfidentGNMax` by `label`; `InteractiveGNMax`; `StableMax` |
| queries | the first ones, or chosen: `label_in_rounds` with `uncertain` and `spread` |
| neighbours | `PrivateKnn`, `ReverseKnn`; `hog`, `cluster_centres`, `medoids` |
| a student | `train_student` |

What is charged holds whatever the votes are, and is charged before an answer. ``laplace_votes``,
``gaussian_votes``, ``confident_votes`` and ``likely_outcome`` have functions called
``data_dependent``, whose results are as private as the votes. ``sanitised_cost`` tells such a cost
with noise, by public numbers that ``plan_telling`` finds; ``smooth_sensitivity`` is what it rests
on. PATE's ``rates`` are here, too.
"""

from __future__ import annotations

from tacit._pickles import ModelFormat, PickledModels
from tacit.transfer import (
    confident_votes,
    gaussian_votes,
    laplace_votes,
    likely_outcome,
    smooth_sensitivity,
)
from tacit.transfer.active import spread, uncertain
from tacit.transfer.aggregators import Charges, ConfidentGNMax, GNMax, LNMax
from tacit.transfer.answers import Answers
from tacit.transfer.clusters import cluster_centres, medoids
from tacit.transfer.hog import hog
from tacit.transfer.interactive import InteractiveGNMax, label_interactively
from tacit.transfer.labelling import label
from tacit.transfer.neighbour_screening import screening_rdp
from tacit.transfer.neighbours import Neighbours
from tacit.transfer.planning import Telling, plan_telling, simulated_votes
from tacit.transfer.private_knn import PrivateKnn
from tacit.transfer.rates import Rate, rates
from tacit.transfer.reverse_knn import ReverseKnn, Tally
from tacit.transfer.rounds import label_in_rounds
from tacit.transfer.sanitised import Sanitised, sanitised_cost, telling_event
from tacit.transfer.sparse_vector_votes import StableMax
from tacit.transfer.stable_labelling import label_stable
from tacit.transfer.students import Student, train_student
from tacit.transfer.teachers import Teachers, views
from tacit.transfer.votes import Votes

__all__ = [
    "Answers",
    "Charges",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "ModelFormat",
    "Neighbours",
    "PickledModels",
    "PrivateKnn",
    "Rate",
    "ReverseKnn",
    "Sanitised",
    "StableMax",
    "Student",
    "Tally",
    "Teachers",
    "Telling",
    "Votes",
    "cluster_centres",
    "confident_votes",
    "gaussian_votes",
    "hog",
    "label",
    "label_in_rounds",
    "label_interactively",
    "label_stable",
    "laplace_votes",
    "likely_outcome",
    "medoids",
    "plan_telling",
    "rates",
    "sanitised_cost",
    "screening_rdp",
    "simulated_votes",
    "smooth_sensitivity",
    "spread",
    "telling_event",
    "train_student",
    "uncertain",
    "views",
]
