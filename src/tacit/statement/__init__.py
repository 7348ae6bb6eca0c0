"""The claim as data: what a release guarantees, to whom, under which assumptions, and what not.

>>> from tacit.accounting import Gaussian, epsilon
>>> from tacit.accounting.serialization import as_dict
>>> claim = Statement(
...     epsilon=epsilon(Gaussian(4.0), 1e-5), delta=1e-5, event=as_dict(Gaussian(4.0)),
...     sampling="none", noise="fast", tacit_version="0.1.0",
... )
>>> more = extended(claim, preprocessing=[("a noisy mean of the inputs", Gaussian(8.0))])
>>> more.epsilon > claim.epsilon
True
"""

from tacit._numbers import rounded_down, rounded_up
from tacit.statement.claim import Statement, extended
from tacit.statement.evidence import Assessed
from tacit.statement.fields import Charge
from tacit.statement.figures import DataDependent, Figures
from tacit.statement.preprocessing import Access
from tacit.statement.signature import Signature

__all__ = [
    "Access",
    "Assessed",
    "Charge",
    "DataDependent",
    "Figures",
    "Signature",
    "Statement",
    "extended",
    "rounded_down",
    "rounded_up",
]
