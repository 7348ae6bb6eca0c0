"""Compares the scattering transform with kymatio's, path by path, and times both side by side.

    python benchmarks/scattering.py [--data FOLDER] [--cifar10 FOLDER] [--images 200] [--record]

kymatio 0.3.0 runs in an environment of its own. On one core each the two take turns on the same
images, kymatio with several sizes of batches, and the processor's time counts, which others' work
on the machine lengthens least. tacit is also timed by the clock, on all cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import environments
import machine
import tacit
from tacit import data, models
from tacit.errors import DataError

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BATCHES = (16, 128)  # kymatio's; the better one counts
MORE = 10  # times as many images for all cores, which take a moment to start
ASKED = {"difference": 1e-4, "images_per_second": 2000}
ORDERS = {"order 0": slice(0, 1), "order 1": slice(1, 17), "order 2": slice(17, 81)}


def main() -> None:
    arguments = parse_arguments()
    sets = {"MNIST, 28×28": data.load("mnist", arguments.data, download=False).test.inputs}
    title, colour = colours(arguments)
    sets[title] = colour
    with tempfile.TemporaryDirectory() as folder, Kymatio() as peer:
        rows = {
            name: compared(images, arguments.images, peer, Path(folder), arguments.rounds)
            for name, images in sets.items()
        }
        versions = {"tacit": tacit.__version__, "torch": torch.__version__} | peer.versions
    record = machine.stamp() | {
        "versions": versions, "threads": torch.get_num_threads(), "load": os.getloadavg()[0],
        "rounds": arguments.rounds, "rows": rows,
    }  # fmt: skip
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "scattering.json").write_text(text + "\n")
        (RESULTS / "scattering.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of MNIST and CIFAR-10")
    parser.add_argument("--cifar10", type=Path, help="the folder of CIFAR-10, if it is another")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def colours(arguments: argparse.Namespace) -> tuple[str, NDArray[np.uint8]]:
    """CIFAR-10's test images, or made-up ones where it is not at hand."""
    try:
        found = data.load("cifar10", arguments.cifar10 or arguments.data, download=False)
    except DataError:
        made = models.synthetic_images(
            arguments.images, size=32, channels=3, kind="dead-leaves", seed=0
        )
        return "dead leaves, 3×32×32", made
    return "CIFAR-10, 3×32×32", found.test.inputs


class Kymatio:
    """The process that computes kymatio's features."""

    def __enter__(self) -> "Kymatio":
        command = [environments.python_for("kymatio"), HERE / "peers" / "kymatio_worker.py"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.versions = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, images: Path, out: Path | None, batch: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = {"images": str(images), "out": str(out or ""), "batch": batch}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def compared(
    every: NDArray[np.uint8], count: int, peer: Kymatio, folder: Path, rounds: int
) -> dict[str, Any]:
    """The largest difference an order, and the times of each one's turns."""
    images, more = every[:count], every[: MORE * count]
    print(f"{len(images)} images of {images.shape[1:]} ...", file=sys.stderr, flush=True)
    inputs, out = folder / "images.npy", folder / "features.npy"
    np.save(inputs, images)
    peer.ask(inputs, out, BATCHES[0])
    transform = models.Scattering2d(*images.shape[2:])
    ours, theirs = models.batched(transform, images).numpy(), np.load(out)
    times: dict[str, list[dict[str, float]]] = {"tacit": [], "tacit, all cores": []}
    times |= {f"kymatio, batches of {batch}": [] for batch in BATCHES}
    for _ in range(rounds):
        times["tacit, all cores"].append(timed(more, lambda: models.batched(transform, more)))
        times["tacit"].append(timed(images, lambda: on_one_core(transform, images)))
        for batch in BATCHES:
            answer = {"images": len(images)} | peer.ask(inputs, None, batch)
            times[f"kymatio, batches of {batch}"].append(answer)
    return {
        "images": len(images),
        "shape": list(images.shape[1:]),
        "differences": {
            name: float(np.abs(ours[:, :, paths] - theirs[:, :, paths]).max())
            for name, paths in ORDERS.items()
        },
        "largest": {
            name: float(np.abs(theirs[:, :, paths]).max()) for name, paths in ORDERS.items()
        },
        "times": times,
    }


def on_one_core(transform: models.Scattering2d, images: NDArray[np.uint8]) -> None:
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        models.batched(transform, images)
    finally:
        torch.set_num_threads(cores)


def timed(images: NDArray[np.uint8], call: Callable[[], object]) -> dict[str, float]:
    start, worked = time.perf_counter(), time.process_time()
    call()
    return {
        "images": len(images),
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - worked,
    }


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        "# The scattering transform beside kymatio's",
        "",
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores, {place['system']}; {packages}, "
        f"{record['threads']} cores; {record['rounds']} turns of each, the fastest counts; load "
        f"average {record['load']:.1f} at the end. J=2, L=8, order 2.",
        "",
        "| images | order | largest feature | largest difference | asked |",
        "|---|---|---:|---:|---:|",
    ]
    for name, row in record["rows"].items():
        lines += [
            f"| {name} ({row['images']:,}) | {order} | {row['largest'][order]:.3g} "
            f"| {difference:.1e} | ≤ {ASKED['difference']:.0e} |"
            for order, difference in row["differences"].items()
        ]
    lines += [
        "",
        "| images | by | images/s by the clock | images/s of a core's own time | asked |",
        "|---|---|---:|---:|---:|",
    ]
    for name, row in record["rows"].items():
        for who, times in row["times"].items():
            clock, worked = (
                max(one["images"] / one[what] for one in times)
                for what in ("seconds", "processor_seconds")
            )
            wanted = who == "tacit, all cores" and name.startswith("MNIST")
            asked = f"≥ {ASKED['images_per_second']:,} by the clock" if wanted else ""
            lines.append(f"| {name} | {who} | {clock:,.0f} | {worked:,.0f} | {asked} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
