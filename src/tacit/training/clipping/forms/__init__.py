"""Per-example gradients of one weight, in the compact shape that its operation leaves them in.

A form knows its squared norms and its weighted sum without writing a gradient per example, unless
that is the cheapest way. Each kind is one file with a plain PyTorch path.
"""

from tacit.training.clipping.forms.convolution import Convolution
from tacit.training.clipping.forms.dense import Dense
from tacit.training.clipping.forms.form import Form
from tacit.training.clipping.forms.one_hot import OneHot
from tacit.training.clipping.forms.outer import Outer

__all__ = ["Convolution", "Dense", "Form", "OneHot", "Outer"]
