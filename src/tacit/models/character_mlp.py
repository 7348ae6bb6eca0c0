"""A small model of text: the next character from the few before it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit._validation import whole

__all__ = ["CharacterMlp"]


class CharacterMlp(nn.Module):
    """One hidden layer over the last characters (after Bengio et al. 2003).

    Each place sees ``context`` characters and nothing else; before a text's beginning it sees
    zeros. All places of a text are computed at once. Characters stand for themselves as random
    codes, which are drawn once and not learned: they cost no privacy. With tanh, which is odd,
    contexts that have little in common have little to do with one another from the first step on.

    Args:
        symbols: how many characters there are.
        context: how many of the last ones are looked at.
        width: of the hidden layer.
        code: how many numbers a character becomes.

    >>> CharacterMlp()(torch.zeros(2, 50, dtype=torch.int64)).shape
    torch.Size([2, 50, 128])
    """

    def __init__(
        self, symbols: int = 128, *, context: int = 8, width: int = 128, code: int = 16
    ) -> None:
        super().__init__()
        self.context = whole("context", context)
        self.codes: Tensor
        self.register_buffer("codes", torch.randn(whole("symbols", symbols), whole("code", code)))
        self.hidden = nn.Linear(context * code, whole("width", width))
        self.last = nn.Linear(width, symbols)
        nn.init.normal_(self.hidden.weight, std=2.0 / (context * code) ** 0.5)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of what follows each place, shape (texts, places, symbols)."""
        codes = F.pad(F.embedding(tokens, self.codes), (0, 0, self.context - 1, 0))
        seen = codes.unfold(1, self.context, 1).flatten(2)
        scores: Tensor = self.last(torch.tanh(self.hidden(seen)))
        return scores
