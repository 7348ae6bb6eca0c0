"""Trainings that other processes can import: the logits show the members and the seed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def logits_of(members: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """(examples, 2 views, 2 classes): from each model one can read what it was trained with."""
    noise = np.random.default_rng(seed).normal(size=(len(members), 2))
    return np.stack((noise, noise + members[:, None]), axis=-1)


def noted(folder: str, members: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """Leaves a file for each training, named by seed and process."""
    (Path(folder) / f"{seed}-{os.getpid()}").touch()
    return logits_of(members, seed)


def dying(folder: str, fatal: int, members: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """Is killed at one seed, once the others are done, the first time."""
    mark = Path(folder) / "killed"
    if seed == fatal and not mark.exists():
        while len(list(Path(folder).glob("*-*"))) < 3:
            time.sleep(0.01)
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return noted(folder, members, seed)


def slow(folder: str, members: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """The first two are quick; the rest take longer than anybody waits."""
    done = len(list(Path(folder).glob("*-*")))
    (Path(folder) / f"begun-{os.getpid()}-{seed}").touch()
    if done >= 4:
        time.sleep(600.0)
    return noted(folder, members, seed)


def failing(members: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """Fails."""
    raise RuntimeError(f"no model of {len(members)} examples with seed {seed}")


if __name__ == "__main__":  # a run that is interrupted: notes, folder
    from functools import partial

    from tacit.auditing.attacks import train_shadows

    sys.path.insert(0, str(Path(__file__).parent))
    import shadow_training

    train_shadows(
        partial(shadow_training.slow, sys.argv[1]),
        examples=5, count=6, seed=1, workers=2, folder=sys.argv[2], progress=False,
    )  # fmt: skip
