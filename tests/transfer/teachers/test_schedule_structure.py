"""What kind of model a teacher is, and which ways there are to train it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.transfer.teachers.schedule import check_scores, described, split, way

MLP = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
CNN = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))


class Classifier:
    def __init__(self, depth: int = 1) -> None:
        self._depth = depth

    def fit(self, *_: object) -> None: ...

    def predict(self, *_: object) -> None: ...

    def get_params(self) -> dict[str, int]:
        return {"depth": self._depth}


@pytest.mark.parametrize(
    ("model", "device", "chosen"),
    [
        (MLP, "cpu", "gemm"),
        (MLP, "cuda", "gemm"),
        (nn.Linear(4, 2, bias=False), "cpu", "gemm"),
        (CNN, "cpu", "loop"),
        (CNN, "cuda", "batched"),
        (nn.Sequential(CNN, nn.Dropout()), "cuda", "loop"),
        (nn.Sequential(CNN, nn.BatchNorm1d(2)), "cuda", "loop"),
        (Classifier(), "cuda", "loop"),
    ],
)
def test_auto_takes_the_fastest_way_there_is(model: object, device: str, chosen: str) -> None:
    assert way("auto", model, device) == chosen


def test_what_cannot_be_done_is_refused_with_the_reason() -> None:
    shared = nn.Linear(2, 2)
    fixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    fixed[0].weight.requires_grad_(False)
    for how, model, reason in (
        ("gemm", CNN, "Conv2d is neither linear nor elementwise"),
        ("gemm", nn.ReLU(), "no linear layer"),
        ("gemm", nn.Sequential(shared, shared), "share weights"),
        ("gemm", fixed, "0.weight is not to be trained"),
        ("gemm", Classifier(), "no network"),
        ("batched", Classifier(), "no network"),
        ("batched", nn.Sequential(MLP, nn.Dropout()), "dropout"),
        ("batched", nn.Sequential(MLP, nn.BatchNorm1d(2)), "running means of batch norm"),
    ):
        with pytest.raises(UnsupportedModel, match=reason):
            way(how, model, "cpu")
    with pytest.raises(InvalidArgument, match="how must be 'auto'"):
        way("vmap", MLP, "cpu")
    with pytest.raises(
        InvalidArgument, match=r"an nn\.Module or a scikit-learn classifier, got int"
    ):
        way("auto", 3, "cpu")


def test_pieces_hold_every_teacher_once() -> None:
    for how in ("loop", "batched", "gemm"):
        for device in ("cpu", "cuda"):
            for shared_out in (False, True):
                pieces = split(range(33), how, device, shared_out)  # type: ignore[arg-type]
                assert [one for piece in pieces for one in piece] == list(range(33))
    assert split([], "gemm", "cpu", False) == []


def test_models_are_told_apart() -> None:
    assert described(nn.Linear(3, 2)) == described(nn.Linear(3, 2))
    assert described(nn.Linear(3, 2)) != described(nn.Linear(2, 3))
    assert described(Classifier(1)) != described(Classifier(2))


def test_a_network_must_give_one_score_a_class() -> None:
    images = torch.zeros(5, 1, 2, 2, dtype=torch.uint8)
    check_scores(MLP, images, 2)
    assert MLP.training
    with pytest.raises(InvalidArgument, match=r"scores of shape \(rows, 3\).*got \(1, 2\)"):
        check_scores(MLP, images, 3)
