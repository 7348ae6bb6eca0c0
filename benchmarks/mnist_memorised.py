"""LiRA on a network that learned MNIST images by heart, and on its private twin at ε = 2.

    python benchmarks/mnist_memorised.py --data FOLDER [--seeds 3] [--workers 2] [--record]

The experiment of ``tacit audit mnist-memorised`` with several seeds (of the images, the members and
the first weights; noise takes none). With --record it writes results/mnist_memorised.json and .md,
and the picture of the first seed, docs/figures/mnist-memorised.svg.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import machine
from tacit.accounting import profile
from tacit.accounting.serialization import from_dict
from tacit.auditing.attacks import allowed
from tacit.recipes.auditing import Conditions, find
from tacit.reports.audit_figure import draw_file

RESULTS = Path(__file__).resolve().parent / "results"
PICTURE = RESULTS.parents[1] / "docs" / "figures" / "mnist-memorised.svg"
NAME = "mnist-memorised"


def main() -> None:
    arguments = parse_arguments()
    runs = []
    for seed in range(arguments.seeds):
        runs.append(run(seed, arguments))
        print(row(runs[-1]), file=sys.stderr, flush=True)
    record = {**machine.stamp(), "workers": arguments.workers, "runs": runs}
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "mnist_memorised.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "mnist_memorised.md").write_text(report + "\n")
        draw_file(runs[0]["audit"], PICTURE)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="where MNIST lies, if not in $TACIT_DATA")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def run(seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One experiment, with how long it took and whether all of the private curve is allowed."""
    started = time.perf_counter()
    found = find(NAME).run(Conditions(data=arguments.data, seed=seed, workers=arguments.workers))
    seconds = time.perf_counter() - started
    plain = found.as_dict(["tacit", "audit", NAME, "--seed", str(seed)])
    return {"seed": seed, "seconds": seconds, "share_of_limit": nearest(plain), "audit": plain}


def nearest(plain: dict[str, Any]) -> float:
    """The largest ratio of the private attack's rate to what is allowed, from 0.1 % to 10 %."""
    curve = profile(from_dict(plain["claim"]["event"]), plain["claim"]["adjacency"])
    points = [(fpr, tpr) for fpr, tpr, *_ in plain["attacks"][1]["roc"] if 1e-3 <= fpr <= 0.1]
    most = allowed(curve, [fpr for fpr, _ in points])
    return float(max(tpr / limit for (_, tpr), limit in zip(points, most, strict=True)))


def markdown(record: dict[str, Any]) -> str:
    on = record["machine"]
    size = record["runs"][0]["audit"]["settings"]
    return "\n".join(
        [
            f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
            f"{on['cpu']}, {on['cores']} cores, Python {on['python']}.",
            "",
            f"{size['models']} networks with {size['hidden']} hidden units learn random halves of "
            f"{size['images']} MNIST images; LiRA attacks each with the others. Without privacy: "
            f"{size['epochs']} epochs of SGD. With: {size['steps']} steps of `tacit.fit` at "
            f"ε = {size['epsilon']:g}, δ = {size['delta']:g}. Share of members found (95 % "
            "interval), and the most that the guarantee allows. The last but one column is the "
            "largest ratio of rate to limit of the private curve from 0.1 % to 10 % false alarms.",
            "",
            "| seed | accuracy, plain | private | plain, at 0.1 % | times chance | private, at "
            "0.1 % | allowed | private, at 1 % | allowed | rate / limit | seconds |",
            "|---:|" + "---:|" * 10,
            *map(row, record["runs"]),
        ]
    )


def row(one: dict[str, Any]) -> str:
    plain, private = one["audit"]["attacks"]
    known, hidden = (detail["accuracy on the others"] for detail in one["audit"]["details"])
    at = plain["found"][1]
    cells = [
        str(one["seed"]),
        f"{known:.1%}",
        f"{hidden:.1%}",
        interval(at["tpr"]),
        f"{at['tpr']['value'] / at['fpr']:.0f}",
        interval(private["found"][1]["tpr"]),
        f"{private['found'][1]['allowed']:.2%}",
        interval(private["found"][0]["tpr"]),
        f"{private['found'][0]['allowed']:.2%}",
        f"{one['share_of_limit']:.2f}",
        f"{one['seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def interval(figure: dict[str, float]) -> str:
    return f"{figure['value']:.2%} ({figure['lower']:.2%} to {figure['upper']:.2%})"


if __name__ == "__main__":
    main()
