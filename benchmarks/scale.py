"""How long a private step takes on 8 to 1,024 GPUs: a model, from what was measured on one.

    python benchmarks/scale.py [--record]

It needs no GPU: the compute is that of `results/engine_gpu.json` (GPT-2's shape on an H200, private
step), the noise that of `results/noise_cost.json`; coins and shares of noise are timed here, on one
core. Bytes follow from how tacit trains with FSDP2. What is assumed is printed with the table.
"""

import argparse
import json
import math
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import machine
from tacit.randomness import GaussianSource, RoundedGaussian, Share, fresh_stream, included

RESULTS = Path(__file__).resolve().parent / "results"
NAME = "scale"
WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024)
PARAMETERS = {"1B": 1.0e9, "8B": 8.0e9}
LAYERS = {"1B": 26, "8B": 32}
LOT, TOKENS, RECORDS = 16_384, 1_024, 10**8  # rows of a lot, tokens of a row, rows in all
NODE = 8  # GPUs that NVLink joins; a hybrid mesh has a piece of every parameter in each of them
ROWS = {"1B": 16, "8B": 8}  # of a batch: what activations and output gradients leave room for
NVLINK, NETWORK = 0.8 * 450e9, 0.8 * 50e9  # bytes a second, each way, of what is sold
LATENCY = 20e-6  # of a collective on the devices
WORD = 0.3e-3  # of a word between eight processes (gloo); it grows with the logarithm of them
GPT = 163e6, 32 * 256  # parameters and tokens of the step that was measured
MEMORY = 4.8e12 * 0.7  # bytes a second of an H200's memory, for the optimizer


@dataclass(frozen=True)
class Step:
    """The parts of a step's time, in seconds."""

    compute: float
    gathers: float  # of weights, before and again behind a layer's forward pass
    sums: float  # into the pieces, and over copies
    noise: float
    optimizer: float
    words: float
    coins: float

    @property
    def total(self) -> float:
        """Gathers run while layers compute; the rest comes one after the other."""
        alone = self.sums + self.noise + self.optimizer + self.words + self.coins
        return max(self.compute, self.gathers) + alone

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        parts = asdict(self)
        return max(parts, key=lambda name: parts[name])


def step(name: str, world: int, measured: dict[str, float]) -> Step:
    """One step of a hybrid mesh: eight pieces a node, and a copy of them in each node."""
    parameters, layers = PARAMETERS[name], LAYERS[name]
    passes = math.ceil(math.ceil(LOT / world) / ROWS[name])
    tokens = math.ceil(LOT / world) * TOKENS
    pieces, copies = min(world, NODE), world // min(world, NODE)
    share = (pieces - 1) / pieces
    gathered = 2 * 2 * parameters * share / NVLINK + 2 * layers * LATENCY
    reduced = 4 * parameters * share / NVLINK + LATENCY
    if copies > 1:
        reduced += 2 * (copies - 1) / copies * 4 * parameters / pieces / NETWORK + LATENCY
    exchanges = 2 * passes + 3
    return Step(
        compute=6 * parameters * tokens / measured["flops"],
        gathers=passes * gathered,
        sums=passes * reduced,
        noise=parameters / pieces / measured["noise"],
        optimizer=parameters / pieces * 28 / MEMORY,
        words=exchanges * WORD * math.log2(world) / math.log2(8),
        coins=RECORDS / measured["coins"],
    )


# ---- what is measured


def measured() -> dict[str, float]:
    gpu = json.loads((RESULTS / "engine_gpu.json").read_text())["rows"]["gpt256"]["tacit"]["ms"]
    noise = json.loads((RESULTS / "noise_cost.json").read_text())["cuda"]["rows"][-1]
    parameters, tokens = GPT
    stream = fresh_stream("benchmark")
    count = 4_000_000
    coins = 1e-3 * _processor(lambda: included(count, 0.001, stream))
    return {
        "flops": 6 * parameters * tokens / (gpu * 1e-3),
        "noise": noise["parameters"] / statistics.median(noise["noise"]["fast"]),
        "coins": count / coins,
    }


def shares(of: int = 1 << 24) -> list[dict[str, float]]:
    """Processor time of a rank's share of the noise, fast and secure, for 1, 2 and 4 ranks."""
    return [_share(of, ranks) for ranks in (1, 2, 4)]


