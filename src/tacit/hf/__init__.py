"""Hugging Face's trainers, made private.

``PrivateTrainer`` is ``transformers.Trainer`` that trains by a plan; ``PrivateSFTTrainer`` is TRL's
``SFTTrainer`` likewise; ``PrivateTraining`` makes another trainer private that keeps to their
steps. Everything else of these libraries stays what it is: models, PEFT's adapters, collators,
schedulers, callbacks, evaluation, checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy

if TYPE_CHECKING:
    from tacit.hf.sft import PrivateSFTTrainer
    from tacit.hf.trainer import PrivateTrainer, PrivateTraining

__all__ = ["PrivateSFTTrainer", "PrivateTrainer", "PrivateTraining"]

# Imported when first used: transformers and TRL take seconds.
__getattr__, __dir__ = lazy(__name__)
