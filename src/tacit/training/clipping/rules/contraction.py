"""torch.einsum with one weight: its gradient is another einsum, an outer product if that splits."""

from __future__ import annotations

import math
import string
from typing import TYPE_CHECKING, Any

import torch

from tacit.training.clipping.forms import Dense, Form, Outer
from tacit.training.clipping.rules.common import as_computed, wide
from tacit.training.clipping.uses import Gradient, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recording import Recorder
    from tacit.training.clipping.uses import Record


def einsum(recorder: Recorder, equation: Any, *operands: Any) -> Any:
    """One weight and any number of data tensors; the result's letters must be given."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    weights = [at for at, one in enumerate(operands) if recorder.is_weight(one)]
    if not isinstance(equation, str) or "->" not in equation or len(weights) != 1:
        return NotImplemented
    *terms, result_term = _spelt_out(equation, [one.ndim for one in operands])
    if any(len(set(term)) != len(term) for term in terms):
        return NotImplemented
    (at,) = weights
    data = [as_computed(one) for place, one in enumerate(operands) if place != at]
    data_terms = [term for place, term in enumerate(terms) if place != at]
    spelt = f"{','.join([*data_terms, terms[at]])}->{result_term}"
    result = torch.einsum(spelt, *data, operands[at].detach())
    settings = (tuple(data_terms), terms[at], result_term)
    return recorder.use(EINSUM, (operands[at],), tuple(data), settings, result)


def _spelt_out(equation: str, ndims: list[int]) -> list[str]:
    """The terms of the operands and of the result, with letters in place of every ellipsis."""
    operands, _, result = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    lengths = [n - len(t) + 3 for n, t in zip(ndims, terms, strict=True) if "..." in t]
    longest = free[: max(lengths, default=0)]
    spelt = []
    for ndim, term in zip(ndims, terms, strict=True):
        own = longest[len(longest) - (ndim - len(term) + 3) :] if "..." in term else []
        spelt.append(term.replace("...", "".join(own)))
    return [*spelt, result.replace("...", "".join(longest))]


def _gradients(of: Gradient) -> tuple[Form | None, ...]:
    data_terms, weight_term, result_term = of.settings
    (shape,) = of.shapes
    assert shape is not None
    row = result_term[of.rows.layout.dim]
    if len(data_terms) > 1 or row not in data_terms[0]:
        return (_written(of, row),)
    (data_term,) = data_terms
    first = [letter for letter in weight_term if letter in data_term]
    second = [letter for letter in weight_term if letter not in data_term]
    shared = [one for one in data_term if one in result_term and one not in (*weight_term, row)]
    left_over = [one for one in data_term if one not in (*first, *shared, row)]
    splits = all(one not in result_term for one in first)
    if not splits or left_over or any(one not in result_term for one in second):
        return (_written(of, row),)
    left = _terms(of, of.saved[0].to(of.grad.dtype), data_term, row, shared, first)
    right = _terms(of, of.grad, result_term, row, shared, second)
    sizes = dict(zip(weight_term, shape, strict=True))
    outer_shape = tuple(sizes[letter] for letter in (*first, *second))
    order = tuple((*first, *second).index(letter) for letter in weight_term)
    return (Outer(left, right, outer_shape, order),)


def _terms(
    of: Gradient, tensor: Tensor, term: str, row: str, shared: list[str], own: list[str]
) -> Tensor:
    """``tensor`` as (units, terms, own letters flattened)."""
    ordered = torch.einsum(f"{term}->{''.join((row, *shared, *own))}", tensor)
    each = math.prod(ordered.shape[: 1 + len(shared)]) // of.rows.units
    return ordered.reshape(of.rows.units, each, math.prod(ordered.shape[1 + len(shared) :]))


def _written(of: Gradient, row: str) -> Form:
    """Every unit's gradient: the weight changes places with the result."""
    data_terms, weight_term, result_term = of.settings
    (shape,) = of.shapes
    assert shape is not None
    known = {row, *result_term, *"".join(data_terms)}
    present = [letter for letter in weight_term if letter in known]
    equation = f"{','.join([*data_terms, result_term])}->{row}{''.join(present)}"
    rows = torch.einsum(equation, *(wide(one) for one in of.saved), wide(of.grad))
    summed = rows.unflatten(0, (of.rows.units, -1)).sum(1)
    for axis, letter in enumerate(weight_term):  # a letter of the weight's alone is summed over
        if letter not in known:
            summed = summed.unsqueeze(axis + 1)
    return Dense(summed.expand(len(summed), *shape))


EINSUM = Rule("einsum", _gradients)
RECORDS: dict[Callable[..., Any], Record] = {torch.einsum: einsum}
