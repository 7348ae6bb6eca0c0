"""A pretrained language model, fine-tuned with and without privacy: accuracy, perplexity, memory.

    python benchmarks/language_models.py classify --recipe sst2-smollm2 --set adapt=lora \
        --epsilon 1 3 8 --seeds 5 --out ROWS.json
    python benchmarks/language_models.py classify --recipe sst2-smollm2 --validation 5000 \
        --grid lr=5e-4,1e-3 lot=1024,2048 --epsilon 3 --seeds 1
    python benchmarks/language_models.py causal --epsilon 8 --seeds 5 --out ROWS.json
    python benchmarks/language_models.py memory --out ROWS.json
    python benchmarks/language_models.py secret --seeds 3 --out ROWS.json
    python benchmarks/language_models.py record ROWS.json …

Beside each private figure: the zero-shot model (the floor) and the same network trained without
privacy (the ceiling), by the same recipe's rows, prompt and number of epochs. With --validation a
recipe learns without the last N training rows and is judged on them: for choosing settings without
the test set. With --apart these rows are whole texts of which no part is learned: SST-2 has each
sentence and its phrases, so that a phrase that is held out was nearly learned. --vary tries what
the recipe does not have: half of each adapter frozen, an average of the weights, a rate for each
half of an adapter, losses that weigh as much as a text is long. --rows N takes the first N rows
only, to try the script on a small machine. A GPU's time comes in pieces: ``record``
adds the rows of several runs of this script to the record, where a row of the same settings, ε and
seed is replaced.
"""

import argparse
import copy
import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import machine
import tacit.recipes
from tacit import losses
from tacit.data import Examples, Split, load
from tacit.models.devices import device_named
from tacit.recipes import language, sst2_smollm2
from tacit.recipes.auditing import language_secret
from tacit.recipes.auditing.secret_results import SecretResult
from tacit.recipes.parts import moving_average
from tacit.runs import settings as settings_of
from tacit.runs.recipe import Task, free
from tacit.training import Performance, Plan, Prepared
from tacit.training.evaluation import accuracy
from tacit.training.fit import Schedule, Watch, carry_out

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
CEILING = {3.0: 96.0, 8.0: 97.0}  # the percentage of the non-private accuracy that is asked at an ε
OUTCOMES = {
    "accuracy", "nats", "perplexity", "seconds", "lot_seconds", "peak_bytes", "commit", "at_once",
}  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    if arguments.part == "record":
        save(arguments.files)
        return
    device = device_named(arguments.device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rows: list[Row] = []
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else None
    kept_apart = "whole texts, of which no part was learned" if arguments.apart else "training rows"
    judged_on = f"the last {arguments.validation} {kept_apart}" if arguments.validation else "test"
    with read_once():
        for row in PARTS[arguments.part](arguments, device):
            rows.append({"judged on": judged_on} | row)
            print(json.dumps(row))
            if arguments.out:
                stamp = {**machine.stamp(), "gpu": gpu, "torch": torch.__version__}
                content = {"stamp": stamp, "part": arguments.part, "rows": rows}
                arguments.out.write_text(json.dumps(content, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "record"])
    parser.add_argument("files", nargs="*", type=Path, help="rows to record")
    parser.add_argument("--recipe", default="sst2-smollm2")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[3.0])
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0, help="where a piece goes on")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--grid", nargs="*", default=[], metavar="NAME=V,W")
    parser.add_argument("--validation", type=int, default=0, metavar="N")
    parser.add_argument("--apart", action="store_true", help="whole texts are held out")
    parser.add_argument("--vary", nargs="*", choices=VARIATIONS, default=[])
    parser.add_argument("--rows", type=int, metavar="N")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--plain-lr", type=float, default=2e-5, help="of the ceiling")
    parser.add_argument("--plain-epochs", type=float, default=2.0)
    parser.add_argument("--plain-batch", type=int, default=32)
    parser.add_argument("--without-ceiling", action="store_true")
    parser.add_argument("--ceiling-alone", action="store_true", help="no private run")
    parser.add_argument("--at-once", type=int, default=1, help="processes that share the GPU")
    parser.add_argument("--tokens", type=int, default=512, help="of a row, for memory")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


