"""Plants nine-digit secrets in Tiny Shakespeare, trains four models, and asks them for the secrets.

    python benchmarks/shakespeare_secret.py [--data FOLDER] [--seed 1] [--record | --add]

The experiment of ``tacit audit shakespeare-secret`` (src/tacit/recipes/auditing).
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

import machine
from tacit.recipes.auditing import shakespeare_secret
from tacit.recipes.auditing.secret_results import SecretResult, Situation
from tacit.reports.audit_figure import write_secrets

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    arguments = parse_arguments()
    runs = [measured(arguments.data, arguments.seed)]
    if arguments.picture is not None:
        write_secrets(result_of(runs[0]), arguments.picture)
    if arguments.add:
        runs = [*json.loads((RESULTS / "shakespeare_secret.json").read_text())["runs"], *runs]
    report = markdown(runs)
    print(report)
    if arguments.record or arguments.add:
        text = json.dumps({"runs": runs}, indent=1)
        (RESULTS / "shakespeare_secret.json").write_text(text + "\n")
        (RESULTS / "shakespeare_secret.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="where tinyshakespeare.txt is")
    parser.add_argument("--seed", type=int, default=1, help="of the secrets and first weights")
    parser.add_argument("--picture", type=Path, help="draw to this file")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    parser.add_argument("--add", action="store_true", help="add to what is recorded there")
    return parser.parse_args()


def measured(data: Path | None, seed: int) -> dict[str, Any]:
    record: dict[str, Any] = machine.stamp()
    record["machine"] |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
    record["load"] = os.getloadavg()[0]
    started = time.perf_counter()
    found = shakespeare_secret.run(data=data, seed=seed, progress=True)
    return record | {"seconds": time.perf_counter() - started, "result": found.as_dict()}


def result_of(record: dict[str, Any]) -> SecretResult:
    return SecretResult.from_dict(record["result"])


def markdown(runs: list[dict[str, Any]]) -> str:
    lines = []
    for record in runs:
        on = record["machine"]
        lines += [
            f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
            f"{on['cpu']}, {on['cores']} cores ({on['threads']} thread; load "
            f"{record['load']:.0f} from other work), Python {on['python']}, torch {on['torch']}.",
            "",
            *run_lines(result_of(record), record["seconds"]),
            "",
        ]
    return "\n".join(lines).rstrip()


def run_lines(found: SecretResult, seconds: float) -> list[str]:
    settings = found.settings
    head = [
        f"Seed {found.seed}: {found.units:,} windows of {settings['window']:,} characters, "
        f"{settings['secrets']} secrets of {settings['digits']} digits, each in one window (the "
        f"privacy unit); exposure is at most {found.max_exposure:.2f} bits, and 1.44 by chance on "
        f"average. {seconds:.0f} s in all.",
        "",
        "| copies | guarantee | exposure, bits | mean | p (all together) | extracted | ε at least "
        "(95 %) | bits per character |",
        "|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    return [*head, *(row(one, settings["delta"]) for one in found.situations)]


def row(one: Situation, delta: float) -> str:
    guarantee = "none" if one.epsilon is None else f"ε = {one.epsilon:g}, δ = {one.delta:g}"
    exposures = ", ".join(f"{each.exposure:.1f}" for each in one.secrets)
    return (
        f"| {one.times} | {guarantee} | {exposures} | {one.mean_exposure:.2f} | {one.p_value:.2g} "
        f"| {one.extracted} of {len(one.secrets)} | {one.bound(delta).epsilon:.1f} "
        f"| {one.bits_per_character:.2f} |"
    )


if __name__ == "__main__":
    main()
