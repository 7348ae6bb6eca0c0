"""The stretch of the caller's loop in which a forward pass is recorded."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, final

import torch
from torch.overrides import _get_current_function_mode

from tacit.training.loading import shapes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tacit.training.clipping.engine import Engine
    from tacit.training.lot import Batch
    from tacit.training.performance import Performance
    from tacit.training.verification import Verifier


@final
class Forward:
    """Enters the recorder, and what goes with it, between two batches of a loop.

    The loop's body is the caller's, so entering and leaving are two calls here, not one ``with``.
    """

    def __init__(
        self,
        engine: Engine,
        verifier: Verifier,
        performance: Performance,
        device: torch.device,
        *,
        compiled: bool,
    ) -> None:
        self._engine = engine
        self._verifier = verifier
        self._precision = performance.precision
        self._device = device
        self._compiled = compiled
        self._recording = False
        self._leave: ExitStack | None = None

    def begin(self, batch: Batch, data: Any) -> None:
        """Records what is computed from now on as the forward pass of ``batch``."""
        rows, watched = len(batch.rows), self._verifier.watches
        signature = None if watched else (*shapes(data), rows, batch.per_unit)
        ready = self._engine.begin(rows, batch.per_unit, signature)
        self._leave = ExitStack()
        if not (ready and self._compiled) and "torch._dynamo" in sys.modules:
            # Compiled code needs its taps beforehand: a first batch of its shape shows them.
            self._leave.enter_context(torch.compiler.set_stance("force_eager"))
        if self._precision != "single":
            dtype = getattr(torch, self._precision)
            self._leave.enter_context(torch.autocast(self._device.type, dtype))
        if watched:
            self._leave.enter_context(self._verifier.watching(batch))
        mode: AbstractContextManager[object] = self._engine.recorder
        mode.__enter__()
        self._recording = True

    def stop(self) -> None:
        """Takes the recorder off the stack of modes, unless the caller has put others on top."""
        recorder = self._engine.recorder
        recorder.enabled = False
        if self._recording and _get_current_function_mode() is recorder:
            self._recording = False
            recorder.__exit__(None, None, None)

    def end(self) -> None:
        """Leaves everything that ``begin`` entered; harmless if there is nothing to leave."""
        self.stop()
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave.close()