@contextmanager
def read_once() -> Iterator[None]:
    """Weights and tokens, which are the same for all runs of a process, are read for the first."""
    prompted, loaded = language.prompted, language.loaded
    rows: dict[Any, language.Rows] = {}
    models: dict[Any, Any] = {}

    def prompted_once(prompt: language.Prompt, examples: Examples) -> language.Rows:
        key = prompt.before, prompt.after, prompt.longest, id(examples)
        if key not in rows:
            rows[key] = prompted(prompt, examples)
        return rows[key]

    def loaded_once(folder: str | None, device: torch.device) -> Any:
        if (folder, device) not in models:
            models[folder, device] = loaded(folder, device)
        found = models[folder, device]
        return replace(found, model=copy.deepcopy(found.model))

    with patch.multiple(language, prompted=prompted_once, loaded=loaded_once):
        yield


# ---- the task


def split_of(arguments: argparse.Namespace, name: str) -> Split:
    found = load(name, arguments.data)
    train, test = found.train, found.test
    if arguments.validation and arguments.apart:
        learned, judged = apart([*map(str, train.inputs)], arguments.validation)
        train, test = part(train, learned), part(train, judged)
    elif arguments.validation:
        every = range(len(train.inputs))
        train, test = (
            part(train, every[: -arguments.validation]),
            part(train, every[-arguments.validation :]),
        )
    if arguments.rows:
        train, test = (part(one, range(len(one.inputs))[: arguments.rows]) for one in (train, test))
    return replace(found, train=train, test=test)


def part(examples: Examples, places: Sequence[int]) -> Examples:
    return Examples(tuple(str(examples.inputs[at]) for at in places), examples.labels[[*places]])


def apart(texts: Sequence[str], count: int) -> tuple[list[int], list[int]]:
    """The last ``count`` texts that are part of no other; and all that no part is of these."""
    everything = "\n".join(dict.fromkeys(texts))
    whole = (at for at in reversed(range(len(texts))) if everything.count(texts[at]) == 1)
    judged = sorted(itertools.islice(whole, count))
    held_out = "\n".join(texts[at] for at in judged)
    return [at for at, text in enumerate(texts) if text not in held_out], judged


