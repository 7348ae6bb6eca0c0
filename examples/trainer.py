"""The same with Hugging Face's trainer: schedules, evaluation and checkpoints are its own.

    python examples/trainer.py MODEL_FOLDER TEXTS.txt HELD_OUT.txt OUT_FOLDER

Run it again with the same folder, and it goes on from its last checkpoint.
"""

import sys
from pathlib import Path

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

import tacit
from tacit.hf import PrivateTrainer

if len(sys.argv) != 5:
    sys.exit(__doc__)
source, file, held_out, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source)


def rows(path: str) -> list:
    """The lines of a file, in tokens."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [tokenizer(line, truncation=True, max_length=128) for line in lines if line.strip()]


texts = rows(file)
plan = tacit.Plan.for_budget(
    epsilon=8, delta=1e-5, examples=len(texts), lot_size=len(texts) / 10, epochs=3, clip=1.0
)
trainer = PrivateTrainer(
    model=AutoModelForCausalLM.from_pretrained(source),
    args=TrainingArguments(
        out,
        max_grad_norm=0.0,  # the plan's clip bounds every record; the trainer's would bound nobody
        learning_rate=1e-4,
        per_device_train_batch_size=16,  # of a physical batch; a lot has the plan's size
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        report_to="none",
    ),
    train_dataset=texts,
    eval_dataset=rows(held_out),
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    plan=plan,
    unit_in_words="one line of the file",
)
last = get_last_checkpoint(out) if Path(out).is_dir() else None
trainer.train(resume_from_checkpoint=last)
trainer.save_model()  # with statement.json beside the weights
sys.stdout.write(f"{trainer.statement().describe()}\n")
