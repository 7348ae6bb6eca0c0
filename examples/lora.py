"""A language model learns a file of texts, a line each, with private adapters of low rank.

    python examples/lora.py MODEL_FOLDER TEXTS.txt ADAPTER_FOLDER

A line is what is protected. Everything but the plan is ordinary transformers and PEFT. Beside the
adapters lies the statement, which names them by their checksum: `tacit generate ADAPTER_FOLDER`.
"""

import hashlib
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling

import tacit
from tacit.statement import extended

if len(sys.argv) != 4:
    sys.exit(__doc__)
source, file, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source)
lines = Path(file).read_text(encoding="utf-8").splitlines()
texts = [tokenizer(line, truncation=True, max_length=128) for line in lines if line.strip()]
model = get_peft_model(AutoModelForCausalLM.from_pretrained(source), LoraConfig())
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
collate = DataCollatorForLanguageModeling(tokenizer, mlm=False)
plan = tacit.Plan.for_budget(
    epsilon=8, delta=1e-5, examples=len(texts), lot_size=len(texts) / 10, epochs=3, clip=1.0
)
with tacit.private(model, optimizer, plan, texts, collate=collate) as dp:
    for lot in dp.lots():
        dp.accumulate(lot, lambda batch: tacit.losses.of(model, batch))
        dp.step()
model.save_pretrained(out)
tokenizer.save_pretrained(out)
weights = Path(out, "adapter_model.safetensors")
statement = extended(
    dp.statement(),
    files={weights.name: hashlib.sha256(weights.read_bytes()).hexdigest()},
    assumptions="one example is one line of the file",
)
Path(out, "statement.json").write_text(f"{statement.to_json()}\n", encoding="utf-8")
sys.stdout.write(f"{statement.describe()}\n")
