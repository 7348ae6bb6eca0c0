"""By how much each unit's gradient is scaled so that its norm stays within the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

# What rounding may hide from a computed norm, and what the weighted products may round up. Products
# in bfloat16 see 8 bits of each factor, TF32 sees 11; entries' errors are independent, so these
# margins are several times what is seen.
_MARGIN = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2**-7}
_TF32_MARGIN = 2**-9


def margin(dtypes: Iterable[torch.dtype], device: torch.device) -> float:
    """The relative margin that norms get before they are compared with the bound."""
    single = _MARGIN[torch.float32]
    largest = max((_MARGIN.get(dtype, single) for dtype in dtypes), default=single)
    if device.type == "cuda" and largest < _TF32_MARGIN and _uses_tf32():
        return _TF32_MARGIN
    return largest


def _uses_tf32() -> bool:
    return torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32


def scales(
    squared_norms: Tensor, bounds: Tensor, *, stability: float | None, slack: float, mask: Tensor
) -> Tensor:
    """The factor of every unit in every group, shape (groups, units), from norms of that shape.

    Without ``stability`` min(1, C/‖g‖) (Abadi et al. 2016); with it C/(‖g‖ + γ) (Bu et al. 2023,
    AUTO-S). A unit whose norm is not finite in some group, or that ``mask`` leaves out, gets 0.

    Guarantee:
        ‖scale·g‖ ≤ C for every unit, as long as the computed norm is within ``slack`` of the true.
    """
    norms = squared_norms.sqrt() * (1.0 + slack)
    limit = bounds.unsqueeze(1)
    factors = limit / norms.clamp(min=1e-30)
    factors = factors.clamp(max=1.0) if stability is None else limit / (norms + stability)
    usable = squared_norms.isfinite().all(0) & mask
    return torch.where(usable, factors, 0.0)
