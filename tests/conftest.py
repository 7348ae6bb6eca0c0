"""One thread for PyTorch: the tests' models are small, and the workers share the cores."""

import torch

torch.set_num_threads(1)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their length: compressed ones hold the second at which they were made,
    and workers that collect a second apart must agree on the names.
    """
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
