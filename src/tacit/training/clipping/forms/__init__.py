"""Per-example gradients of one weight, in the compact shape that its operation leaves them in.

A form knows its squared norms and its weighted sum without writing a gradient per example, unless
that is the cheapest way. Each has a plain PyTorch path.
"""

from tacit.training.clipping.forms.convolution import Convolution
from tacit.training.clipping.forms.matrix import Dense, Form, Nothing, OneHot, Outer
from tacit.training.clipping.forms.projected import Projected

__all__ = ["Convolution", "Dense", "Form", "Nothing", "OneHot", "Outer", "Projected"]
