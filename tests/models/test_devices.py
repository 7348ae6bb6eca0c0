"""Where to compute: by name, and refused in one line where this machine has none such."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument
from tacit.models.devices import device_named
from tacit.transfer import Teachers, train_student


def test_a_device_is_found_by_its_name() -> None:
    assert device_named("cpu") == device_named(torch.device("cpu")) == torch.device("cpu")
    assert device_named("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["", "gpu", "cuda:x", "CPU"])
def test_what_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="device must be auto, cpu, cuda or cuda:N"):
        device_named(name)


def test_teachers_and_students_refuse_a_device_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    rows, labels = np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(InvalidArgument, match="device cuda is not there: PyTorch sees no GPU"):
        Teachers(lambda: nn.Linear(3, 2), (rows, labels), 2, classes=2, device="cuda")
    with pytest.raises(InvalidArgument, match="device cuda is not there"):
        train_student(np.zeros((4, 1, 8, 8), np.uint8), labels, classes=2, device="cuda")
