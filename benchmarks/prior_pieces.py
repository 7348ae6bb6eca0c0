r"""Makes the prior of cifar10-prior on a GPU, in pieces of some minutes, and measures how fast.

    python benchmarks/prior_pieces.py --out DIR --seconds 540 [--passes 200] [--set KEY=VALUE ...]

The first call begins it in DIR, later ones go on. As ``tacit prior build``, but for a machine that
has nothing but NumPy, SciPy, PyTorch and safetensors.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from tacit.recipes import prior
from tacit.runs.settings import changed


def main() -> None:
    arguments = parse_arguments()
    changes = dict(one.split("=", 1) for one in arguments.set)
    chosen = changed(prior.PriorSettings(passes=arguments.passes), changes)
    began = time.perf_counter()

    def report(now: prior.Progress) -> None:
        left = 2 * chosen.batch * (now.steps - now.step) / now.views_per_second
        print(
            f"{time.perf_counter() - began:6.1f} s  step {now.step:,} of {now.steps:,}  "
            f"loss {now.loss:.4f}  {now.views_per_second:,.0f} views/s  {left:,.0f} s left",
            flush=True,
        )

    done = prior.build(
        arguments.out, chosen, device=arguments.device, seconds=arguments.seconds, report=report,
        compiled=False if arguments.eager else None,
    )  # fmt: skip
    if done is None:
        print(f"stopped after {time.perf_counter() - began:.1f} s; the next call goes on")
        sys.exit(0)
    print(json.dumps(json.loads((arguments.out / prior.RECORD).read_text()), indent=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, help="when to stop, from the start of the call")
    parser.add_argument("--passes", type=float, default=prior.PriorSettings().passes)
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    parser.add_argument("--eager", action="store_true", help="do not compile the network")
    return parser.parse_args()


if __name__ == "__main__":
    main()
