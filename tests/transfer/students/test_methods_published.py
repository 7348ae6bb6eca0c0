"""The student of PATE's published labels: 100 of MNIST, of which 98 are right."""

import numpy as np
import pytest

from tacit import data
from tacit.transfer.students import train_student

from ...real_data import real_data

LABELS = "pate/mnist_250_student_labels_lap_20.npy"
ASKED = "pate/mnist_250_teachers_100_indices_used_by_student.npy"


@pytest.mark.slow
def test_the_published_labels_make_a_student_of_98_percent() -> None:
    folder = real_data(LABELS, ASKED, "mnist")
    test = data.load("mnist", folder, download=False).test
    every, asked = np.load(folder / LABELS), np.load(folder / ASKED)
    assert (every[asked] == test.labels[asked]).sum() == 98
    labels = np.full(9000, -1)
    labels[asked] = every[asked]
    student = train_student(test.inputs[:9000], labels, classes=10, method="graph", seed=0)
    assert (student.predict(test.inputs[9000:]) == test.labels[9000:]).mean() >= 0.98
