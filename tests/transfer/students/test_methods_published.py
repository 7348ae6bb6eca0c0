"""The student of PATE's published labels: 100 of MNIST, of which 98 are right."""

import os
from pathlib import Path

import numpy as np
import pytest

from tacit import data
from tacit.transfer.students import train_student

FOLDER = Path(os.environ.get("TACIT_DATA", "/work/shared/data"))
LABELS = FOLDER / "pate" / "mnist_250_student_labels_lap_20.npy"
ASKED = FOLDER / "pate" / "mnist_250_teachers_100_indices_used_by_student.npy"


@pytest.mark.slow
@pytest.mark.skipif(not LABELS.exists(), reason=f"PATE's published labels are not in {LABELS}")
def test_the_published_labels_make_a_student_of_98_percent() -> None:
    test = data.load("mnist", FOLDER, download=False).test
    every, asked = np.load(LABELS), np.load(ASKED)
    assert (every[asked] == test.labels[asked]).sum() == 98
    labels = np.full(9000, -1)
    labels[asked] = every[asked]
    student = train_student(test.inputs[:9000], labels, classes=10, method="graph", seed=0)
    assert (student.predict(test.inputs[9000:]) == test.labels[9000:]).mean() >= 0.98
