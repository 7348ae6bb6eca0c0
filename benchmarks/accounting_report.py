"""Tables of a measurement, in Markdown that also reads well as plain text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting_engines import BASELINE, TACIT
from accounting_rows import ROWS, Row

Result = Mapping[str, Any]
Results = Mapping[str, Mapping[str, Result]]  # by row, then by engine

ROUNDING = 1e-9  # relative; an answer lower than the truth by more understates the privacy loss
TRUTH_ROUNDING = 1e-13  # relative; to so many digits the truths are written down
# How many times faster than the baseline tacit has to be, by row.
REQUIRED_RATIO = {"a": 15, "b": 10, "c": 15, "d": 15, "e": 15, "f": 15, "g": 15, "i": 100}
# How long tacit may take, by row: one ε, a hundred phases, a calibration.
REQUIRED_SECONDS = {"a": 1e-3, "g": 15e-3, "i": 5e-3}
ROW_A_BYTES = 150e6


@dataclass(frozen=True)
class Requirement:
    """What the project asks of tacit, and whether this measurement shows it."""

    what: str
    measured: str
    met: bool


def requirements(results: Results) -> list[Requirement]:
    """Those that can be judged from what was measured."""
    found = [item for name in results if (item := _ratio_requirement(name, results[name]))]
    for name, limit in REQUIRED_SECONDS.items():
        seconds = results.get(name, {}).get(TACIT, {}).get("seconds")
        if seconds is not None:
            what = f"row {name}: at most {_seconds(limit)}"
            found.append(Requirement(what, _seconds(seconds), seconds <= limit))
    row_a = results.get("a", {}).get(TACIT, {})
    if "peak_bytes" in row_a:
        peak = row_a["peak_bytes"]
        what = f"row a: peak memory at most {ROW_A_BYTES / 1e6:.0f} MB"
        found.append(Requirement(what, f"{peak / 1e6:.0f} MB", peak <= ROW_A_BYTES))
    if any(TACIT in by_engine for by_engine in results.values()):
        found.append(_truth_requirement(results))
    return found


def _truth_requirement(results: Results) -> Requirement:
    silent = [name for name in results if "value" not in results[name][TACIT]]
    answered = [name for name in results if name not in silent]
    below = [name for name in answered if is_below(ROWS[name], results[name][TACIT])]
    measured = f"{len(answered)} rows answered"
    measured += f", below on {', '.join(below)}" if below else ""
    measured += f", no answer on {', '.join(silent)}" if silent else ""
    return Requirement("an answer that is not below the truth", measured, not below and not silent)


def _ratio_requirement(name: str, by_engine: Mapping[str, Result]) -> Requirement | None:
    required = REQUIRED_RATIO.get(name)
    if required is None or "seconds" not in by_engine.get(BASELINE, {}) or TACIT not in by_engine:
        return None
    what = f"row {name}: at least {required}× faster than {BASELINE}"
    ratio = _ratio(by_engine[BASELINE], by_engine[TACIT])
    if ratio is None:
        return Requirement(what, "no answer", met=False)
    return Requirement(what, _times(ratio), ratio >= required)


def _ratio(slow: Result, fast: Result) -> float | None:
    if "seconds" not in slow or "seconds" not in fast:
        return None
    return float(slow["seconds"] / fast["seconds"])


def is_below(row: Row, result: Result) -> bool:
    """Whether an answer claims more privacy (for a calibration: needs less noise) than there is."""
    return float(result["value"]) < row.truth * (1 - ROUNDING)


def markdown(record: Mapping[str, Any]) -> str:
    """The whole report."""
    results: Results = record["results"]
    engines: Mapping[str, Any] = record["engines"]
    parts = [
        _provenance(record),
        "### Time of one answer, and how many times tacit's",
        _table(results, engines, _time_cell),
        "### Answer minus truth",
        _table(results, engines, _error_cell, with_truth=True),
        *_brackets(results, engines),
        "### Required of tacit",
        _requirements_table(results),
        "### Versions and settings",
        _engines_table(engines),
        *_remarks(results),
    ]
    return "\n\n".join(parts)


def _provenance(record: Mapping[str, Any]) -> str:
    host = record["machine"]
    moments = {tuple(when.items()) for when in record.get("kept", {}).values()}
    kept = "".join(
        f" Kept from {when['date']}, commit {when['commit']}, load average "
        f"{when['load_average']:.1f}: {', '.join(names)}."
        for when in map(dict, sorted(moments))
        if (names := [name for name, one in record["kept"].items() if one == when])
    )
    return (
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, {host['system']}, "
        f"Python {host['python']}; load average {record['load_average']:.1f} at the start; one "
        f"thread each, medians; a call is given up after {record['timeout']:g} s.{kept}"
    )


Cell = Callable[[Row, Result, Mapping[str, Result]], str]


def _table(
    results: Results, engines: Mapping[str, Any], cell: Cell, with_truth: bool = False
) -> str:
    head = ["row (δ)", *(["truth"] if with_truth else []), *engines]
    body = []
    for name, by_engine in results.items():
        row = ROWS[name]
        first = [f"{name}: {row.title} ({_exponent(row.delta)})"]
        if with_truth:
            first.append(f"{row.truth:.12g}")
        body.append([*first, *(cell(row, by_engine[engine], by_engine) for engine in engines)])
    return aligned([head, *body])


def _time_cell(_: Row, result: Result, by_engine: Mapping[str, Result]) -> str:
    if "seconds" not in result:
        return _no_answer(result)
    ratio = _ratio(result, by_engine.get(TACIT, {}))
    if ratio is None or result is by_engine.get(TACIT):
        return _seconds(result["seconds"])
    return f"{_seconds(result['seconds'])} ({_times(ratio)})"


def _error_cell(row: Row, result: Result, _: Mapping[str, Result]) -> str:
    if "value" not in result:
        return _no_answer(result)
    error = f"{result['value'] - row.truth:+.1e}"
    return f"{error} **BELOW TRUTH**" if is_below(row, result) else error


def _no_answer(result: Result) -> str:
    if "unsupported" in result:
        return "–"
    return f"> {result['timeout']:g} s" if "timeout" in result else "error"


def _brackets(results: Results, engines: Mapping[str, Any]) -> list[str]:
    """Only the engines that certify one."""
    certifying = {
        name: engine
        for name, engine in engines.items()
        if any(by_engine[name].get("bracket") for by_engine in results.values())
    }
    if not certifying:
        return []
    title = "### Width of the certified bracket"
    return [title, _table(results, certifying, _bracket_cell)]


def _bracket_cell(row: Row, result: Result, _: Mapping[str, Result]) -> str:
    if not result.get("bracket"):
        return _no_answer(result) if "value" not in result else "–"
    lower, upper = result["bracket"]
    slack = TRUTH_ROUNDING * row.truth
    holds = lower - slack <= row.truth <= upper + slack
    return f"{upper - lower:.1e}" if holds else f"{upper - lower:.1e} **TRUTH OUTSIDE**"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def _exponent(power_of_ten: float) -> str:
    return f"{power_of_ten:.0e}".replace("e-0", "e-")


def _seconds(value: float) -> str:
    for limit, unit, scale in ((1e-3, "µs", 1e6), (1.0, "ms", 1e3)):
        if value < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s"


def _requirements_table(results: Results) -> str:
    body = [
        [item.what, item.measured, "met" if item.met else "**NOT MET**"]
        for item in requirements(results)
    ]
    return aligned([["requirement", "measured", ""], *body]) if body else "Nothing to judge."


def _engines_table(engines: Mapping[str, Any]) -> str:
    body = [
        [name, ", ".join(f"{p} {v}" for p, v in engine["versions"].items()), engine["setting"]]
        for name, engine in engines.items()
    ]
    return aligned([["engine", "versions", "setting"], *body])


def _remarks(results: Results) -> list[str]:
    """What cells have no room for: notes, and the messages of peers that gave no answer."""
    rows_of: dict[tuple[str, str], list[str]] = {}
    for name, by_engine in results.items():
        for engine, result in by_engine.items():
            for kind in ("note", "error", "unsupported"):
                if result.get(kind):
                    rows_of.setdefault((engine, result[kind]), []).append(name)
    lines = [f"- {engine} ({', '.join(rows)}): {text}" for (engine, text), rows in rows_of.items()]
    return ["### Remarks", "\n".join(lines)] if lines else []


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table padded so that its columns also stand in line as plain text."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
