"""PATE with public data: teachers vote with noise on public points, and a student learns from that.

    python examples/pate.py

Only the student leaves, and using it costs nothing more. The public points need no labels. Nothing
is promised to those whose points are public.
"""

import numpy as np
from torch import nn

from tacit.transfer import ConfidentGNMax, Teachers, label, train_student

CLASSES, TEACHERS, QUERIES = 4, 100, 120
rng = np.random.default_rng(5)
patterns = 120 * rng.integers(0, 2, (CLASSES, 1, 8, 8))


def drawn(count: int):
    """Stand-ins for images: one of a few patterns, under much noise."""
    labels = rng.integers(0, CLASSES, count)
    images = patterns[labels] + rng.normal(60, 60, (count, 1, 8, 8))
    return np.clip(images, 0, 255).astype(np.uint8), labels


def linear() -> nn.Module:
    """A teacher, and the student."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))


(private, private_labels), (public, truth) = drawn(4_000), drawn(400)
teachers = Teachers(
    linear, (private, private_labels), TEACHERS, classes=CLASSES, epochs=6, lr=0.1, progress=False
).fit()
votes = teachers.votes(public)  # as secret as the private data
aggregator = ConfidentGNMax(threshold=60, screening_sigma=40, sigma=20)
answers = label(votes, aggregator, queries=QUERIES, answers=100)

labels = np.full(len(public), -1)  # -1: not asked, or not answered
labels[:QUERIES] = answers.labels
student = train_student(
    public, labels, classes=CLASSES, method="plain", network=linear, epochs=15, seed=0
)
right = np.mean(student.predict(public) == truth)
print(f"the student is right on {right:.0%}, ε = {answers.epsilon(1e-5):.2f} whatever the votes")
