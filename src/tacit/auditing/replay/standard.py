"""The settings that an engine is tested with where a user has none: small, one for each feature."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from tacit import losses
from tacit.auditing.replay import networks
from tacit.auditing.replay.setting import Setting
from tacit.training.correlation import Banded, Buffered, InverseBanded
from tacit.training.performance import Performance
from tacit.training.plan import Plan
from tacit.training.sampling import Allocation, Cyclic, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup, PerLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from tacit.auditing.replay.self_test import Scope
    from tacit.training.correlation import Correlation

_EXAMPLES, _CLASSES = 96, networks.CLASSES
_TOKENS, _LENGTH, _WIDTH = networks.TOKENS, networks.LENGTH, 6
_POPULATION = 20_000  # of which a plan takes a small share: lots are drawn at that rate as well
_COMPILERS = ("c++", "g++", "clang++")
_SCALES, _DECAYS = (-0.06, -0.2), (0.9, 0.4)  # of buffers
_LENGTHS = 10_000 * (np.arange(_EXAMPLES) * 7 % 3 + 1)  # too far apart for any to be rounded up
_LONG = 600  # tokens: Gram matrices of 48 such rows are cut into slices


def standard_settings() -> Mapping[str, Setting]:
    """Small settings by name; together they use every part of the engine.

    >>> list(standard_settings())[:3]
    ['linear', 'convolution', 'tied']
    """
    plan = Plan(
        examples=_POPULATION, lot_size=24, steps=100, noise_multiplier=1.0, clip=0.5,
        adjacency="replace-one",
    )  # fmt: skip
    return {
        "linear": _dense(plan),
        "convolution": _convolution(replace(plan, adjacency="add-remove", clip=1.0)),
        "tied": _tied(replace(plan, adjacency="add-remove")),
        "users": _users(),
        "views": _views(replace(plan, views=3, adjacency="add-remove")),
        "adaptive": _dense(replace(plan, clipping=AdaptiveQuantile(count_noise=3.0))),
        "per layer": _dense(replace(plan, clipping=PerLayer(), adjacency="zero-out")),
        "secure": _dense(replace(plan, noise="secure", adjacency="add-remove")),
    }


def special_settings() -> Mapping[str, Setting]:
    """More settings by name, one for each way to a clipped sum: rules, forms, styles, precisions.

    Their sums are what is special about them, or their noise or lots: see ``scope_of``.

    >>> list(special_settings())[:3]
    ['images', 'channels', 'recurrences']
    """
    plan = Plan(examples=_POPULATION, lot_size=24, steps=100, noise_multiplier=1.0, clip=1.0)
    by_group, moving = PerGroup({"0": 0.3, "": 0.4}), AdaptiveQuantile(count_noise=3.0)
    found = {
        "images": _of(networks.Images, _images(), plan),
        "channels": _of(networks.Channels, _images(), plan),
        "recurrences": _of(networks.Recurrences, _sequences(), plan),
        "attentions": _of(networks.Attentions, _sequences(), plan),
        "bare parameters": _of(networks.Bare, _vectors(), plan),
        "contractions": _of(networks.Contractions, _vectors(), plan),
        "tables": _of(networks.Tables, _texts(_LENGTH), plan),
        "derived weights": _of(networks.Derived, _vectors(), plan),
        "rows elsewhere": _of(networks.Shuffled, _sequences(), plan),
        "long texts": _of(networks.LongText, _texts(_LONG), plan),
        "automatic": _dense(replace(plan, clipping=Automatic())),
        "groups": _dense(replace(plan, clipping=by_group, clip=by_group.clip)),
        "exact": _dense(replace(plan, noise="exact")),
        "adaptive, secure": _dense(replace(plan, noise="secure", clipping=moving)),
        "adaptive, exact": _dense(replace(plan, noise="exact", clipping=moving)),
        "truncated": _dense(replace(plan, sampling=TruncatedPoisson(30))),
        "allocated": _dense(replace(plan, sampling=Allocation())),
        "double": _of(_double_model, _vectors(torch.float64), plan),
        "bfloat16": _in_half("bfloat16", plan),
        "float16": _in_half("float16", plan),
        "image users": _image_users(plan),
        "own data set": _own_data(plan),
        "lengths": replace(_dense(plan), lengths=_LENGTHS),
        "recorded": replace(_dense(plan), performance=Performance(capture=True)),
        "many entries": _of(_large_model, _vectors(), replace(plan, noise="secure")),
        "correlated": _wide(replace(plan, correlation=Banded(3))),
        "replayed": _wide(_in_turns(plan, InverseBanded(3))),
        "buffered": _wide(_in_turns(plan, Buffered(2, scales=_SCALES, decays=_DECAYS))),
    }
    if any(shutil.which(name) for name in _COMPILERS):
        compiled = replace(_dense(plan), performance=Performance(compile=True))
        found["compiled"] = compiled
    return found


def scope_of(name: str) -> Scope:
    """What is to be looked at in a standard or special setting.

    What no model has a part in is looked at in four settings that differ in all else: one plain,
    one whose clip moves, one with users for units, one with secure noise.

    >>> scope_of("adaptive"), scope_of("tied"), scope_of("images")
    ('all', 'release', 'sums')
    """
    scopes: dict[str, Scope] = {
        "linear": "all", "users": "all", "adaptive": "all", "secure": "all",
        "convolution": "release", "tied": "release", "views": "release", "per layer": "release",
        "recorded": "lots",
        "many entries": "noise", "exact": "noise", "adaptive, secure": "noise",
        "adaptive, exact": "noise", "compiled": "quick", "truncated": "lots",
        "allocated": "lots", "image users": "lots", "own data set": "lots",
        "lengths": "lots",
        "correlated": "correlated", "replayed": "correlated", "buffered": "correlated",
    }  # fmt: skip
    return scopes.get(name, "sums")


def row_loss(model: nn.Module, batch: Any) -> Tensor:
    """The cross entropy of ``model(x)`` for a batch ``(x, y)``."""
    x, y = batch
    return losses.cross_entropy(model(x), y)


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def _labels(count: int) -> Tensor:
    return torch.randint(_CLASSES, (count,), generator=torch.Generator().manual_seed(8))


def _dense_model() -> nn.Module:
    # An odd number of weights, so that draws of pairs leave one over.
    return nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, _CLASSES))


def _dense(plan: Plan) -> Setting:
    data = TensorDataset(_numbers(_EXAMPLES, 12), _labels(_EXAMPLES))
    return Setting(model=_dense_model, loss=row_loss, dataset=data, plan=plan)


def _convolution_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
        nn.Linear(36, _CLASSES),
    )  # fmt: skip


def _convolution(plan: Plan) -> Setting:
    data = TensorDataset(_numbers(_EXAMPLES, 1, 8, 8), _labels(_EXAMPLES))
    return Setting(
        model=_convolution_model, loss=row_loss, dataset=data, plan=plan,
        optimizer=partial(torch.optim.Adam, lr=1e-3),
    )  # fmt: skip


@final
class TiedLanguageModel(nn.Module):
    """Predicts the next token with the embedding's own weights, from the mean so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_TOKENS, _WIDTH)
        self.mixing = nn.Linear(_WIDTH, _WIDTH)
        self.head = nn.Linear(_WIDTH, _TOKENS)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """The scores of the next token at every place but the last."""
        places = torch.arange(1, _LENGTH, device=tokens.device).unsqueeze(-1)
        before = self.embedding(tokens[:, :-1]).cumsum(1) / places
        scores: Tensor = self.head(torch.tanh(self.mixing(before)))
        return scores