def _share(of: int, ranks: int) -> dict[str, float]:
    cpu, few = torch.device("cpu"), of // 16  # of the slower noise
    fast = GaussianSource(cpu, fresh_stream("benchmark"))
    secure = RoundedGaussian(fresh_stream("benchmark"), cpu)
    piece, part = (Share(n, ((n // ranks * (ranks - 1), n),)) for n in (of, few))
    room, whole = torch.empty(piece.count), torch.empty(part.count, dtype=torch.int64)
    return {
        "ranks": ranks,
        "fast_ms": _processor(lambda: fast.normal_(room, share=piece)),
        "secure_ms": 16 * _processor(lambda: secure.integers_(whole, 2.0**20, share=part)),
    }


def _processor(call: Any) -> float:
    """Milliseconds of processor time, the median of five calls after one that does not count."""
    call()
    times = []
    for _ in range(5):
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return 1e3 * statistics.median(times)


# ---- the report


def report(record: dict[str, Any]) -> str:
    lines = [
        "# A private step on 8 to 1,024 GPUs: a model, not a measurement",
        "",
        f"Computed {record['date']} at commit {record['commit'][:12]} by `{record['command']}` on "
        f"{record['machine']['cpu']}. Seconds of a step of {LOT:,} rows of {TOKENS:,} tokens, out "
        f"of {RECORDS:,} rows, and what takes longest.",
        "",
        "| model | GPUs | step | compute | gathers | sums | noise | optimizer | words | coins | "
        "of ideal | bound by |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in record["rows"]:
        parts = " | ".join(f"{row[name]:.3g}" for name in Step.__dataclass_fields__)
        lines.append(
            f"| {row['model']} | {row['gpus']} | {row['step']:.3g} | {parts} | "
            f"{row['efficiency']:.0%} | {row['bound']} |"
        )
    lines += ["", "Assumed:", ""]
    lines += [f"- {one}" for one in record["assumptions"]]
    lines += [
        "", "Noise of one rank's share of 16,777,216 entries on this CPU, processor time:", "",
        "| ranks | fast, ms | of one rank | secure, ms | of one rank |",
        "|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    first = record["shares"][0]
    lines += [
        f"| {one['ranks']} | {one['fast_ms']:.1f} | {one['fast_ms'] / first['fast_ms']:.2f} | "
        f"{one['secure_ms']:.0f} | {one['secure_ms'] / first['secure_ms']:.2f} |"
        for one in record["shares"]
    ]
    return "\n".join(lines) + "\n"


def assumptions(found: dict[str, float]) -> list[str]:
    return [
        f"compute: 6·parameters·tokens floating-point operations at {found['flops'] / 1e12:.0f} "
        "TFLOP/s, which is what the private step of GPT-2's shape reached on one H200 "
        "(results/engine_gpu.json, T = 256, bf16); larger models usually reach more",
        f"a hybrid mesh: {NODE} pieces in a node, a copy in every node; weights are gathered in "
        "bf16 twice a batch, while layers compute; sums are reduced in fp32 once a batch, into the "
        "pieces (NVLink) and over the copies (network), and wait for the norms of the whole batch",
        f"batches of {ROWS['1B']} rows (1B) and {ROWS['8B']} rows (8B) on a GPU",
        f"NVLink {NVLINK / 1e9:.0f} GB/s, network {NETWORK / 1e9:.0f} GB/s a GPU, each way (80 % "
        f"of 450 and 50), {LATENCY * 1e6:.0f} µs a collective",
        f"noise: {found['noise'] / 1e9:.0f}·10⁹ numbers a second (results/noise_cost.json); "
        "each copy of a piece draws it again, so that a node draws every parameter once",
        f"coins: every rank flips one for each of {RECORDS:,} rows by itself, "
        f"{found['coins'] / 1e6:.0f}·10⁶ a second on the core that was used here; nothing hides it",
        f"words: two a batch and three a lot, {WORD * 1e3:.1f} ms among 8 processes, growing with "
        "the logarithm; not measured on a cluster",
        "nothing of this was run on more than one GPU",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="keep the result")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measured()
    rows = []
    for name in PARAMETERS:
        ideal = step(name, WORLDS[0], found).total * WORLDS[0]
        for world in WORLDS:
            one = step(name, world, found)
            rows.append(
                {"model": name, "gpus": world, "step": one.total, **asdict(one),
                 "bound": one.bound, "efficiency": ideal / world / one.total}
            )  # fmt: skip
    record = {
        **machine.stamp(), "measured": found, "assumptions": assumptions(found), "rows": rows,
        "shares": shares(),
    }  # fmt: skip
    text = report(record)
    print(text)
    if arguments.record:
        (RESULTS / f"{NAME}.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / f"{NAME}.md").write_text(text)


if __name__ == "__main__":
    main()
