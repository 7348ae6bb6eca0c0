"""``tacit generate``: synthetic text from a private language model, with its statement."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tacit._numbers import at_most
from tacit.cli.options import Refusal
from tacit.cli.run_options import DEVICE, SEED, check_device
from tacit.cli.streams import complain, say

EPILOG = """\b
Examples:
  tacit generate runs/shakespeare-smollm2 --count 3 --prompt "ROMEO:"
  tacit generate runs/shakespeare-smollm2 --count 1000 --out synthetic.json
"""


@click.command(epilog=EPILOG, short_help="Samples synthetic text from a private model.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", type=int, default=5, show_default=True, help="Number of texts.")
@click.option("--prompt", default="", help="Public text that each one begins with.")
@click.option("--tokens", type=int, default=64, show_default=True, help="Most tokens of a text.")
@click.option("--temperature", type=float, default=1.0, show_default=True,
              help="Below 1, likely words become likelier.")  # fmt: skip
@click.option("--seed", metavar="N", type=SEED, help="Seed for sampling the text.")
@click.option("--device", metavar="NAME", default=DEVICE, show_default=True,
              help="auto, cpu, cuda or cuda:N.")  # fmt: skip
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help="Write texts and statement to this file, as JSON.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def generate(
    folder: Path,
    count: int,
    prompt: str,
    tokens: int,
    temperature: float,
    seed: int | None,
    device: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Samples synthetic text from the private model in FOLDER, and says what it gives away.

    Text made from the released model costs no more privacy, however much there is.
    """
    from tacit import _files
    from tacit.recipes import generation
    from tacit.statement.words import VOID

    if out is not None and out.exists():
        raise Refusal(f"--out {out} is there already; name a new file")
    found = generation.generate(
        folder, count=count, prompt=prompt, tokens=tokens, temperature=temperature, seed=seed,
        device=check_device(device),
    )  # fmt: skip
    content = json.dumps(found.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    if out is not None:
        try:
            _files.put(out, f"{content}\n".encode())
        except OSError as error:
            raise Refusal(f"--out {out} cannot be written: {error.strerror or error}") from None
        complain(f"{len(found.texts)} texts and their statement are in {out}")
    elif as_json:
        say(content)
    else:
        for text in found.texts:
            say(text)
            say("---")
        claim = found.statement
        made = "the released model and a public prompt" if prompt else "the released model alone"
        promised = (
            f"no guarantee, for {VOID}"
            if claim.void
            else f"(ε, δ) = ({at_most(claim.epsilon, 4)}, {at_most(claim.delta)}) for one "
            f"{claim.unit}, as its statement says"
        )
        complain(f"made from {made}: {promised}")
