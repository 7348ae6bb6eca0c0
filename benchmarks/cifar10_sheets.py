"""CIFAR-10 as lossless WebP sheets of 17 MB each, for machines to which little can be carried.

    python benchmarks/cifar10_sheets.py pack CIFAR10 SHEETS         # the binary layout into sheets
    python benchmarks/cifar10_sheets.py unpack SHEETS CIFAR10       # those that are there, back

A sheet holds one batch of 10,000 images; its labels lie beside it. ``tacit.data`` compares what
comes out with the published checksums. Needs NumPy and Pillow.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES, SIDE, ROW = 10_000, 32, 100  # images of a batch, pixels of a side, images in a row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    arguments.target.mkdir(parents=True, exist_ok=True)
    work, kind = (pack, "*.bin") if arguments.do == "pack" else (unpack, "*.webp")
    for path in sorted(arguments.source.glob(kind)):
        work(path, arguments.target)
        print(path.stem, flush=True)


def pack(path: Path, folder: Path) -> None:
    rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(IMAGES, 1 + 3 * SIDE**2)
    pixels = rows[:, 1:].reshape(IMAGES // ROW, ROW, 3, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
    sheet = Image.fromarray(np.ascontiguousarray(pixels.reshape(-1, ROW * SIDE, 3)))
    sheet.save(folder / f"{path.stem}.webp", lossless=True, method=4, quality=60)
    np.save(folder / f"{path.stem}.npy", rows[:, 0])


def unpack(path: Path, folder: Path) -> None:
    sheet = np.asarray(Image.open(path))
    pixels = sheet.reshape(IMAGES // ROW, SIDE, ROW, SIDE, 3).transpose(0, 2, 4, 1, 3)
    labels = np.load(path.with_suffix(".npy"))
    rows = np.concatenate([labels[:, None], pixels.reshape(IMAGES, -1)], axis=1)
    (folder / f"{path.stem}.bin").write_bytes(np.ascontiguousarray(rows).tobytes())


if __name__ == "__main__":
    main()
