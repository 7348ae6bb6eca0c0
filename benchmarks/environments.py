"""One virtual environment per peer under `.envs/`, built from its pinned requirements."""

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
ENVIRONMENTS = HERE / ".envs"


def built(peer: str) -> Path | None:
    """The interpreter of the peer's environment, if it is there and up to date."""
    stamp = ENVIRONMENTS / peer / "installed.txt"
    wanted = (PEERS / f"{peer}.txt").read_text()
    there = stamp.exists() and stamp.read_text() == wanted
    return ENVIRONMENTS / peer / "bin" / "python" if there else None


def python_for(peer: str) -> Path:
    """The interpreter of the peer's environment, which is built when missing or out of date."""
    if (there := built(peer)) is not None:
        return there
    requirements, home = PEERS / f"{peer}.txt", ENVIRONMENTS / peer
    python, stamp = home / "bin" / "python", home / "installed.txt"
    print(f"building {home.relative_to(HERE.parent)} ...", file=sys.stderr, flush=True)
    venv.create(home, clear=True, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True
    )
    stamp.write_text(requirements.read_text())  # last, so that a broken build is built again
    return python
