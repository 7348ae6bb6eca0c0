"""A language model learns a file of texts, a line each, with private adapters of low rank.

    python examples/lora.py MODEL_FOLDER TEXTS.txt ADAPTER_FOLDER

A line is what is protected. Everything but the plan is ordinary transformers and PEFT.
"""

import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling

import tacit

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
sys.stdout.write(f"{dp.statement().describe()}\n")
