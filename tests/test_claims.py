"""Claims on pages: each names its record, and its numbers are those of the record."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
RECORD = re.compile(r"\[(?:[Tt]he )?record\]\(([^)#]*benchmarks/results/[^)#]+\.md)\)")
ASIDE = re.compile(r"^```.*?^```$|^<!-- .*?: begin -->.*?: end -->$", re.DOTALL | re.MULTILINE)
WORDS = re.compile(r"`[^`]*`|\]\([^)]*\)")  # code and addresses
BEGINNINGS = ("\n\n", "\n- ", "\n| ", "\n  - ")
NUMBER = re.compile(
    r"(?P<bound>at most )?(?<![\w.,])(?P<digits>\d+(?:,\d{3})*(?:\.\d+)?)"
    r"(?:·10(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
)
RECORDED = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?")
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="records are in the repository only")


def claims(page: str) -> list[tuple[str, str]]:
    """What stands before each link to a record, in the same paragraph, and the link."""
    text, found, last = ASIDE.sub("", page), [], 0
    for link in RECORD.finditer(text):
        start = max(last, *(text.rfind(one, 0, link.start()) for one in BEGINNINGS))
        claim = " ".join(WORDS.sub("", text[start : link.start()]).split())
        found.append((claim, link[1]))
        last = link.end()
    return found


def unsupported(claim: str, record: str) -> list[str]:
    """The numbers of a claim that round none of the record's: as they are, or as percentages."""
    known = [float(one) for one in RECORDED.findall(record.replace(",", ""))]
    known += [100.0 * one for one in known if one <= 1.0]
    return [
        number[0].removeprefix("at most ")
        for number in NUMBER.finditer(claim)
        if not any(_rounds(number, value) for value in known)
    ]


def _rounds(number: re.Match[str], value: float) -> bool:
    """Whether a number may stand for a value: rounded to the nearest, or up if it is a bound."""
    digits = number["digits"].replace(",", "")
    power = int((number["power"] or "0").translate(RAISED))
    last = 10.0 ** (power - len(digits.partition(".")[2]))
    distance = (float(digits) * 10.0**power - value) / last
    return distance + 1e-9 >= -0.5 and distance - 1e-9 <= (1.0 if number["bound"] else 0.5)


def test_numbers_beside_a_record_are_the_records() -> None:
    seen, wrong = 0, []
    for page in PAGES:
        for claim, link in claims(page.read_text(encoding="utf-8")):
            record = (page.parent / link).resolve()
            texts = [one for one in (record, record.with_suffix(".json")) if one.exists()]
            known = "\n".join(one.read_text(encoding="utf-8") for one in texts)
            seen += len(NUMBER.findall(claim))
            wrong += [f"{page.name}: {one} is not in {link}" for one in unsupported(claim, known)]
    assert wrong == []
    assert seen > 40


def test_a_number_that_a_record_has_not_is_found() -> None:
    record = "| share | 13.25% | 0.1916 | 2.03e-09 |"
    assert unsupported("13 %, 13.3 %, 19.16 %, at most 2.1·10⁻⁹ and 2.03·10⁻⁹", record) == []
    assert unsupported("14.3, 12, 19.3 %, 2.1·10⁻⁹, at most 2.0·10⁻⁹, 2.0·10⁻⁸", record) == [
        "14.3", "12", "19.3", "2.1·10⁻⁹", "2.0·10⁻⁸",
    ]  # fmt: skip


def test_each_reason_to_trust_has_its_record() -> None:
    reasons = README.read_text(encoding="utf-8").partition("## Why you can trust it\n")[2]
    items = reasons.partition("\n## ")[0].split("\n- ")[1:]
    assert len(items) == 5
    assert [one for one in items if not (RECORD.search(one) or "](docs/pitfalls.md)" in one)] == []


def plain(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def headline(name: str, pattern: str) -> list[str]:
    found = re.search(pattern, (RESULTS / f"{name}.md").read_text(encoding="utf-8"))
    assert found, f"{name}.md: {pattern}"
    return list(found.groups())


def test_the_readme_says_what_the_records_say() -> None:
    """By hand, for what a newcomer reads first: here the place of each number is known."""
    text = " ".join(README.read_text(encoding="utf-8").split())
    rows = plain("accounting")["rows"]
    excess = [
        plain("accounting")["results"][name]["tacit"]["value"] - row["truth"]
        for name, row in rows.items()
    ]
    assert min(excess) >= 0.0
    assert f"On all {len(rows)} recorded rows" in text
    power = math.floor(math.log10(max(excess)))
    digits = math.ceil(max(excess) * 10.0 ** (1 - power)) / 10
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    assert f"by at most {digits:g}·10{raised}" in text
    assert f"{len(plain('opacus_table')['results'])} small models" in text
    caught, broken = headline("mutants", r"(\d+) of (\d+) injected bugs caught")
    assert f"finds {caught} of {broken} engines that were broken on purpose" in text
    caught, broken = headline("generated_mutants", r"relevant ones (\d+) of (\d+)")
    assert f"of generated bugs that matter it finds {caught} of {broken}" in text
    table = [
        line.split("|") for line in (RESULTS / "mnist_memorised.md").read_text().splitlines()
        if re.match(r"\| \d", line)
    ]  # fmt: skip
    found = [[one.strip().partition("%")[0] for one in line] for line in table]
    exposed = " and ".join(f"{float(line[4]):.0f}" for line in found)
    private = " and ".join(line[6] for line in found)
    assert f"LiRA finds {exposed} % of the members of two models" in text
    assert f"and {private} % of their private twins', where ε = 2 allows {found[0][7]} %" in text
