"""The same script under torchrun: started again after a rank has died, and on two machines."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit.statement import Statement

from .ranks import free_port
from .torchrun import Script, on_one_machine, on_two_machines

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 8
PLAN = f"""
plan = tacit.Plan(examples=48, lot_size=12, steps={STEPS}, noise_multiplier=1.0, clip=1.0)
"""
FIT = f"""{PLAN}
budget = ledger().open("data", epsilon=1e5, delta=1e-3) if rank == 0 else None


def after(record):
    noted("steps", f"{{rank}} {{record.steps}}")
    perhaps_dies(record.steps)


done = tacit.fit(
    model, optimizer, plan, data, budget, delta=1e-4, out=here / "run", progress=False,
    on_step=after, performance=tacit.Performance(lease=1),
)
if rank == 0:
    noted("ended", json.dumps([done.statement.epsilon, len(done.history)]))
"""
# As docs/cluster.md has it: a checkpoint is gone on from, if there is one.
LOOP = f"""{PLAN}
path = here / "checkpoint"
budget = None
if rank == 0:
    budget = ledger().open("data", epsilon=1e5, delta=1e-3)
    made = budget.ledger.books.of("data")
    if made and not path.exists():  # it died before its first checkpoint
        budget = budget.reservation(made[-1].number)
with tacit.private(
    model, optimizer, plan, data, budget, resume=path if path.exists() else None,
    performance=tacit.Performance(lease=1),
) as dp:
    for lot in dp.lots():
        for x, y in lot:
            dp.backward(F.cross_entropy(model(x), y, reduction="none"))
        dp.step()
        noted("steps", f"{{rank}} {{dp.steps_taken}}")
        perhaps_dies(dp.steps_taken)
        if dp.steps_taken % 3 == 0:
            dp.save(path)
if rank == 0:
    claim = dp.statement(1e-4)
    noted("ended", json.dumps([claim.epsilon, claim.steps_taken, dp.steps_lost, dp.world.size]))
"""


def granted(folder: Path) -> int:
    ledger = tacit.Ledger(f"sqlite:///{folder}/budget.db", anchor=folder / "anchor")
    try:
        return int(ledger.refresh().budgets["data"].granted)
    finally:
        ledger.close()


def full_epsilon() -> float:
    plan = tacit.Plan(examples=48, lot_size=12, steps=STEPS, noise_multiplier=1.0, clip=1.0)
    return plan.epsilon(1e-4)


def check_charges(script: Script, *, given_up: int = 0) -> None:
    """Whatever was drawn was charged before, and all of the plan is in the end.

    A run that fails before its first checkpoint is ``given_up``, and what it took stays charged.
    """
    assert not script.lines("uncharged")
    assert len(script.lines("released")) <= granted(script.folder) == STEPS + given_up


def kills(*where: tuple[int, int]) -> dict[str, str]:
    return {"KILLS": json.dumps(where)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "given_up"), [([(0, 2), (1, 6)], 0), ([(1, 3)], 3), ([(0, STEPS)], 0)], ids=str
)
def test_fit_goes_on_when_torchrun_starts_it_again(
    tmp_path: Path, where: list[tuple[int, int]], given_up: int
) -> None:
    """An unchanged script: torchrun's second attempt knows the run that its first has begun."""
    script = Script(folder=tmp_path, body=FIT, environment=kills(*where))
    script.runs(*on_one_machine(2, "--max-restarts", "3"))
    assert len(list(tmp_path.glob("killed-*"))) == len(where)
    check_charges(script, given_up=given_up)
    claim = Statement.from_json((tmp_path / "run" / "statement.json").read_text())
    assert claim.epsilon == pytest.approx(full_epsilon(), rel=1e-12)
    epsilon, _ = json.loads(script.lines("ended")[-1])
    assert epsilon == claim.epsilon
    lost = STEPS - claim.steps_taken
    assert 0 <= lost <= 4 * len(where)  # a checkpoint after each epoch, of four steps
    assert tacit.load(tmp_path / "run").statement.epsilon == claim.epsilon


IN_PIECES = """
from torch.distributed.fsdp import fully_shard
torch.distributed.init_process_group("gloo")
mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
for child in (model[0], model[2], model):
    fully_shard(child, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
"""


@pytest.mark.slow
def test_fit_in_pieces_goes_on_when_torchrun_starts_it_again(tmp_path: Path) -> None:
    """The script makes the group itself; torch must not find what an attempt before has left."""
    apart = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    script = Script(folder=tmp_path, body=IN_PIECES + FIT, environment=kills((1, 6)) | apart)
    script.runs("--standalone", "--nproc-per-node", "2", "--max-restarts", "3")
    assert (tmp_path / "killed-0").exists()
    check_charges(script)
    claim = Statement.from_json((tmp_path / "run" / "statement.json").read_text())
    assert claim.epsilon == pytest.approx(full_epsilon(), rel=1e-12)


@pytest.mark.slow
def test_only_what_this_torchrun_began_is_gone_on_with(tmp_path: Path) -> None:
    """Another launch names the same folder by mistake: it is refused, however often it tries."""
    dies = Script(folder=tmp_path, body=FIT, environment=kills((1, 5)))
    dies.runs(*on_one_machine(2), fails=True)
    before = granted(tmp_path)
    again = Script(folder=tmp_path, body=FIT)
    said = again.runs(*on_one_machine(2, "--max-restarts", "2"), fails=True)
    assert said.count("holds a run already") >= 3
    assert granted(tmp_path) == before < STEPS
    resumed = Script(folder=tmp_path, body=FIT.replace("out=", "resume=True, out="))
    resumed.runs(*on_one_machine(3))
    check_charges(resumed)


