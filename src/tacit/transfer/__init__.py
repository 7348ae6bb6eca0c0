"""Knowledge transfer: private data vote, a student learns from the votes, and it alone is released.

| part | names |
|---|---|
| a crowd | `Teachers` (with `views` of their images), `Votes` made elsewhere |
| answers | `LNMax`, `GNMax`, `ConfidentGNMax` by `label`; `InteractiveGNMax`; `StableMax` |
| queries | the first ones, or chosen: `label_in_rounds` with `uncertain` and `spread` |
| neighbours | `PrivateKnn`, `ReverseKnn`; `hog`, `cluster_centres`, `medoids` |
| a student | `train_student` |

What is charged holds whatever the votes are, and is charged before an answer. ``laplace_votes``,
``gaussian_votes`` and ``confident_votes`` have functions called ``data_dependent``, whose results
are as private as the votes; ``rdp_cost`` has the theorems. ``sanitised_cost`` releases such a cost
with noise, by public numbers that ``plan_cost_release`` finds; it rests on ``smooth_sensitivity``.
PATE's ``rates`` are here, too.
"""

from __future__ import annotations

from tacit._pickles import ModelFormat, PickledModels
from tacit.transfer import (
    confident_votes,
    gaussian_votes,
    laplace_votes,
    rdp_cost,
    smooth_sensitivity,
)
from tacit.transfer.active import label_in_rounds, spread, uncertain
from tacit.transfer.aggregators import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from tacit.transfer.charges import Charges
from tacit.transfer.data_dependent_claim import (
    CostRelease,
    Sanitised,
    cost_release_event,
    plan_cost_release,
    sanitised_cost,
    simulated_votes,
)
from tacit.transfer.hog import hog
from tacit.transfer.labels import Answers, label
from tacit.transfer.neighbours import Neighbours, cluster_centres, medoids
from tacit.transfer.private_knn import PrivateKnn
from tacit.transfer.rates import PateRate, rates
from tacit.transfer.rdp_cost import screening_rdp
from tacit.transfer.reverse_knn import ReverseKnn, Tally
from tacit.transfer.sequential_labels import label_interactively, label_stable
from tacit.transfer.stable_max import StableMax
from tacit.transfer.students import Student, train_student
from tacit.transfer.teachers import Teachers, views
from tacit.transfer.votes import Votes

__all__ = [
    "Answers",
    "Charges",
    "ConfidentGNMax",
    "CostRelease",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "ModelFormat",
    "Neighbours",
    "PateRate",
    "PickledModels",
    "PrivateKnn",
    "ReverseKnn",
    "Sanitised",
    "StableMax",
    "Student",
    "Tally",
    "Teachers",
    "Votes",
    "cluster_centres",
    "confident_votes",
    "cost_release_event",
    "gaussian_votes",
    "hog",
    "label",
    "label_in_rounds",
    "label_interactively",
    "label_stable",
    "laplace_votes",
    "medoids",
    "plan_cost_release",
    "rates",
    "rdp_cost",
    "sanitised_cost",
    "screening_rdp",
    "simulated_votes",
    "smooth_sensitivity",
    "spread",
    "train_student",
    "uncertain",
    "views",
]
