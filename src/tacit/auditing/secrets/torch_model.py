"""A PyTorch model as a ``NextToken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from tacit.auditing.secrets.scoring import NextToken


def next_token_of(model: nn.Module) -> NextToken:
    """Wraps a model that makes logits of shape (rows, length, vocabulary) of token numbers.

    It is asked in evaluation mode, where its first parameter is, and left as it was.

    >>> import numpy as np
    >>> embedding = torch.nn.Embedding(4, 4)
    >>> np.exp(next_token_of(embedding)(np.array([[0, 3]]))).sum(axis=-1).round(6)
    array([[1., 1.]], dtype=float32)
    """
    device = next(model.parameters()).device

    def next_token(tokens: NDArray[np.int64]) -> NDArray[np.floating]:
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                logits = model(torch.from_numpy(tokens).to(device)).float()
                found: NDArray[np.floating] = torch.log_softmax(logits, -1).cpu().numpy()
        finally:
            model.train(training)
        return found

    return next_token