@pytest.mark.slow
@pytest.mark.parametrize("where", [(0, 1), (1, 5), (0, STEPS)], ids=str)
def test_a_loop_goes_on_when_torchrun_starts_it_again(
    tmp_path: Path, where: tuple[int, int]
) -> None:
    script = Script(folder=tmp_path, body=LOOP, environment=kills(where))
    script.runs(*on_one_machine(2, "--max-restarts", "3"))
    assert len(list(tmp_path.glob("killed-*"))) == 1
    check_charges(script)
    epsilon, taken, lost, size = json.loads(script.lines("ended")[-1])
    assert (taken + lost, size) == (STEPS, 2)
    assert epsilon == pytest.approx(full_epsilon(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "after"), [(LOOP, 1), (LOOP, 3), (FIT, 3)])
def test_another_launch_goes_on_with_another_number_of_ranks(
    tmp_path: Path, body: str, after: int
) -> None:
    Script(folder=tmp_path, body=body, environment=kills((1, 5))).runs(
        *on_one_machine(2), fails=True
    )
    script = Script(folder=tmp_path, body=body.replace("out=", "resume=True, out="))
    script.runs(*on_one_machine(after))
    check_charges(script)
    assert json.loads(script.lines("ended")[-1])[0] == pytest.approx(full_epsilon(), rel=1e-12)


ELASTIC = "join_timeout=60,last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"


def wait_for(port: int) -> None:
    """Until somebody listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at port {port}")


@pytest.mark.slow
def test_a_machine_that_is_gone_leaves_fewer_ranks(tmp_path: Path) -> None:
    """``--nnodes 1:2``: the agent that is left starts its ranks again, a world of another size."""
    body = LOOP.replace("perhaps_dies(dp.steps_taken)", """
        if dp.steps_taken == 5 and dp.world.size == 2 and rank == 1:
            os.kill(os.getppid(), signal.SIGKILL)  # the machine with its launcher
            os.kill(os.getpid(), signal.SIGKILL)
    """.strip())  # fmt: skip
    script = Script(folder=tmp_path, body=body)
    port = free_port()
    options = ("--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3",
               "--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-conf", ELASTIC,
               "--rdzv-endpoint", f"127.0.0.1:{port}")  # fmt: skip
    first = script.started(*options)
    wait_for(port)  # torchrun's store is this machine's: the other one, of rank 1, may die
    second = script.started(*options)
    try:
        codes = {first.wait(200), second.wait(200)}
        assert 0 in codes, (first.communicate()[0], second.communicate()[0])
        assert -9 in codes
    finally:
        for one in (first, second):
            if one.poll() is None:
                one.kill()
            one.communicate()
    check_charges(script)
    epsilon, taken, lost, size = json.loads(script.lines("ended")[-1])
    assert (taken + lost, size) == (STEPS, 1)
    assert epsilon == pytest.approx(full_epsilon(), rel=1e-12)


# ---- two machines


SEEDED = """
plan = tacit.Plan(
    examples=48, lot_size=12, steps=4, noise_multiplier=1.0, clip=1.0, noise=os.environ["NOISE"]
)
with tacit.private(model, optimizer, plan, data, unsafe_seed=3) as dp:
    for lot in dp.lots():
        for x, y in lot:
            dp.backward(F.cross_entropy(model(x), y, reduction="none"))
        dp.step()
held = [p.detach().full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
flat = torch.cat([one.detach().flatten() for one in held])
torch.save(flat, here / f"weights-{dp.world.size}-{rank}.pt")
"""


def seeded(folder: Path, noise: str, *, sharded: bool) -> Script:
    body = IN_PIECES + SEEDED if sharded else SEEDED
    return Script(folder=folder, body=body, environment={"NOISE": noise})


def weights(folder: Path, size: int) -> list[Any]:
    return [torch.load(folder / f"weights-{size}-{rank}.pt") for rank in range(size)]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["exact", "fast"])
@pytest.mark.parametrize("sharded", [False, True])
def test_two_machines_do_what_one_process_does(
    tmp_path: Path, noise: str, *, sharded: bool
) -> None:
    seeded(tmp_path, noise, sharded=False).runs(*on_one_machine(1))
    seeded(tmp_path, noise, sharded=sharded).run_together(on_two_machines(1))
    (alone,), ranks = weights(tmp_path, 1), weights(tmp_path, 2)
    for found in ranks:
        assert torch.equal(found, ranks[0])
        if noise == "exact":
            assert torch.equal(found, alone)
        assert float((found - alone).abs().max()) <= 1e-6


@pytest.mark.slow
def test_two_machines_of_two_ranks_start_again_together(tmp_path: Path) -> None:
    """Three of four ranks are on the other side of the kill, one of them on the same machine."""
    script = Script(folder=tmp_path, body=FIT, environment=kills((3, 6)))
    script.run_together(on_two_machines(2, "--max-restarts", "2"))
    assert (tmp_path / "killed-0").exists()
    check_charges(script)
    claim = Statement.from_json((tmp_path / "run" / "statement.json").read_text())
    assert claim.epsilon == pytest.approx(full_epsilon(), rel=1e-12)