def _token_loss(model: nn.Module, batch: Any) -> Tensor:
    (tokens,) = batch
    return losses.token_mean(model(tokens), tokens[:, 1:])


def _tied(plan: Plan) -> Setting:
    tokens = torch.randint(
        _TOKENS, (_EXAMPLES, _LENGTH), generator=torch.Generator().manual_seed(9)
    )
    return Setting(
        model=TiedLanguageModel, loss=_token_loss, dataset=TensorDataset(tokens), plan=plan
    )


def _users() -> Setting:
    users = 60
    owners = np.arange(150) * 7 % users  # two or three examples each, which lie far apart
    plan = Plan(
        examples=users, lot_size=15, steps=100, noise_multiplier=1.0, clip=0.5, unit="user",
        examples_per_user=2,
    )  # fmt: skip
    data = TensorDataset(_numbers(150, 12), _labels(150))
    return Setting(model=_dense_model, loss=row_loss, dataset=data, plan=plan, groups=owners)


@final
class NoisyViews(Dataset[Any]):
    """Examples that come out a little different at every reading, as augmented images do."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._x[index] + 0.5 * torch.randn(self._x.shape[1:]), self._y[index]


def _views(plan: Plan) -> Setting:
    data = NoisyViews(_numbers(_EXAMPLES, 12), _labels(_EXAMPLES))
    return Setting(model=_dense_model, loss=row_loss, dataset=data, plan=plan)


# ---- what is special


def _wide_model() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 100), nn.Tanh(), nn.Linear(100, _CLASSES))


def _wide(plan: Plan) -> Setting:
    """Enough entries to see the noise of a single step clearly."""
    return _of(_wide_model, _vectors(), plan)


def _in_turns(plan: Plan, correlation: Correlation) -> Plan:
    """The plan with groups that are lots in turn."""
    return replace(plan, correlation=correlation, sampling=Cyclic())


def _of(model: Callable[[], nn.Module], data: Dataset[Any], plan: Plan) -> Setting:
    return Setting(model=model, loss=row_loss, dataset=data, plan=plan)


def _vectors(kind: torch.dtype = torch.float32) -> Dataset[Any]:
    return TensorDataset(_numbers(_EXAMPLES, 12).to(kind), _labels(_EXAMPLES))


def _images() -> Dataset[Any]:
    return TensorDataset(_numbers(_EXAMPLES, 1, 8, 8), _labels(_EXAMPLES))


def _sequences() -> Dataset[Any]:
    return TensorDataset(_numbers(_EXAMPLES, _LENGTH, 4), _labels(_EXAMPLES))


def _texts(length: int) -> Dataset[Any]:
    seed = torch.Generator().manual_seed(9)
    return TensorDataset(
        torch.randint(_TOKENS, (_EXAMPLES, length), generator=seed), _labels(_EXAMPLES)
    )


@final
class OwnRecords(Dataset[Any]):
    """Records as a user keeps them: dictionaries of arrays, which are read many at a time."""

    def __init__(self) -> None:
        self._x, self._y = _numbers(_EXAMPLES, 12).numpy(), _labels(_EXAMPLES).numpy()

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"x": self._x[at], "y": int(self._y[at]), "name": f"record {at}"}

    def __getitems__(self, places: list[int]) -> list[dict[str, Any]]:
        return [self[at] for at in places]


def _as_batch(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "x": torch.from_numpy(np.stack([record["x"] for record in records])),
        "y": torch.tensor([record["y"] for record in records]),
        "name": [record["name"] for record in records],
    }


def _batch_loss(model: nn.Module, batch: Any) -> Tensor:
    return losses.cross_entropy(model(batch["x"]), batch["y"])


def _own_data(plan: Plan) -> Setting:
    return Setting(
        model=_dense_model, loss=_batch_loss, dataset=OwnRecords(), plan=plan, collate=_as_batch,
        performance=Performance(workers=2),
    )  # fmt: skip


def _large_model() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 260), nn.Tanh(), nn.Linear(260, 260), nn.Linear(260, 3))


def _double_model() -> nn.Module:
    return _dense_model().double()


def _in_half(precision: Literal["bfloat16", "float16"], plan: Plan) -> Setting:
    setting = _of(networks.Attentions, _sequences(), plan)
    if precision == "float16":  # what is special of it, that numbers overflow, shows in any layer
        setting = _of(_convolution_model, _images(), plan)
    return replace(setting, performance=Performance(precision=precision))


def _image_users(plan: Plan) -> Setting:
    """Users with up to three images each, two of which count; in no order of users."""
    owners = np.arange(_EXAMPLES) * 7 % 40
    user_plan = replace(
        plan, examples=400, lot_size=10, unit="user", examples_per_user=2, adjacency="replace-one"
    )
    return replace(_of(_convolution_model, _images(), user_plan), groups=owners)
