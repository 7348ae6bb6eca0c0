"""The linear model that learns spread labels."""

import numpy as np
import torch
from scipy.optimize import minimize

from tacit.transfer.students import graph
from tacit.transfer.students.student import StudentTask


def test_the_linear_model_is_the_one_of_least_loss() -> None:
    """Against SciPy's BFGS in double precision, on the objective written out."""
    torch.manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(200, 3))
    labels = (rows @ torch.randn(3, 3)).argmax(1)
    certainty = torch.rand(200)
    head = torch.nn.Linear(3, 3)
    graph._learn(head, rows, labels, certainty)
    x, y, c = rows.double().numpy(), labels.numpy(), certainty.double().numpy()

    def loss(flat: np.ndarray) -> float:
        weight, bias = flat[:9].reshape(3, 3), flat[9:]
        scores = x @ weight.T + bias
        lost = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(200), y]
        return float((c * lost).mean() + graph.DECAY * (flat**2).sum())

    best = minimize(loss, np.zeros(12), method="BFGS", options={"gtol": 1e-7}).fun
    found = torch.cat([one.detach().flatten() for one in head.parameters()]).double().numpy()
    assert loss(found) < best + 1e-4


def test_what_is_said_of_the_public_points_is_what_the_model_says() -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8)
    labels = torch.where(torch.arange(60) < 30, torch.arange(60) % 3, -1)
    task = StudentTask(
        images=images, labels=labels, weights=labels.ge(0).float(), classes=3, epochs=1,
        flip=False, network=None, progress=None,
    )  # fmt: skip
    begun = graph.begin(task)
    scores = begun.model(images).log_softmax(1)
    torch.testing.assert_close(scores, begun.said, atol=2e-3, rtol=0)
    assert begun.agrees.shape == (60,)
