"""``tacit plan``: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tacit import __version__
from tacit.cli import main
from tacit.cli.plan import page
from tacit.reports.plan_summary import AccountedRun, summarise

from ..forked import Forked

DEMO = shlex.split("plan --examples 60000 --lot 600 --epochs 100 --sigma 4 --delta 1e-5")
QUICK = shlex.split("plan --rate 0.05 --steps 1000 --sigma 4 --delta 1e-5")
ACCOUNTANTS = ["exact", "rdp", "moments", "zcdp", "gdp", "gdp-clt", "advanced", "basic"]


def without(option: str, arguments: list[str] = DEMO) -> list[str]:
    place = arguments.index(option)
    return arguments[:place] + arguments[place + 2 :]


def instead(option: str, value: str) -> list[str]:
    return [*without(option), option, value]


def at_rate(rate: str) -> list[str]:
    return ["plan", "--rate", rate, *QUICK[3:]]


def shell(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from tacit.cli import main; sys.exit(main())"]
    return subprocess.run(  # noqa: PLW1510 (the status is what is tested)
        [*command, *arguments], capture_output=True, text=True, timeout=600, **options
    )


@pytest.fixture(scope="module")
def demo() -> dict[str, object]:
    """The demo's JSON, from a process of its own."""
    process = Forked(lambda: main([*DEMO, "--json"]), env={})
    printed, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (0, "")
    return json.loads(printed)


def test_json_holds_the_certified_interval(demo):
    assert demo["epsilon"] == pytest.approx(0.9468668008, abs=1e-8)
    assert 0.94686680 < demo["interval"]["lower"] <= demo["interval"]["upper"] < 0.94686681
    assert demo["interval"]["two_sided"] is True
    assert demo["setting"]["steps"] == 10_000


def test_json_holds_every_accountant_and_says_which_is_no_bound(demo):
    rows = {row["accountant"]: row for row in demo["accountants"]}
    assert sorted(rows) == sorted(ACCOUNTANTS)
    answered = {name: row for name, row in rows.items() if row["epsilon"] is not None}
    assert [name for name, row in answered.items() if not row["is_bound"]] == ["gdp-clt"]
    assert rows["moments"]["epsilon"] == pytest.approx(1.2585747413, abs=1e-6)
    assert all(row["epsilon"] is not None or row["note"] for row in rows.values())


def test_json_holds_the_attackers_odds_and_the_curve(demo):
    attacker = demo["attacker"]
    assert 0.0 < attacker["advantage"] < 0.5 < attacker["right_from_even"] < 1.0
    for point in attacker["true_positive_limits"]:
        ceiling = 2.718281828 ** demo["epsilon"] * point["false_positive_rate"] + 1e-5
        assert point["false_positive_rate"] < point["true_positive_rate"] < ceiling
    epsilons = [point["epsilon"] for point in demo["curve"]]
    assert epsilons == sorted(epsilons)


def test_the_event_in_the_json_is_the_run(demo):
    from tacit.accounting import Gaussian, PoissonSampled, Repeated, from_json  # noqa: PLC0415

    run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    assert from_json(json.dumps(demo["event"])) == run


