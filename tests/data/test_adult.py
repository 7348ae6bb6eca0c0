"""Adult: an encoding that a line alone decides, with a bound that holds for any line."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest

from tacit.data import load
from tacit.data.adult import FEATURES, LONGEST_ROW, read
from tacit.data.contents import Contents
from tacit.errors import DataError

from .writing import ADULT_LINE

OTHER = "90, ?, 1, Masters, 14, Widowed, ?, Unmarried, Black, Female, 99999, 4356, 99, ?, >50K."


def encoded(*lines: str) -> np.ndarray:
    data = "\n".join(lines).encode()
    train, _ = read(iter([Contents("adult.data", data, True)] * 2))
    assert isinstance(train.inputs, np.ndarray)
    return train.inputs


def feature(row: np.ndarray, name: str) -> float:
    return float(row[FEATURES.index(name)])


def write(folder, *, packed: bool) -> None:
    folder.mkdir()
    train = f"{ADULT_LINE}\n{OTHER}\n\n".encode()
    test = f"|1x3 Cross validator\n{OTHER}\n\n".encode()
    for name, data in (("adult.data", train), ("adult.test", test)):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("packed", [True, False])
def test_people_come_from_plain_and_packed_files(packed, tmp_path):
    write(tmp_path / "adult", packed=packed)
    split = load("adult", tmp_path, unverified=True)
    assert split.train.inputs.shape == (2, 104)
    assert split.train.inputs.dtype == np.float64
    assert split.train.labels.tolist() == [0, 1]
    assert split.test.labels.tolist() == [1]
    assert split.classes == ("<=50K", ">50K")


def test_a_person_is_encoded_by_hand():
    row = encoded(ADULT_LINE)[0]
    ones = {
        *("workclass=State-gov", "education=Bachelors", "marital-status=Never-married"),
        *("occupation=Adm-clerical", "relationship=Not-in-family", "race=White", "sex=Male"),
        "native-country=United-States",
    }
    numbers = {
        "age": 22 / 73,
        "education-num": 12 / 15,
        "hours-per-week": 39 / 98,
        "capital-gain": math.log(2175) / math.log(100_001),
        "capital-loss": 0.0,
    }
    for name in FEATURES:
        assert feature(row, name) == pytest.approx(numbers.get(name, float(name in ones))), name
    assert ones | {*numbers} <= {*FEATURES}
    assert not any(name.startswith("fnlwgt") for name in FEATURES)


def test_what_is_unknown_has_no_one():
    row = encoded(OTHER)[0]
    for column in ("workclass", "occupation", "native-country"):
        cells = [row[place] for place, name in enumerate(FEATURES) if name.startswith(column)]
        assert len(cells) > 1
        assert sum(cells) == 0.0


def test_a_row_depends_on_no_other_row():
    alone = encoded(ADULT_LINE)
    among = encoded(OTHER, ADULT_LINE, OTHER.replace("99999", "5"))
    np.testing.assert_array_equal(among[1], alone[0])


def test_no_row_is_longer_than_promised_whatever_its_numbers():
    wild = ADULT_LINE.replace("39,", "1e9,").replace(" 13,", " 1e300,").replace("2174", "1e308")
    wild = wild.replace(" 0, 40,", " 1e308, 0,")
    rows = encoded(ADULT_LINE, OTHER, wild)
    assert rows.min() >= 0.0
    assert rows.max() <= 1.0
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.max() <= LONGEST_ROW
    assert lengths[2] == pytest.approx(math.sqrt(12))  # all but the hours are at their ends
    assert math.sqrt(13) == LONGEST_ROW


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "holds nobody"),
        ("1, 2, 3", "person 1 has 3 columns, not 15"),
        (ADULT_LINE.replace("State-gov", "Astronaut"), "workclass holds 'Astronaut'"),
        (ADULT_LINE.replace("39,", "old,"), "age holds what is no number"),
        (ADULT_LINE.replace("39,", "nan,"), "age holds a number below 0"),
        (ADULT_LINE.replace("2174", "-1"), "capital-gain holds a number below 0"),
        (ADULT_LINE.replace("<=50K", "rich"), "labels other than <=50K and >50K"),
    ],
)
def test_a_damaged_line_is_refused(line, message):
    with pytest.raises(DataError, match=message):
        encoded(line)
