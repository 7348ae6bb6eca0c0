"""The model of text: what it sees, and that it can be trained privately."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import tacit
from tacit import losses
from tacit.errors import InvalidArgument
from tacit.models.networks import CharacterMlp


def lively() -> CharacterMlp:
    """Its last layer is 0 at first, so that nothing would matter."""
    torch.manual_seed(0)
    model = CharacterMlp(20, context=3, width=8, code=4)
    torch.nn.init.normal_(model.last.weight)
    return model


def test_a_place_sees_its_context_and_nothing_else() -> None:
    model, text = lively(), torch.randint(20, (1, 12))
    scores = model(text)
    for place in range(12):
        changed = text.clone()
        changed[0, place] = (text[0, place] + 1) % 20
        moved = (model(changed) != scores).any(dim=2)[0]
        assert moved.nonzero().flatten().tolist() == list(range(place, min(place + 3, 12)))


def test_it_is_the_formula() -> None:
    model, text = lively(), torch.tensor([[5, 6, 7, 8]])
    seen = torch.cat([model.codes[token] for token in (6, 7, 8)])
    # ``unfold`` puts the places last: all places of the first number, then of the second.
    seen = seen.view(3, 4).T.flatten()
    expected = model.last(torch.tanh(model.hidden(seen)))
    torch.testing.assert_close(model(text)[0, -1], expected)


def test_at_first_every_character_is_as_likely() -> None:
    assert not CharacterMlp()(torch.randint(128, (2, 9))).any()


def test_codes_are_not_learned() -> None:
    model = lively()
    assert [name for name, _ in model.named_parameters()] == [
        "hidden.weight", "hidden.bias", "last.weight", "last.bias",
    ]  # fmt: skip
    assert "codes" in model.state_dict()


def test_it_is_trained_privately() -> None:
    model, text = lively(), torch.randint(20, (30, 13))
    before = model.codes.clone()
    plan = tacit.Plan(examples=30, lot_size=10, steps=2, noise_multiplier=1.0, clip=1.0)
    tacit.fit(
        model, torch.optim.SGD(model.parameters(), lr=0.1), plan,
        TensorDataset(text[:, :-1], text[:, 1:]), delta=1e-3,
        loss=lambda model, batch: losses.token_mean(model(batch[0]), batch[1]), progress=False,
    )  # fmt: skip
    assert torch.equal(model.codes, before)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="context must be a whole number, 1 or more, got 0"):
        CharacterMlp(context=0)
