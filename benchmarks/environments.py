"""One virtual environment per peer under `.envs/`, built from its pinned requirements."""

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
ENVIRONMENTS = HERE / ".envs"


def python_for(peer: str) -> Path:
    """The interpreter of the peer's environment, which is built when missing or out of date."""
    requirements = PEERS / f"{peer}.txt"
    home = ENVIRONMENTS / peer
    python, stamp = home / "bin" / "python", home / "installed.txt"
    wanted = requirements.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"building {home.relative_to(HERE.parent)} ...", file=sys.stderr, flush=True)
    venv.create(home, clear=True, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True
    )
    stamp.write_text(wanted)  # last, so that a broken build is built again
    return python
