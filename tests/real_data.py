"""Where the published files are that some tests read: MNIST and the like.

They lie in the folder that ``TACIT_DATA`` names, or else in ``shared/data`` beside the repository.
"""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("TACIT_DATA") or Path(__file__).parents[2] / "shared" / "data")


def real_data(*names: str) -> Path:
    """That folder; the test is skipped unless it holds each of ``names``."""
    for name in names:
        if not (FOLDER / name).exists():
            pytest.skip(f"needs {name} in the folder that TACIT_DATA names")
    return FOLDER
