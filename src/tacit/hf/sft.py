"""TRL's supervised fine-tuning, made private."""

from __future__ import annotations

from typing import final

from tacit.hf.trainer import PrivateTraining

try:
    from trl import SFTTrainer
except ImportError as error:
    raise ImportError("PrivateSFTTrainer needs TRL: pip install 'tacit[hf]'") from error


@final
class PrivateSFTTrainer(PrivateTraining, SFTTrainer):  # type: ignore[misc]  # TRL has no types
    """``trl.SFTTrainer`` that trains by a plan.

    It prepares texts, prompts and completions as TRL does; a row of its data set is a unit. Its
    arguments are TRL's and those of ``PrivateTraining``. Packing, padding-free batches, Liger's and
    TRL's fused losses mix rows, and are refused.

    Guarantee:
        As for ``PrivateTraining``.
    """
