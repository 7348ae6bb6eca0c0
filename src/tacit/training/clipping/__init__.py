"""Per-example clipping: exact norms and clipped sums from one forward and one backward pass.

>>> import torch
>>> model = torch.nn.Linear(3, 1)
>>> x, y = torch.randn(8, 3), torch.randn(8)
>>> batch = clipped_gradients(
...     dict(model.named_parameters()), lambda: (model(x)[:, 0] - y) ** 2, rows=8, clip=1.0
... )
>>> batch.norms.shape, batch.sums["weight"].shape
(torch.Size([8]), torch.Size([1, 3]))
"""

from tacit.training.clipping.engine import Clipped, clipped_gradients

__all__ = ["Clipped", "clipped_gradients"]