def test_page_shows_every_accountant_in_plain_text(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(DEMO) == 0
    page = capsys.readouterr().out
    assert "\x1b" not in page
    assert "0.946867" in page
    assert all(f"\n {name} " in page for name in ACCOUNTANTS)
    assert "approximation, not a bound" in page
    assert "flagging 1% of the outsiders by mistake, they find at most" in page
    assert max(map(len, page.splitlines())) <= 100


def test_page_warns_of_a_delta_that_allows_to_publish_a_record(capsys):
    assert main(instead("--delta", "1e-4")) == 0
    assert "Careful: δ = 1e-4 is not below 1/60,000." in capsys.readouterr().out


def test_page_gives_the_reason_of_an_accountant_that_refuses(capsys):
    main(DEMO)
    page = capsys.readouterr().out
    refusing = [line.split()[0] for line in page.splitlines() if " – " in f"{line} "]
    assert refusing, "some accountant has no theorem for Poisson sampling"
    assert all(f"– {name}: " in page for name in refusing if name != "–")


def test_target_epsilon_solves_for_the_noise_of_every_theorem(capsys):
    assert main([*without("--sigma"), "--epsilon", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["setting"]["sigma"] == pytest.approx(2.12737543, abs=1e-6)
    assert told["epsilon"] <= 2.0
    sigmas = {demand["accountant"]: demand["sigma"] for demand in told["demands"]}
    assert sigmas["exact"] < sigmas["rdp"] < sigmas["moments"] < sigmas["advanced"]


def test_page_shows_the_noise_that_each_theorem_demands(capsys):
    assert main([*without("--sigma", QUICK), "--epsilon", "2"]) == 0
    shown = capsys.readouterr().out
    assert "σ for ε = 2" in shown
    assert "is the least noise for ε = 2" in shown


def test_noise_that_is_known_to_be_enough_alone_is_not_called_the_least():
    summary = summarise(AccountedRun(sigma=4.0, rate=0.05, steps=1000, delta=1e-5), None)
    for share, words in ((1.0, "is the least noise for"), (1.2, "is noise enough for")):
        shown = page(replace(summary, target=share * summary.interval.upper))
        assert words in "\n".join(map(str, shown))


def test_rate_and_steps_say_the_same_as_examples_and_epochs(capsys):
    assert main(shlex.split("plan --rate 0.01 --steps 1e4 --sigma 4 --delta 1e-5 --json")) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(0.9468668, abs=1e-7)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_adjacency_reaches_the_accountant(capsys, adjacency):
    assert main([*QUICK, "--json"]) == 0
    default = json.loads(capsys.readouterr().out)["epsilon"]
    assert main([*QUICK, "--adjacency", adjacency, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["epsilon"]
    assert told > default if adjacency == "replace-one" else told == pytest.approx(default)


REFUSED = {
    "rate above 1": (at_rate("1.5"), "--rate", "1.5"),
    "rate below 0": (at_rate("-0.1"), "--rate", "-0.1"),
    "rate is no number": (at_rate("x"), "--rate", "x"),
    "epochs at rate 0": (
        [*without("--steps", at_rate("0")), "--epochs", "9"],
        "--epochs",
        "9",
    ),
    "sigma zero": (instead("--sigma", "0"), "--sigma", "0"),
    "sigma negative": (instead("--sigma", "-1"), "--sigma", "-1"),
    "sigma nan": (instead("--sigma", "nan"), "--sigma", "nan"),
    "sigma infinite": (instead("--sigma", "inf"), "--sigma", "inf"),
    "sigma beyond computing": (instead("--sigma", "1e-300"), "--sigma", "1e-300"),
    "sigma far beyond": (instead("--sigma", "1e300"), "--sigma", "1e300"),
    "delta zero": (instead("--delta", "0"), "--delta", "0"),
    "delta one": (instead("--delta", "1"), "--delta", "1"),
    "delta nan": (instead("--delta", "nan"), "--delta", "nan"),
    "delta missing": (without("--delta"), "--delta", "missing"),
    "steps in part": ([*without("--epochs"), "--steps", "9.5"], "--steps", "9.5"),
    "steps zero": ([*without("--epochs"), "--steps", "0"], "--steps", "0"),
    "steps beyond all": ([*without("--epochs"), "--steps", "1e300"], "--steps", "1e300"),
    "epochs beyond all": (instead("--epochs", "1e308"), "--epochs", "1e308"),
    "epochs negative": (instead("--epochs", "-3"), "--epochs", "-3"),
    "sigma and epsilon": ([*DEMO, "--epsilon", "2"], "--sigma 4", "--epsilon 2"),
    "neither of them": (without("--sigma"), "--sigma", "--epsilon"),
    "steps and epochs": ([*DEMO, "--steps", "7"], "--epochs 100", "--steps 7"),
    "rate and lot": ([*DEMO, "--rate", "0.5"], "--lot 600", "--rate 0.5"),
    "lot without examples": (without("--examples"), "--lot", "600"),
    "lot above examples": (instead("--lot", "60001"), "--lot", "60001"),
    "lot in part": (instead("--lot", "600.5"), "--lot", "600.5"),
    "examples zero": (instead("--examples", "0"), "--examples", "0"),
    "epsilon negative": ([*without("--sigma"), "--epsilon", "-2"], "--epsilon", "-2"),
    "unknown adjacency": ([*DEMO, "--adjacency", "near"], "--adjacency", "near"),
    "unknown suffix": ([*DEMO, "--plot", "plan.gif"], "--plot", "plan.gif"),
    "plot is a folder": ([*DEMO, "--plot", "/tmp/no.png/"], "--plot", "no.png"),
    "unknown option": ([*DEMO, "--sigmas", "4"], "--sigmas", "--help"),
    "unknown command": (["plam"], "plam", "--help"),
    "value missing": ([*DEMO, "--plot"], "--plot", "--help"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line_that_names_it(capsys, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no.png").mkdir()
    arguments, option, value = REFUSED[case]
    arguments = [
        argument.replace("/tmp/no.png", str(tmp_path / "no.png")) for argument in arguments
    ]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("tacit: ")
    assert option in told.err
    assert value in told.err


def test_refusal_in_a_real_process():
    done = shell(instead("--sigma", "nan"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Traceback" not in done.stderr


def test_picture_below_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main([*QUICK, "--plot", str(tmp_path / "file" / "plan.png")]) == 2
    assert "--plot" in capsys.readouterr().err


def test_missing_matplotlib_names_the_extra(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.cli.options.find_spec", lambda _: None)
    assert main([*QUICK, "--plot", str(tmp_path / "plan.png")]) == 2
    assert "tacit[plots]" in capsys.readouterr().err


def test_plot_makes_its_folder_and_says_where_it_is(capsys, tmp_path):
    picture = tmp_path / "runs" / "plan.svg"
    assert main([*QUICK, "--plot", str(picture)]) == 0
    assert picture.read_text().startswith("<?xml")
    assert capsys.readouterr().out.rstrip().endswith(f"The picture is at {picture}")


def test_plot_and_json_leave_only_json_on_stdout(capsys, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("tacit.reports.plan_figure.write", lambda _, path: drawn.append(path))
    picture = tmp_path / "plan.png"
    assert main([*QUICK, "--plot", str(picture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plot"] == str(picture)
    assert drawn == [picture]


def test_a_full_disk_is_told_in_one_line(capsys, tmp_path, monkeypatch):
    def full(_summary: object, _path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit.reports.plan_figure.write", full)
    assert main([*QUICK, "--plot", str(tmp_path / "plan.png")]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "No space left on device" in told.err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["plan", "--help"], []])
def test_help_and_version(capsys, arguments):
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert __version__ in told if arguments == ["--version"] else "Usage: tacit" in told
    assert "tacit plan --examples" in told or arguments != ["plan", "--help"]


def test_an_encoding_without_greek_is_spelled_out():
    done = shell(QUICK, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "epsilon <= " in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes of POSIX")
def test_ctrl_c_ends_in_one_line():
    # A shell's background jobs, and so perhaps this test, start with Ctrl-C ignored.
    code = (
        "import signal, sys, time; import tacit.cli.plan as p; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "p._summary = lambda _: (print('ready', flush=True), time.sleep(600)); "
        "from tacit.cli import main; sys.exit(main())"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code, *QUICK], stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (130, "tacit: stopped\n")


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes of POSIX")
def test_closed_pipe_is_quiet():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "import sys; from tacit.cli import main; sys.exit(main())"]
    done = subprocess.run(  # noqa: PLW1510
        [*command, *QUICK], stdout=write, stderr=subprocess.PIPE, text=True, timeout=600
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_installed_command_is_this_one():
    command = Path(sys.executable).with_name("tacit")
    if not command.exists():
        pytest.skip("the package is not installed with its command")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tacit {__version__}\n"
