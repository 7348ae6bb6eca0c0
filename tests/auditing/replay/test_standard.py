"""tacit passes its own self-test on every standard setting, and on a user's own kind of model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from tacit import Plan, losses
from tacit.auditing.replay import Setting, replay, standard_settings
from tacit.auditing.replay.checklist import CHECKS
from tacit.auditing.replay.self_test import _CHECKS
from tacit.auditing.replay.standard import scope_of, special_settings
from tacit.training.batches import Batch, Cutter
from tacit.training.styles import Automatic, PerGroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = standard_settings()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "secure" else (pytest.mark.slow,))
        for name in SETTINGS
    ],
)
def test_tacit_passes(name: str) -> None:
    report = replay(SETTINGS[name], seconds=600)
    assert report.passed, report.describe()
    assert report.whole


@pytest.mark.slow
@pytest.mark.parametrize("name", ["correlated", "replayed", "buffered"])
def test_tacit_passes_with_correlated_noise(name: str) -> None:
    report = replay(special_settings()[name], seconds=600)  # whatever scope is asked for
    assert report.passed, report.describe()
    assert report.whole
    assert {"correlated", "groups"} <= {finding.check for finding in report.findings}


def _twice(cutter: Cutter, left: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(ORDERED(cutter, left), left[:1])


def _by_length(cutter: Cutter, *given: Any) -> Batch:
    batch = MADE(cutter, *given)
    return batch._replace(weights=batch.weights / batch.length)


ORDERED, MADE = Cutter.ordered, Cutter._made


@pytest.mark.parametrize(
    ("name", "bug"), [("ordered", _twice), ("_made", _by_length)], ids=["twice", "by length"]
)
def test_rows_of_like_length_count_once_and_alike(
    name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting with lengths finds a unit that comes twice, and shares that go by length."""
    setting, scope = special_settings()["lengths"], scope_of("lengths")
    monkeypatch.setattr(Cutter, name, bug)
    assert not replay(setting, scope=scope, stop_at_first=True).passed


def test_the_standard_settings_cover_what_a_plan_can_say() -> None:
    plans = [setting.plan for setting in SETTINGS.values()]
    assert {plan.adjacency for plan in plans} == {"add-remove", "replace-one", "zero-out"}
    assert {plan.unit for plan in plans} == {"example", "user"}
    assert {plan.noise for plan in plans} == {"fast", "secure"}
    assert {type(plan.clipping).__name__ for plan in plans} == {
        "Flat",
        "PerLayer",
        "AdaptiveQuantile",
    }
    assert max(plan.views for plan in plans) > 1


def test_what_a_setting_leaves_out_is_looked_at_in_four_that_differ() -> None:
    made = {name: {check.name for check in _CHECKS[scope_of(name)]} for name in SETTINGS}
    whole = [SETTINGS[name].plan for name in SETTINGS if made[name] == made["linear"]]
    assert {check.name for check in CHECKS} == made["linear"]
    assert len(whole) == 4
    assert {type(plan.clipping).__name__ for plan in whole} == {"Flat", "AdaptiveQuantile"}
    assert {plan.unit for plan in whole} == {"example", "user"}
    assert {plan.noise for plan in whole} == {"fast", "secure"}
    assert {plan.adjacency for plan in whole} >= {"add-remove", "replace-one"}
    seen_everywhere = set.intersection(*made.values())
    assert {"noise.scale", "noise.every_parameter", "noise.with_data", "sampling.rate"} <= (
        seen_everywhere
    )
    assert {"charging.claim", "charging.crashed", "resuming.goes_on", "resuming.afresh"} <= (
        seen_everywhere
    )


class Sentences(Dataset[Any]):
    """Dictionaries of different lengths, as tokenizers make them."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(index)
        length = 2 + index % 4
        return {"ids": torch.randint(1, 9, (length,), generator=draw), "label": index % 2}


def padded(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids = nn.utils.rnn.pad_sequence([one["ids"] for one in examples], batch_first=True)
    return {"ids": ids, "label": torch.tensor([one["label"] for one in examples])}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4, padding_idx=0)
        self.dropout = nn.Dropout(0.5)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        there = (ids > 0).unsqueeze(-1)
        mean = (self.embedding(ids) * there).sum(1) / there.sum(1)
        return self.head(self.dropout(torch.tanh(self.frozen(mean))))


def text_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return losses.cross_entropy(model(batch["ids"]), batch["label"])


@pytest.mark.slow
@pytest.mark.parametrize("style", [PerGroup({"embedding": 0.3, "head": 0.4}), Automatic()])
def test_a_users_own_model_loss_and_collate_need_no_annotation(style: Any) -> None:
    plan = Plan(
        examples=60, lot_size=12, steps=40, noise_multiplier=0.8, clipping=style,
        clip=None if isinstance(style, PerGroup) else 0.5,  # type: ignore[arg-type]
    )  # fmt: skip
    own = Setting(
        model=Classifier, loss=text_loss, dataset=Sentences(), plan=plan, collate=padded,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    )  # fmt: skip
    report = replay(own, seconds=600)
    assert report.passed, report.describe()
