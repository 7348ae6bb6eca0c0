"""Audits of one run with many canaries, each of them in or out by its own fair coin.

White box: ``white_box`` trains a model by ``tacit.private`` with canaries beside the data and reads
their scores off the released gradients. Black box: ``one_run_audit`` takes the scores that any
attack on a finished model gives.

>>> import numpy as np
>>> draw = np.random.default_rng(1)
>>> included = draw.random(1000) < 0.5
>>> scores = 3.0 * included + draw.normal(size=1000)  # what an attack found
>>> round(one_run_audit(scores, included, delta=1e-5).epsilon, 2)
4.04
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy
from tacit.auditing.canaries.guesses import guess, one_run_audit

if TYPE_CHECKING:
    from tacit.auditing.canaries.white_box_result import WhiteBoxResult, plan_noise
    from tacit.auditing.canaries.white_box_run import white_box

__all__ = ["WhiteBoxResult", "guess", "one_run_audit", "plan_noise", "white_box"]

# Imported when first used: the statistics of a finished run must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