def grid(arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    given = dict(one.split("=", 1) for one in arguments.set)
    if arguments.model:
        given["model"] = arguments.model
    names = [one.partition("=")[0] for one in arguments.grid]
    values = [one.partition("=")[2].split(",") for one in arguments.grid]
    for chosen in itertools.product(*values):
        yield {**given, **dict(zip(names, chosen, strict=True))}


def tasks(arguments: argparse.Namespace, name: str, device: torch.device) -> Iterator[Task]:
    recipe, data = tacit.recipes.find(name), split_of(arguments, tacit.recipes.find(name).data)
    for given, epsilon in itertools.product(grid(arguments), arguments.epsilon):
        for seed in seeds(arguments):
            yield Task(
                settings=settings_of.changed(recipe.settings(epsilon), given),
                data=data,
                epsilon=epsilon,
                delta=arguments.delta,
                device=device,
                seed=seed,
            )


def seeds(arguments: argparse.Namespace) -> range:
    return range(arguments.first_seed, arguments.first_seed + arguments.seeds)


def prepared_by(name: str, task: Task) -> Prepared:
    recipe = tacit.recipes.find(name)
    assert recipe.outline is not None
    assert recipe.prepare is not None
    torch.manual_seed(task.seed or 0)
    return recipe.prepare(task, recipe.outline(task).plan, free)


# ---- what a recipe does not have


def rates(prepared: Prepared, *groups: tuple[Sequence[torch.nn.Parameter], float]) -> Prepared:
    """The same run with these parameters only, each group at this multiple of the rate."""
    assert isinstance(prepared.optimizer, torch.optim.Optimizer)
    lr = prepared.optimizer.defaults["lr"]
    optimizer = torch.optim.AdamW(
        [{"params": params, "lr": lr * times} for params, times in groups], lr=lr, weight_decay=0.0
    )
    scheduler = language.rising_and_falling(optimizer, prepared.plan.steps)
    return replace(prepared, optimizer=optimizer, schedule=Schedule(scheduler=scheduler))


def halves(prepared: Prepared) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The adapters' two factors: the one that begins at random, and the one that begins at 0."""
    named = [*prepared.model.named_parameters()]
    return tuple([one for name, one in named if half in name] for half in ("lora_A", "lora_B"))  # type: ignore[return-value]


def frozen(prepared: Prepared) -> Prepared:
    """Adapters whose random factor stays as it is (Sun et al. 2024): noise is never multiplied."""
    first, second = halves(prepared)
    for one in first:
        one.requires_grad_(False)
    return rates(prepared, (second, 1.0))


def faster(prepared: Prepared) -> Prepared:
    """A higher rate for the factor that begins at 0 (Hayou et al. 2024)."""
    first, second = halves(prepared)
    return rates(prepared, (first, 0.25), (second, 2.0))


def averaged(prepared: Prepared) -> Prepared:
    """An average of the last weights, which costs nothing."""
    average = moving_average(prepared.model, 0.9)
    return replace(prepared, schedule=replace(prepared.schedule, average=average))


def long(prepared: Prepared) -> Prepared:
    """Rows weigh by their own length, up to a usual sentence's: the test is of sentences."""
    loss = prepared.loss
    assert loss is not None

    def weighed(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        weights: torch.Tensor = ((batch["last"] + 1) / 24).clamp(max=1.0)
        return weights * loss(model, batch)

    return replace(prepared, loss=weighed)


VARIATIONS = {"frozen": frozen, "faster": faster, "averaged": averaged, "long": long}


# ---- parts


def classify(arguments: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    yield from compared(arguments, arguments.recipe, device, classes)


def causal(arguments: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    yield from compared(arguments, "shakespeare-smollm2", device, perplexity)


def compared(
    arguments: argparse.Namespace, name: str, device: torch.device, judge: Any
) -> Iterator[Row]:
    """The floor and the ceiling once for every setting, then the private runs."""
    known: list[Row] = []
    for task in tasks(arguments, name, device):
        setting = settings_of.as_dict(task.settings)
        setting.pop("model")
        prepared = prepared_by(name, task)
        for variation in arguments.vary:
            prepared = VARIATIONS[variation](prepared)
        if isinstance(task.settings, sst2_smollm2.Settings):  # what is not set is chosen there
            setting |= asdict(sst2_smollm2.steps(task.settings, task.epsilon))
        setting |= {"varied": arguments.vary} if arguments.vary else {}
        if setting not in known:
            known.append(setting)
            yield {"kind": "zero-shot", **setting, **judge(prepared)}
            if not arguments.without_ceiling:
                yield {
                    "kind": "not private",
                    **setting,
                    "seed": task.seed,
                    "plain": [
                        arguments.plain_lr, arguments.plain_epochs, arguments.plain_batch,
                    ],
                    **ceiling(prepared, arguments, device, judge),
                }  # fmt: skip
        if arguments.ceiling_alone:
            known.clear()  # one for every seed
            continue
        ends = [time.perf_counter()]
        watch = Watch(progress=None, on_step=lambda _, ends=ends: ends.append(time.perf_counter()))
        done = carry_out(prepared, delta=task.delta, watch=watch)
        took = time.perf_counter() - ends[0]
        lots = [after - before for before, after in itertools.pairwise(ends)]
        yield {
            "kind": "private",
            "epsilon": done.statement.epsilon,
            **setting,
            "seed": task.seed,
            **judge(prepared),
            "seconds": round(took, 1),
            "lot_seconds": round(statistics.median(lots), 3),
            "at_once": arguments.at_once,
        }


def ceiling(
    prepared: Prepared, arguments: argparse.Namespace, device: torch.device, judge: Any
) -> Row:
    """What the same network comes to without privacy; its weights are put back afterwards."""
    before = {name: value.clone() for name, value in prepared.model.state_dict().items()}
    start = time.perf_counter()
    plainly(prepared, arguments, device)
    took = time.perf_counter() - start
    found = {**judge(prepared), "seconds": round(took, 1)}
    prepared.model.load_state_dict(before)
    return found


def right(prepared: Prepared) -> Row:
    assert prepared.held_out is not None
    found = accuracy(
        prepared.final, prepared.held_out, correct=prepared.correct, collate=prepared.collate
    )
    return {"accuracy": round(100 * found, 2)}


def classes(prepared: Prepared) -> Row:
    """Accuracy, and how sure of it the model is: the mean loss of a held-out row, in nats."""
    rows, model = prepared.held_out, prepared.final.eval()
    assert prepared.loss is not None
    assert prepared.collate is not None
    device, found = next(model.parameters()).device, []
    with torch.no_grad():
        for begin in range(0, len(rows), 128):  # type: ignore[arg-type]
            last = min(begin + 128, len(rows))  # type: ignore[arg-type]
            batch = prepared.collate([rows[at] for at in range(begin, last)])  # type: ignore[index]
            found.append(
                prepared.loss(model, {name: one.to(device) for name, one in batch.items()})
            )
    return {**right(prepared), "nats": round(float(torch.cat(found).mean()), 4)}


@torch.no_grad()
def perplexity(prepared: Prepared) -> Row:
    """The exponential of the mean loss of a held-out token, whatever speech it is in."""
    model, rows, nats, tokens = prepared.final.eval(), prepared.held_out, 0.0, 0
    device = next(model.parameters()).device
    for begin in range(0, len(rows), 16):  # type: ignore[arg-type]
        last = min(begin + 16, len(rows))  # type: ignore[arg-type]
        batch = language.right_padded([rows[at] for at in range(begin, last)])  # type: ignore[index]
        batch = {name: one.to(device) for name, one in batch.items()}
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        nats += float(losses.token_sum(logits[:, :-1], batch["labels"][:, 1:]).sum())
        tokens += int((batch["labels"][:, 1:] != -100).sum())
    return {"perplexity": round(math.exp(nats / tokens), 3), **right(prepared)}


def plainly(prepared: Prepared, arguments: argparse.Namespace, device: torch.device) -> None:
    """The same network, rows and loss without privacy: shuffled batches, AdamW, one rate's fall."""
    model, rows = prepared.model.train(), prepared.dataset
    optimizer = torch.optim.AdamW(language.trainable(model), lr=arguments.plain_lr)
    steps = max(1, round(arguments.plain_epochs * len(rows) / arguments.plain_batch))  # type: ignore[arg-type]
    schedule = language.rising_and_falling(optimizer, steps)
    loader = torch.utils.data.DataLoader(
        rows, arguments.plain_batch, shuffle=True, collate_fn=prepared.collate
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for batch in itertools.islice(batches, steps):
        here = {name: one.to(device) for name, one in batch.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            assert prepared.loss is not None
            found = prepared.loss(model, here)
        optimizer.zero_grad()
        found.mean().backward()
        optimizer.step()
        schedule.step()
    optimizer.zero_grad()  # a private run begins without gradients


def memory(arguments: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """Peak memory of LoRA steps on 32 rows: ordinary ones and private ones; on a GPU."""
    rows, width = 32, arguments.tokens
    ids = torch.randint(5, 50, (rows, width), device=device)
    data = [{"input_ids": one, "labels": one} for one in ids]
    for kind in ("not private", "private"):
        model = language.adapted(language.loaded(arguments.model, device).model, "lora", 16).train()
        optimizer = torch.optim.AdamW(language.trainable(model), lr=1e-4)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if kind == "private":
            plan = Plan(examples=rows, lot_size=rows, steps=3, noise_multiplier=1.0, clip=1.0)
            with tacit.private(
                model,
                optimizer,
                plan,
                data,  # type: ignore[arg-type]
                performance=Performance(batch=rows, precision="bfloat16"),
            ) as dp:
                for lot in dp.lots():
                    for batch in lot:
                        dp.backward(losses.of(model, batch))
                    dp.step()
        else:
            for _ in range(3):
                with torch.autocast(device.type, torch.bfloat16):
                    found = losses.of(model, {"input_ids": ids, "labels": ids})
                optimizer.zero_grad()
                found.mean().backward()
                optimizer.step()
        peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
        yield {"kind": kind, "rows": rows, "tokens": width, "peak_bytes": peak}
        del model, optimizer


def secret(arguments: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """The audit, once for every seed."""
    given = {key: value for one in grid(arguments) for key, value in one.items()}
    chosen = replace(language_secret.Settings(), **{k: number(v) for k, v in given.items()})
    for seed in seeds(arguments):
        found = language_secret.run(
            chosen, data=split_of(arguments, "speeches"), seed=seed, device=str(device)
        )
        print(found.describe())
        row = {"kind": "secret", "seed": seed, **found.as_dict()}
        row["settings"]["model"] = machine.portable(str(chosen.model or "SmolLM2-135M-Instruct"))
        yield row


def number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---- the record


def save(files: Sequence[Path]) -> None:
    """Adds the rows of ``files`` to those of the record, and writes its tables."""
    path = RESULTS / "language_models.json"
    record = json.loads(path.read_text()) if path.exists() else {"pieces": [], "rows": []}
    for content in (json.loads(file.read_text()) for file in files):
        record["pieces"].append(content["stamp"])
        commit = content["stamp"]["commit"]
        made = [{"part": content["part"], **row, "commit": commit} for row in content["rows"]]
        replaced = {identity(row) for row in made}
        record["rows"] = [row for row in record["rows"] if identity(row) not in replaced] + made
    path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(record))


def identity(row: Row) -> str:
    """What a row is of: all but what came out."""
    kept = {name: value for name, value in row.items() if name not in OUTCOMES}
    if "epsilon" in kept:
        kept["epsilon"] = round(kept["epsilon"], 3)
    return json.dumps(kept, sort_keys=True)


def markdown(record: Row) -> str:
    last = record["pieces"][-1]
    pieces = [
        f"- {one['date']}, {one['commit']}: `{one['command']}`{one.get('note', '')}"
        for one in record["pieces"]
    ]
    of: dict[str, list[Row]] = {part: [] for part in PARTS}
    for row in record["rows"]:
        of[row["part"]].append(row)
    lines = [
        f"{last['gpu']}, torch {last['torch']}; δ = 1e-5, true Poisson lots, everything that "
        "training releases is charged.", "",
        *classified(of["classify"]), *continued(of["causal"]), *remembered(of["memory"]),
        *asked_for(of["secret"]), "Made in pieces:", "", *pieces,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def classified(rows: Sequence[Row]) -> list[str]:
    tested = [row for row in rows if row["judged on"] == "test"]
    tried = [row for row in rows if row["judged on"] != "test" and row["kind"] == "private"]
    return [
        "### SST-2 by SmolLM2-135M, fine-tuned with differential privacy", "",
        "Accuracy on the 872 sentences of the task's validation set, by which nothing was chosen; "
        "of each seed, that of the last weights. *Not private* is the same network, prompt and "
        "rows by AdamW on shuffled batches, at the best rate of those tried; *share* is of its "
        "accuracy. *Seconds* are those of a "
        "run alone, where one was, else of runs that shared the GPU.", "",
        "| trained | ε | noise | lot | epochs | rate | clip | rank | accuracy, % | seeds | "
        "zero-shot | not private | share, % | asked | seconds |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|",
        *outcomes(tested), "",
        "Settings were chosen by accuracy on training rows that were held out. Most of these rows "
        "are phrases, whose sentences or parts were learned: a higher figure there was not always "
        "one on the sentences of the test.", "",
        "| trained | ε | noise | lot | epochs | rate | clip | rank | judged on | accuracy, % |",
        "|---|---:|---|---:|---:|---:|---:|---:|---|---:|",
        *(
            f"| {' | '.join(setting(row))} | {row['judged on']} | {row['accuracy']:.2f} |"
            for row in tried
        ), "",
        "Published figures are of far larger networks, and so not comparable: RoBERTa-large "
        "93.9 % at ε = 3 (fastDP), Mistral-7B by QLoRA 96.4 % at ε = 8. Of a network of this size "
        "we know none.", "",
    ]  # fmt: skip


def continued(rows: Sequence[Row]) -> list[str]:
    """Perplexity of held-out text, a line for each kind of training."""
    if not rows:
        return []
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        epsilon = f"{row['epsilon']:.3g}" if "epsilon" in row else ""
        found.setdefault((row["kind"], row["adapt"], epsilon), []).append(row)
    lines = [
        "### Tiny Shakespeare, continued by SmolLM2-135M", "",
        "Perplexity of the held-out speeches by token; one speech is the unit.", "",
        "| trained | of it | ε | perplexity | seeds | tokens guessed, % | seconds |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for (kind, adapt, epsilon), some in found.items():
        values = [row["perplexity"] for row in some]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        took = [row["seconds"] for row in some if "seconds" in row]
        lines.append(
            f"| {kind} | {adapt} | {epsilon} | {statistics.mean(values):.2f}{spread} | "
            f"{len(values)} | {shown([row['accuracy'] for row in some])} | "
            f"{f'{statistics.mean(took):.0f}' if took else ''} |"
        )
    return [*lines, ""]


def remembered(rows: Sequence[Row]) -> list[str]:
    """Peak memory, and its ratio to that of the ordinary step."""
    if not rows:
        return []
    base = next(row["peak_bytes"] for row in rows if row["kind"] == "not private")
    lines = [
        "### Memory of LoRA steps of SmolLM2-135M, bf16", "",
        "| step | rows | tokens | peak, GiB | ratio | asked |", "|---|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for row in rows:
        ratio = row["peak_bytes"] / base
        asked = "" if row is rows[0] else f"≤ 1.1: {'met' if ratio <= 1.1 else 'not met'}"
        lines.append(
            f"| {row['kind']} | {row['rows']} | {row['tokens']} | {row['peak_bytes'] / 2**30:.2f} "
            f"| {ratio:.3f} | {asked} |"
        )
    return [*lines, ""]


def asked_for(rows: Sequence[Row]) -> list[str]:
    """What twin and private models reveal of the secrets that were put into their text."""
    if not rows:
        return []
    lines = [
        "### Nine-digit secrets in what SmolLM2-135M was fine-tuned on", "",
        "A pretrained model copies what it has just read: of further copies in the same speech it "
        "learns little, and of the first less, since a speech's loss is the mean of its tokens.",
        "",
        "| training | speeches | epochs | copies in a speech | ε | seed | "
        "exposure, bits: mean (largest) | extracted | p of chance |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for row in rows:
        fields = ("settings", "seed", "units", "max_exposure", "situations")
        for one in SecretResult.from_dict({name: row[name] for name in fields}).situations:
            most = max(secret.exposure for secret in one.secrets)
            epsilon = "" if one.epsilon is None else f"{one.epsilon:g}"
            passes = row["settings"]["epochs" if one.epsilon is None else "private_epochs"]
            lines.append(
                f"| {one.name} | {row['units']:,} | {passes:g} | {one.times} | {epsilon} | "
                f"{row['seed']} | "
                f"{one.mean_exposure:.1f} ({most:.1f}) | {one.extracted} of {len(one.secrets)} | "
                f"{one.p_value:.2g} |"
            )
    return [*lines, ""]


def setting(row: Row) -> tuple[str, ...]:
    """How a private row was made, in the words of the table."""
    lot, epochs, rate = row["lot"], f"{row['epochs']:g}", f"{row['lr']:g}"
    noise = "correlated" if row.get("correlated") else "independent"  # older rows do not say
    rank = f"{row['rank']}" if row["adapt"] == "lora" else ""
    clip = f"{row['clip']:g}"
    trained = ", ".join([row["adapt"], *row.get("varied", [])])
    return trained, f"{row['epsilon']:.3g}", noise, f"{lot}", epochs, rate, clip, rank


def outcomes(rows: Sequence[Row]) -> Iterator[str]:
    """A line for every setting: the mean over seeds, beside the floor and the ceiling."""
    private = [row for row in rows if row["kind"] == "private"]
    for made in sorted({setting(row) for row in private}, reverse=True):
        beside = [row for row in rows if row["adapt"] == made[0].partition(",")[0]]
        floor = [row["accuracy"] for row in beside if row["kind"] == "zero-shot"]
        top = best_of([row for row in beside if row["kind"] == "not private"])
        yield outcome(made, [row for row in private if setting(row) == made], floor, top)


def best_of(rows: Sequence[Row]) -> list[float]:
    """The accuracies of the plain setting that has the best mean: a ceiling is never too low."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(json.dumps(row["plain"]), []).append(row["accuracy"])
    return max(found.values(), key=statistics.mean, default=[])


def outcome(
    made: tuple[str, ...], rows: Sequence[Row], floor: Sequence[float], top: Sequence[float]
) -> str:
    found = [row["accuracy"] for row in rows]
    mean = statistics.mean(found)
    spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    asked = CEILING.get(float(made[1]))
    share = 100 * mean / statistics.mean(top) if top else None
    verdict = f"≥ {asked:g} %" if asked else ""
    if share and asked:
        verdict += ": met" if share >= asked else ": not met"
    alone = [row for row in rows if row.get("at_once", 1) == 1]
    seconds = f"{statistics.mean(row['seconds'] for row in alone or rows):.0f}"
    if not alone:
        seconds += f" ({max(row['at_once'] for row in rows)} at once)"
    return (
        f"| {' | '.join(made)} | {mean:.2f}{spread} | {len(found)} | {shown(floor)} | "
        f"{shown(top)} | {f'{share:.1f}' if share else ''} | {verdict} | {seconds} |"
    )


def shown(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f}" if values else ""


PARTS = {"classify": classify, "causal": causal, "memory": memory, "secret": secret}


if __name__ == "__main__":
    main()
