"""A PyTorch model as a next-token function."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tacit.auditing.secrets import next_token_of


def test_it_is_the_log_softmax_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Dropout(0.5), nn.Linear(5, 7))
    tokens = np.array([[0, 3, 6], [2, 2, 1]])
    found = next_token_of(model)(tokens)
    assert model.training
    with torch.no_grad():
        expected = torch.log_softmax(model.eval()(torch.from_numpy(tokens)), -1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.shape == (2, 3, 7)


def test_secrets_alone_do_not_import_torch() -> None:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    code = "import sys, tacit.auditing.secrets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
