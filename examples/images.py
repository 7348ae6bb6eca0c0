"""Images: a small convolutional network learns handwritten digits, offline, in a few seconds.

    python examples/images.py

Group norm stands where one would put batch norm, which mixes the images of a batch and is refused.
Two shifted views of each image are averaged before the clip: they cost time, and no ε. The settings
were tried on these very digits, which are public.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import tacit
from tacit.data import load

VIEWS = 2


def tensors(part) -> TensorDataset:
    """Pixels from -1 to 1; 16 is the brightest there is."""
    return TensorDataset(torch.tensor(part.inputs) / 8.0 - 1, torch.tensor(part.labels).long())


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Each image moved by at most a pixel, by its own draw."""
    wide = F.pad(images, (1, 1, 1, 1), value=-1.0)
    at = torch.randint(3, (len(images), 2)).tolist()
    return torch.stack([one[:, y : y + 8, x : x + 8] for one, (y, x) in zip(wide, at, strict=True)])


digits = load("digits")
private, held_out = tensors(digits.train), tensors(digits.test)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.GroupNorm(4, 16),
    nn.Tanh(),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 4 * 4, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
plan = tacit.Plan.for_budget(
    epsilon=3,
    delta=1e-5,
    examples=len(private),
    lot_size=360,
    steps=60,
    clip=0.5,
    views=VIEWS,
)
with tacit.private(model, optimizer, plan, private) as dp:
    for lot in dp.lots():
        for images, labels in lot:  # VIEWS consecutive rows for each image that was drawn
            dp.backward(F.cross_entropy(model(shifted(images)), labels, reduction="none"))
        dp.step()
with torch.no_grad():
    images, labels = held_out.tensors
    right = (model(images).argmax(1) == labels).float().mean()
print(f"{right:.1%} of the held-out digits are right, ε = {dp.statement().epsilon:.2f}")
