"""The injected bugs, and engines without one, on a device and with recorded steps.

Part of `mutants.py --device`. The record is results/mutants_gpu.json, written after every bug or
setting; a CPU rehearses it, playing recordings by running the work again, and keeps nothing.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import isolated
import machine

RESULTS = Path(__file__).resolve().parent / "results"
LIMIT = 900.0  # seconds for one report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help="train there, in recorded steps")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds, on a device")
    parser.add_argument("--into", type=Path, default=RESULTS, help="folder, on a device")


def on_a_device(arguments: argparse.Namespace) -> None:
    """Puts those bugs to the self-test that a device can have, or settings without a bug."""
    worker, torch = import_module("mutants_worker"), import_module("torch")
    if arguments.clean:
        kind, work = "clean", worker.clean_on_device
        names = [
            name for name, (subject, _, _) in worker.correct().items() if subject.name == "tacit"
        ]
        wanted = names
    else:
        kind, work = "mutants", worker.on_device
        names = list(arguments.mutants or worker.KNOWN)
        wanted = [name for name in names if worker.KNOWN[name].is_of_a_device]
    gpu = torch.cuda.get_device_name() if arguments.device == "cuda" else "a CPU (a rehearsal)"
    about = machine.stamp() | {
        "device": gpu, "torch": torch.__version__, "processes": arguments.processes,
        "asked": len(wanted), "left": [name for name in names if name not in wanted],
    }  # fmt: skip
    path = arguments.into / "mutants_gpu.json"
    record = json.loads(path.read_text()) if arguments.record and path.exists() else {}
    started, rows = time.perf_counter(), dict[str, dict[str, Any]]()
    for (name, _), row in isolated.carried_out(
        work, [(name, arguments.device) for name in wanted], arguments.processes, limit=LIMIT,
        seconds=arguments.within,
    ):  # fmt: skip
        rows[name] = {"name": name} | row
        found = row.get("error") or ", ".join(row["at_fault"]) or row["refusal"] or "nothing"
        print(f"{name}: {found}", file=sys.stderr, flush=True)
        done = {"rows": [rows[one] for one in wanted if one in rows]}
        record[kind] = about | {"seconds": time.perf_counter() - started} | done
        if arguments.record:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
            path.write_text(machine.portable(text) + "\n")
            path.with_suffix(".md").write_text(machine.portable(markdown(record)) + "\n")
    print(markdown(record))


# ---- in words


def markdown(record: dict[str, Any]) -> str:
    sections = {"mutants": mutants_in_words, "clean": clean_in_words}
    return "\n\n".join(tell(record[key]) for key, tell in sections.items() if key in record)


def run_in_words(part: dict[str, Any], what: str) -> str:
    rows = [row for row in part["rows"] if "replays" in row]
    batches, updates = (sum(row["replays"][one] for row in rows) for one in ("batches", "updates"))
    return (
        f"Run {part['date']} at commit {part['commit']} by `{part['command']}`: torch "
        f"{part['torch']}, {part['processes']} processes, {part['seconds']:.0f} s; "
        f"{len(part['rows'])} of {part['asked']} {what} were reached. The engine trained on the "
        "device, without TF32, with steps recorded wherever it can; what it released was read from "
        f"the recordings themselves ({batches:,} batches and {updates:,} updates were replayed), "
        "and compared with the truth in double precision on the CPU."
    )


def mutants_in_words(part: dict[str, Any]) -> str:
    rows = part["rows"]
    missed = [row for row in rows if not row.get("caught", False)]
    caught = [row for row in rows if row.get("caught", False)]
    early = sum(not any(row["replays"].values()) for row in caught)
    lines = [
        f"### {len(caught)} of {len(rows)} injected bugs caught on {part['device']}, "
        "with recorded steps and the component named",
        "",
        f"{run_in_words(part, 'bugs')} A report ends at its first right fault; {early} came before "
        "anything was replayed, as the first steps of a run are computed one by one. It counts if "
        "the engine without the bug passes the check that found it, in the same setting. *Plain*: "
        "the bug is a patch of the way without kernels, and was named rightly once the device took "
        "that way, not before.",
        "",
        "Left to the CPU's record, as they are of parts without a setting or of an engine of "
        f"several ranks: {', '.join(part['left']) or 'none'}.",
        "",
        "| bug | what is wrong | caught | named | may be named | replayed | seconds |",
        "|---|---|---|---|---|---:|---:|",
        *(mutant_line(row) for row in rows),
        "",
        *(missed_line(row) for row in missed),
    ]
    return "\n".join(lines).rstrip()


def mutant_line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {row['name']} | | **NO** | error: {cell(row['error'])} | | | |"
    named = ", ".join(row["at_fault"]) or row["refusal"] or "nothing"
    caught = ("plain" if row.get("plain") else "yes") if row["caught"] else "**NO**"
    cells = [row["name"], row["says"], caught, named, ", ".join(row["may"]), replayed(row)]
    return f"| {' | '.join(map(cell, cells))} | {row['seconds']:.1f} |"


def missed_line(row: dict[str, Any]) -> str:
    """What there is to know of a bug that was not caught: whether the device met it at all."""
    if "error" in row:
        return f"- {row['name']}: {row['error']}"
    said = "; ".join(row["faults"]) or row["refusal"] or f"{row['checks']} checks passed"
    if row.get("control"):
        return f"- {row['name']}: {said}. The engine without it has {'; '.join(row['control'])}"
    if row["injected"] is None:
        return f"- {row['name']}: {said}"
    met = "; ".join(row["injected"]) or "nothing: the device takes another way"
    return f"- {row['name']}: {said}. Of its functions ran {met}."


def clean_in_words(part: dict[str, Any]) -> str:
    rows = part["rows"]
    alarms = [row for row in rows if "error" in row or row["faults"] or row["refusal"]]
    checks = sum(row.get("checks", 0) for row in rows)
    lines = [
        f"### {len(alarms)} false alarms in {len(rows)} settings without a bug, on "
        f"{part['device']}, with recorded steps",
        "",
        f"{run_in_words(part, 'settings')} {checks:,} checks in all.",
        "",
        "| setting | checks | found | replayed | seconds |",
        "|---|---:|---|---:|---:|",
        *(clean_line(row) for row in rows),
    ]
    return "\n".join(lines)


def clean_line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {row['name']} | | error: {cell(row['error'])} | | |"
    found = "; ".join(row["faults"]) or row["refusal"] or "nothing"
    return (
        f"| {row['name']} | {row['checks']} | {cell(found)} | {replayed(row)} | "
        f"{row['seconds']:.1f} |"
    )


def replayed(row: dict[str, Any]) -> str:
    return f"{row['replays']['batches']}, {row['replays']['updates']}"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "∣")[:400]
