"""Writes constraints.lock: the pins of constraints.txt, each with the SHA-256 of every file of it.

The checksums are those that the package index lists; a file that is replaced there, or on the way,
is refused by ``pip install --require-hashes``. Files that the index does not have, such as a CPU
build of torch, are named on the command line: whoever runs this vouches for them.

    python tools/hashes.py [FILE.whl …]
"""

from __future__ import annotations

import hashlib
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/simple"
LINK = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"')
HEAD = """\
# The pins of constraints.txt with the checksums of all their files: for an install in which no file
# can be another than the published one. Made by 'make constraints'. To use it: make install-locked
"""


def page(name: str) -> str:
    """What the index says of a package."""
    url = f"{INDEX}/{re.sub(r'[-_.]+', '-', name).lower()}/"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: bytes = answer.read()
    return found.decode()


def is_of(file: str, name: str, version: str) -> bool:
    """Whether a file is of this version, whatever build of it (``+cpu``).

    >>> is_of("torch-2.13.0%2Bcpu-cp311-cp311-win_amd64.whl", "torch", "2.13.0")
    True
    >>> is_of("torch-2.13.0.post1-cp311-cp311-win_amd64.whl", "torch", "2.13.0")
    False
    """
    spelled = "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", name)))
    build, kind = r"((%2B|\+)[a-z0-9.]+)?", r"(-.*\.whl|\.tar\.gz|\.zip)"
    pattern = f"{spelled}-{re.escape(version)}{build}{kind}"
    return re.fullmatch(pattern, file, re.IGNORECASE) is not None


def hashes(name: str, version: str, own: list[tuple[str, str]]) -> list[str]:
    """The checksums of all files of a version, those of one's own among them."""
    links = [*own, *LINK.findall(page(name))]
    return sorted({digest for file, digest in links if is_of(file, name, version)})


def named(path: Path) -> tuple[str, str]:
    """A file's name and its checksum."""
    with path.open("rb") as file:
        return path.name, hashlib.file_digest(file, "sha256").hexdigest()


def main(files: list[str]) -> int:
    """Writes the file; status 1 if a pin has no files."""
    own = [named(Path(file)) for file in files]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pin: hashes(*pin, own), pins))
    text = HEAD
    for (name, version), digests in zip(pins, found, strict=True):
        if not digests:
            sys.stderr.write(f"the index has no file of {name} {version}\n")
            return 1
        text += " \\\n".join(
            [f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in digests)]
        )
        text += "\n"
    (ROOT / "constraints.lock").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
