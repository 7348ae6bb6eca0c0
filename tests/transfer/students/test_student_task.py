"""The steps that all methods share."""

import torch

from tacit.transfer.students.student import BATCH, StudentTask


def task(count: int, epochs: int = 1) -> StudentTask:
    return StudentTask(
        images=torch.zeros(count, 1, 8, 8, dtype=torch.uint8), labels=torch.zeros(count).long(),
        weights=torch.ones(count), classes=2, epochs=epochs, flip=False, network=None,
        progress=None,
    )  # fmt: skip


def test_an_epoch_shows_each_image_at_most_once() -> None:
    seen = [rows for _, rows in task(3 * BATCH + 5).batches()]
    assert [len(rows) for rows in seen] == [BATCH] * 3
    assert len(set(torch.cat(seen).tolist())) == 3 * BATCH


def test_few_images_make_one_batch() -> None:
    found = list(task(10, epochs=4).batches())
    assert [done for done, _ in found] == [0.0, 0.25, 0.5, 0.75]
    assert all(sorted(rows.tolist()) == list(range(10)) for _, rows in found)


def test_rows_are_drawn_by_their_weight() -> None:
    torch.manual_seed(0)
    drawn = task(3).draw(torch.tensor([0.0, 1.0, 3.0]), 10_000)
    shares = torch.bincount(drawn, minlength=3) / 10_000
    assert shares[0] == 0
    assert abs(float(shares[2]) - 0.75) < 0.03  # seven standard deviations
