"""RNN, GRU and LSTM, written out over time: their weights enter linear maps, which have a rule.

The uses of one weight at every time step are merged into one sum of outer products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.errors import UnsupportedModel
from tacit.training.clipping.rules.elementwise import as_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tacit.training.clipping.recorder import Record, Recorder

    States = tuple[Tensor, ...]
    Cell = Callable[[Tensor, Tensor, States], States]


def _tanh(x: Tensor, h: Tensor, states: States) -> States:
    del states
    return ((x + h).tanh(),)


def _relu(x: Tensor, h: Tensor, states: States) -> States:
    del states
    return ((x + h).relu(),)


def _gru(x: Tensor, h: Tensor, states: States) -> States:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    new = (xn + reset * hn).tanh()
    return (new + update * (states[0] - new),)


def _lstm(x: Tensor, h: Tensor, states: States) -> States:
    i, f, g, o = (x + h).chunk(4, -1)
    cell = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _linear(recorder: Recorder, x: Tensor, weight: Any, bias: Any = None) -> Tensor:
    """A linear map whose result is data even where ``x`` is a constant, such as a first state."""
    result: Tensor = as_data(recorder, recorder.call(F.linear, x, weight, bias))
    return result


def _direction(
    recorder: Recorder,
    cell: Cell,
    x: Tensor,
    states: States,
    weights: Sequence[Tensor | None],
    backwards: bool,
) -> tuple[Tensor, States]:
    """One layer in one direction: ``x`` is (batch, time, width), a state (batch, width)."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    gates = _linear(recorder, x, w_ih, b_ih).unbind(1)
    outputs: list[Tensor] = []
    for gate in reversed(gates) if backwards else gates:
        states = cell(gate, _linear(recorder, states[0], w_hh, b_hh), states)
        if w_hr is not None:
            states = (_linear(recorder, states[0], w_hr), *states[1:])
        outputs.append(states[0])
    if backwards:
        outputs.reverse()
    return torch.stack(outputs, 1), states


def _layers(
    recorder: Recorder,
    cell: Cell,
    x: Tensor,
    initial: States,
    flat: Sequence[Tensor],
    bias: bool,
    layers: int,
    rate: float,
    directions: int,
) -> tuple[Tensor, States]:
    each = len(flat) // (layers * directions)
    final: list[States] = []
    for layer in range(layers):
        results = []
        for direction in range(directions):
            at = layer * directions + direction
            weights = _named(flat[at * each : (at + 1) * each], bias)
            states = tuple(one[at] for one in initial)
            result, last = _direction(recorder, cell, x, states, weights, direction == 1)
            results.append(result)
            final.append(last)
        x = torch.cat(results, -1)
        if rate > 0 and layer + 1 < layers:
            x = F.dropout(x, rate)
    return x, tuple(torch.stack(one) for one in zip(*final, strict=True))


def _named(flat: Sequence[Tensor], bias: bool) -> tuple[Tensor | None, ...]:
    """(w_ih, w_hh, b_ih, b_hh, w_hr) of one layer and direction."""
    w_ih, w_hh, *rest = flat
    biases = (rest.pop(0), rest.pop(0)) if bias else (None, None)
    return w_ih, w_hh, *biases, rest[0] if rest else None


def _record(cell: Cell, states: int) -> Record:
    def recurrent(
        recorder: Recorder,
        input: Tensor,
        hx: Any,
        params: Any,
        has_biases: Any,
        num_layers: Any,
        dropout: Any,
        train: Any,
        bidirectional: Any,
        batch_first: Any = None,
    ) -> Any:
        if batch_first is None or isinstance(has_biases, (list, tuple)):
            raise UnsupportedModel(
                "packed sequences reorder the rows of a batch; pass the padded batch to the RNN"
            )
        given = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        initial = tuple(as_data(recorder, one) for one in given)
        input = as_data(recorder, input)
        x = input if batch_first else input.transpose(0, 1)
        rate = dropout if train else 0.0
        result, final = _layers(
            recorder, cell, x, initial, params, has_biases, num_layers, rate, 1 + bidirectional
        )
        result = result if batch_first else result.transpose(0, 1)
        return (result, *final[:states])

    return recurrent


def _record_cell(cell: Cell) -> Record:
    def recurrent_cell(
        recorder: Recorder,
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        given = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        states = tuple(as_data(recorder, one) for one in given)
        gates = _linear(recorder, input, w_ih, b_ih)
        final = cell(gates, _linear(recorder, states[0], w_hh, b_hh), states)
        return final if len(final) > 1 else final[0]

    return recurrent_cell


RECORDS: dict[Callable[..., Any], Record] = {
    torch.lstm: _record(_lstm, 2),
    torch.gru: _record(_gru, 1),
    torch.rnn_tanh: _record(_tanh, 1),
    torch.rnn_relu: _record(_relu, 1),
    torch.lstm_cell: _record_cell(_lstm),
    torch.gru_cell: _record_cell(_gru),
    torch.rnn_tanh_cell: _record_cell(_tanh),
    torch.rnn_relu_cell: _record_cell(_relu),
}
