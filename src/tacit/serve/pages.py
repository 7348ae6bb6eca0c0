"""Pages about budgets, requests and runs: what each shows, and what its forms write."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, final

from starlette.concurrency import run_in_threadpool
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from tacit._numbers import at_most, compact
from tacit.errors import InvalidArgument, TacitError
from tacit.serve import planner
from tacit.serve.app import as_event, pause
from tacit.serve.planner import PlanForm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from tacit.ledger import BudgetState, Person, RequestState
    from tacit.reports.run_summary import RunSummary
    from tacit.serve.access import Session
    from tacit.serve.app import Console, Form
    from tacit.serve.budgets import LedgerView
    from tacit.serve.runs import RunShelf
    from tacit.training.plan import Plan

_BEAT: Final = 1.0  # seconds between two looks at a live run, or more where many watch:
_EVENTS: Final = 16.0  # a second that all who watch are sent together, so that training goes on
_QUIET: Final = 15.0  # seconds after which an event is sent again, so that nobody hangs up
_MOST_WATCHERS: Final = 500  # of them 100 by one person
_MOST_DRAWN: Final = 100  # reports whose drawings are kept
_PATIENCE: Final = 0.1  # seconds of reading after which a list comes with what was read


@final
@dataclass(frozen=True, slots=True)
class _Look:
    """A live run as it was at some time, as the events that engineers and others are sent."""

    at: float
    event: bytes
    public: bytes
    goes_on: bool


def _look(found: dict[str, Any]) -> _Look:
    public = as_event({**found, "minutes_left": None})
    return _Look(time.monotonic(), as_event(found), public, found["state"] in ("live", "unknown"))


@final
@dataclass(slots=True)
class Pages:
    """The pages of one console."""

    console: Console
    _seen: dict[str, _Look] = field(default_factory=dict)
    _coming: dict[tuple[str, bool], asyncio.Task[_Look]] = field(default_factory=dict)
    _drawn: dict[str, tuple[object, dict[str, str]]] = field(default_factory=dict)
    _watchers: Counter[Person] = field(default_factory=Counter)

    def routes(self) -> list[Route]:
        """Where they are, and which role each needs."""
        get, post = self.console.get, self.console.post
        runs = "/runs/{name:path}"
        return [
            Route("/budgets", get("viewer", self.budgets)),
            Route("/budgets/{name:path}", get("viewer", self.budget)),
            Route("/requests", post("engineer", self.file), methods=["POST"]),
            Route("/requests/{number:int}", get("viewer", self.request)),
            Route("/requests/{number:int}/withdraw", post("engineer", self.withdraw),
                  methods=["POST"]),
            Route("/requests/{number:int}/{verdict}", post("officer", self.decide),
                  methods=["POST"]),
            Route("/runs", get("viewer", self.runs)),
            Route("/compare", get("viewer", self.compare)),
            Route(f"{runs}/events", self.events),
            Route(f"{runs}/report", get("viewer", self.report)),
            Route(f"{runs}/statement.json", get("viewer", self.statement)),
            Route(f"{runs}/model-card.md", get("viewer", self.model_card)),
            Route(f"{runs}/registry.yaml", get("viewer", self.registry)),
            Route(runs, get("viewer", self.run)),
        ]  # fmt: skip

    # ---- budgets and requests

    def budgets(self, request: Request, session: Session) -> Response:
        """All budgets, and what is asked of them."""
        from tacit.serve import budgets  # noqa: PLC0415 - SQLAlchemy comes with it

        view = self.console.ledger
        if view is None:
            return self.console.page("empty_ledger.html", session, here="budgets")
        books = view.books()
        found = [(one, budgets.figures(one, books.of(one.name))) for one in books.budgets.values()]
        requests = budgets.in_turn(books)
        pages = max(1, -(-len(requests) // budgets.ROWS))
        at = _page(request, pages)
        return self.console.page(
            "budgets.html", session, here="budgets", budgets=found, page=at, pages=pages,
            requests=requests[(at - 1) * budgets.ROWS : at * budgets.ROWS], count=len(requests),
            age=budgets.age, ledger=view.ledger, address=shlex.quote(self.console.address),
        )  # fmt: skip

    def budget(self, request: Request, session: Session) -> Response:
        """One budget: how it was used up, by what, and what would be left."""
        from tacit.serve import budgets  # noqa: PLC0415

        view = self._ledger()
        books, name = view.books(), request.path_params["name"]
        state = books.budgets.get(name)
        if state is None:
            return self.console.say(404, "There is no such budget.", session)
        account = view.account(name)
        chosen = [int(one) for one in request.query_params.getlist("grant") if one.isdecimal()]
        releases = account.reservations[::-1]
        pages = max(1, -(-len(releases) // budgets.ROWS))
        at = _page(request, pages)
        rows = releases[(at - 1) * budgets.ROWS : at * budgets.ROWS]
        return self.console.page(
            "budget.html", session, here="budgets", state=state, page=at, pages=pages,
            figures=budgets.figures(state, books.of(name)), rows=rows, count=len(releases),
            hashes=books.hashes, requests=books.requests, pending=budgets.pending(books, name),
            unfinished=[one for one in releases if one.state.left and one.standing != "void"][:20],
            chosen=chosen, room=budgets.what_if(books, state, chosen), age=budgets.age,
            burn=budgets.burn_down(account), at_most=at_most, head=view.ledger.head,
            close=lambda one: self._close(name, one.state.number), event=budgets.event,
            address=shlex.quote(self.console.address), name_quoted=shlex.quote(name),
        )  # fmt: skip

    def _close(self, name: str, number: int) -> str:
        place = shlex.quote(self.console.address)
        return f"tacit ledger close {shlex.quote(name)} {number} --ledger {place}"

    def file(self, request: Request, session: Session, form: Form) -> Response:
        """Files a request for the plan of the form: one entry of the ledger."""
        from tacit.ledger import Release, ask  # noqa: PLC0415

        del request
        chosen = PlanForm.read(form)
        view = self._ledger()
        with self.console.computing():
            plan = planner.plan_of(chosen)
        if chosen.budget not in view.books().budgets:
            raise InvalidArgument("choose the budget that the run is to be charged to")
        recipe = chosen.recipe if chosen.recipe in planner.recipes() else ""
        asked = {**chosen.asked(plan), "recipe": recipe}
        made = ask(
            view.ledger, chosen.budget, Release(plan.event, plan.adjacency, plan.unit),
            steps=plan.steps, by=session.person, reason=form.get("reason", ""),
            label=form.get("label", "").strip()[:200],
            detail={"plan": plan.as_dict(), "last_step": plan.steps}, asked=asked,
        )  # fmt: skip
        return RedirectResponse(f"/requests/{made.number}", 303)

    def request(self, request: Request, session: Session) -> Response:
        """One request: who asks for what, who decided, and how to run it."""
        from tacit.ledger.requests import MOST_DAYS, day_of  # noqa: PLC0415
        from tacit.serve import budgets  # noqa: PLC0415

        view, number = self._ledger(), request.path_params["number"]
        books = view.books()
        found = books.requests.get(number)
        if found is None:
            return self.console.say(404, "There is no such request.", session)
        state = books.budgets[found.budget]
        reservation = books.reservations.get(found.reservation or 0)
        return self.console.page(
            "request.html", session, here="budgets", asked=found, state=state, age=budgets.age,
            plan=_plan_rows(found, state), problem=_mismatch(found, state),
            room=budgets.what_if(books, state, [number]), reservation=reservation,
            command=self._command(found), hash=books.hashes[number - 1],
            own=found.by.key == session.person.key, days=self.console.approval_days,
            late=found.overdue(day_of(books)), most=MOST_DAYS,
        )  # fmt: skip

    def _command(self, found: RequestState) -> str:
        """The line that carries an approved request out; no text of the request is in it."""
        recipe = (found.asked or {}).get("recipe")
        name = recipe if recipe in planner.recipes() else "RECIPE"
        place = shlex.quote(self.console.address)
        return f"tacit train {name} --ledger {place} --request {found.number}"

    def decide(self, request: Request, session: Session, form: Form) -> Response:
        """Approves, refuses or revokes: entries of the ledger."""
        from tacit.ledger import approve, refuse, revoke  # noqa: PLC0415

        number, verdict = request.path_params["number"], request.path_params["verdict"]
        ledger, by, reason = self._ledger().ledger, session.person, form.get("reason", "")
        if verdict == "approve":
            days = form.get("days", str(self.console.approval_days))
            if not (days.isascii() and days.isdigit() and len(days) < 9):
                raise InvalidArgument(f"days must be a whole number, got {days!a:.40}")
            approve(ledger, number, by=by, reason=reason, days=int(days))
        elif verdict in ("refuse", "revoke"):
            act = refuse if verdict == "refuse" else revoke
            act(ledger, number, by=by, reason=reason)
        else:
            return self.console.say(404, "There is no such form.", session)
        return RedirectResponse(f"/requests/{number}", 303)

    def withdraw(self, request: Request, session: Session, form: Form) -> Response:
        """Takes one's own request back: an entry of the ledger."""
        from tacit.ledger import withdraw  # noqa: PLC0415

        number = request.path_params["number"]
        withdraw(self._ledger().ledger, number, by=session.person, reason=form.get("reason", ""))
        return RedirectResponse(f"/requests/{number}", 303)

    def _ledger(self) -> LedgerView:
        if self.console.ledger is None:
            raise InvalidArgument("no ledger was named; start the server with --ledger")
        self.console.ledger.read()
        return self.console.ledger

    # ---- runs

    def runs(self, request: Request, session: Session) -> Response:
        """All runs, newest first."""
        from tacit.serve import runs  # noqa: PLC0415

        shelf = self.console.shelf
        if shelf is None:
            return self.console.page("empty_runs.html", session, here="runs")
        names = shelf.names()
        pages = max(1, -(-len(names) // 50))
        at = _page(request, pages)
        rows = shelf.rows_within(names[(at - 1) * 50 : at * 50], _PATIENCE)
        answer = self.console.page(
            "runs.html", session, here="runs", rows=rows, count=len(names), page=at, pages=pages,
            states=runs.STATES,
        )  # fmt: skip
        if any(row.state == "unread" for row in rows):
            answer.headers["refresh"] = "1"
        return answer

    def run(self, request: Request, session: Session) -> Response:
        """One run: live, or finished with its statement proved again."""
        from tacit.serve import runs  # noqa: PLC0415

        shelf, name = self._shelf(), request.path_params["name"]
        found = shelf.progress(name)
        record = shelf.record(name)
        summary, problem, secrets = None, "", self._sees_secrets(session)
        if record.finished:
            try:
                summary = shelf.summary(name)
            except (TacitError, OSError, ValueError) as error:
                problem = self.console.shown(error)
        return self.console.page(
            "run.html", session, here="runs", name=name, record=record, progress=found,
            summary=summary, problem=problem, at_most=at_most, attack=runs.attack(summary),
            spent=runs.spent,
            data=runs.series([(name, found["epochs"])]), hurry=session.may("engineer"),
            shown_metric=runs.shown_metric, secrets=secrets,
            audited=runs.audited(summary) if secrets else None,
            resume=f"tacit train --resume --out {_argument(name)}",
            audit=f"tacit audit {_argument(name)}",
        )  # fmt: skip

    def _sees_secrets(self, session: Session) -> bool:
        """Whether what an audit found may be shown: it was computed from private records."""
        return self.console.here and session.may("engineer")

    def compare(self, request: Request, session: Session) -> Response:
        """Two runs side by side."""
        from tacit.serve import runs  # noqa: PLC0415

        shelf = self._shelf()
        names = [one for one in request.query_params.getlist("run") if one][:2]
        if len(names) != 2:
            raise InvalidArgument("choose two runs to compare")
        columns = []
        for name in names:
            record, progress = shelf.record(name), shelf.progress(name)
            summary = shelf.summary(name) if record.finished else None
            columns.append((name, record, progress, summary))
        rows = runs.compared(columns)
        data = runs.series([(name, progress["epochs"]) for name, _, progress, _ in columns])
        return self.console.page("compare.html", session, here="runs", names=names, rows=rows,
                                 data=data)  # fmt: skip

    async def events(self, request: Request) -> Response:
        """A live run as server-sent events, until it or the session ends."""
        console, name = self.console, request.path_params["name"]
        session = console.session(request)
        if session is None:
            return PlainTextResponse("Sign in first.\n", 401)
        person, most = session.person, _MOST_WATCHERS
        full = self._watchers.total() >= most or self._watchers[person] >= most // 5
        if console.shelf is None or full:
            return PlainTextResponse("Nothing can be watched now.\n", 503)
        await run_in_threadpool(console.shelf.path, name)
        watched = self._watched(request, name, person)
        return StreamingResponse(watched, media_type="text/event-stream")

    async def _watched(self, request: Request, name: str, by: Person) -> AsyncIterator[bytes]:
        self._watchers[by] += 1
        said, at = b"", 0.0
        try:
            found = await self._looked(name, now=True)
            while (session := self.console.session(request)) is not None:
                event = found.event if session.may("engineer") else found.public
                if event is not said or found.at - at >= _QUIET:
                    yield event
                    said, at = event, found.at
                if not found.goes_on:
                    return
                found = await self._looked(name)
        except TacitError:
            return
        finally:
            self._watchers[by] -= 1

    async def _looked(self, name: str, *, now: bool = False) -> _Look:
        """The run's progress, a beat from now or ``now``: one look, and one text of it, serves all.

        Whoever watches a run waits for the same look, and all are sent it at the same moment.
        """
        kept = self._seen.get(name)
        if now and kept is not None and time.monotonic() - kept.at < 0.9 * _BEAT:
            return kept
        coming = self._coming.get((name, now))
        if coming is None or coming.done():
            wait = 0.0 if now else max(_BEAT, self._watchers.total() / _EVENTS)
            coming = asyncio.get_running_loop().create_task(self._look(name, wait, now=now))
            coming.add_done_callback(lambda one: one.cancelled() or one.exception())  # retrieved
            self._coming[name, now] = coming
        return await asyncio.shield(coming)  # one who leaves does not take it from the others

    async def _look(self, name: str, wait: float, *, now: bool) -> _Look:
        try:
            await pause(wait)
            kept = self._seen.get(name)
            found = _look(await run_in_threadpool(self._shelf().progress, name))
            if kept is not None and (kept.event, kept.public) == (found.event, found.public):
                found = replace(kept, at=found.at)  # the same bytes: nobody is sent them again
            self._seen[name] = found
            return found
        finally:
            self._coming.pop((name, now), None)

    def _shelf(self) -> RunShelf:
        if self.console.shelf is None:
            raise InvalidArgument("no folder of runs was named; start the server with --runs")
        return self.console.shelf

    # ---- what is handed on

    def report(self, request: Request, session: Session) -> Response:
        """The report as a page by itself, ready to be printed."""
        from tacit.reports import run_sections  # noqa: PLC0415
        from tacit.reports.run_content import page  # noqa: PLC0415

        name = request.path_params["name"]
        summary = self._shelf().summary(name)
        if not self._sees_secrets(session):
            summary = replace(summary, files=replace(summary.files, audit=None))
        drawings = self._drawings(name, summary)
        content = run_sections.report(summary, drawn=bool(drawings))
        # The report holds its style, and nothing that could run.
        policy = {
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        }
        return HTMLResponse(page(content, drawings), headers=policy)

    def _drawings(self, name: str, summary: RunSummary) -> dict[str, str]:
        """The report's drawings, which follow from what was just proved; drawn once for it."""
        same = (summary.statement.to_json(), summary.files.history, summary.files.audit)
        kept = self._drawn.get(name)
        if kept is None or kept[0] != same:
            if len(self._drawn) >= _MOST_DRAWN:
                self._drawn.clear()
            kept = self._drawn[name] = (same, _drawings(summary))
        return kept[1]

    def statement(self, request: Request, session: Session) -> Response:
        """The statement, proved again, as JSON."""
        del session
        name = request.path_params["name"]
        files = self._shelf().files(name)
        plain = json.dumps(json.loads(files.statement.to_json()), indent=2, ensure_ascii=False)
        return _attached(f"{plain}\n", "application/json", name, "statement.json")

    def model_card(self, request: Request, session: Session) -> Response:
        """The model card."""
        from tacit.reports.model_card import model_card  # noqa: PLC0415

        del session
        name = request.path_params["name"]
        text = model_card(self._shelf().summary(name))
        return _attached(text, "text/markdown", name, "model-card.md")

    def registry(self, request: Request, session: Session) -> Response:
        """The record for the registry of deployments."""
        from tacit.reports.registry import registry_record  # noqa: PLC0415

        name = request.path_params["name"]
        text = registry_record(self._shelf().summary(name), author=session.person.name)
        return _attached(text, "application/yaml", name, "registry.yaml")


def _page(request: Request, pages: int) -> int:
    text = request.query_params.get("page", "1")
    return min(pages, max(1, int(text))) if text.isascii() and text.isdigit() else 1


def _argument(name: str) -> str:
    """The folder of a run as a command line takes it, whatever it is called."""
    last = name.rpartition("/")[2]
    return shlex.quote(f"./{last}" if last.startswith("-") else last)


def _planned(found: RequestState) -> Plan | None:
    """The plan that a request names, if it does."""
    from tacit.training.plan import Plan  # noqa: PLC0415 - SciPy comes with it

    try:
        return Plan.from_dict((found.detail or {}).get("plan"))
    except (TacitError, ValueError, TypeError, ArithmeticError):
        return None


def _mismatch(found: RequestState, state: BudgetState) -> str:
    """Why the words of a request are not to be believed: only its event is what is charged.

    The event says neither whom the budget protects nor which neighbours it is about.
    """
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    plan = _planned(found)
    if plan is None:
        return ""
    terms = (plan.unit, plan.adjacency, plan.steps) == (state.unit, state.adjacency, found.steps)
    if terms and plan.event == from_dict(found.event):
        return ""
    return "What it says is not the plan of its event. Go by the event alone, which is charged."


def _plan_rows(found: RequestState, state: BudgetState) -> list[tuple[str, str]]:
    """What a request asks for: ε computed from its event, and its plan if that is the event's."""
    from tacit.statement import words  # noqa: PLC0415

    rows = [
        ("it may give away", _cost(found, state)),
        ("mechanism", words.mechanism(found.event)),
        ("steps", f"{found.steps:,}"),
    ]
    plan = _planned(found)
    if plan is None or _mismatch(found, state):
        return rows
    return [
        *rows,
        ("examples" if plan.unit == "example" else "users", f"{plan.examples:,}"),
        ("lot", f"{plan.lot_size:g}"),
        ("epochs", compact(plan.epochs)),
        ("noise multiplier σ", compact(plan.noise_multiplier)),
        ("clip", compact(plan.clip)),
        ("neighbours", plan.adjacency),
    ]


def _cost(found: RequestState, state: BudgetState) -> str:
    """The certified ε of a request's event, at the δ that it names or the budget's if smaller."""
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy comes with it
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    named = (found.asked or {}).get("delta")
    delta = state.delta
    if isinstance(named, float) and 0.0 < named < 1.0 and not 0.0 < delta < named:
        delta = named
    try:
        spent = epsilon(from_dict(found.event), delta, adjacency=state.adjacency)
    except (TacitError, ValueError, TypeError, ArithmeticError):
        return "no ε is certified for it"
    return f"ε = {at_most(spent)} at δ = {compact(delta)}"


def _drawings(summary: RunSummary) -> dict[str, str]:
    if find_spec("matplotlib") is None:
        return {}
    from tacit.reports.run_figure import drawings  # noqa: PLC0415 - matplotlib

    return drawings(summary)


def _attached(text: str, kind: str, run: str, name: str) -> Response:
    plain = "".join(one if one.isalnum() and one.isascii() else "-" for one in run)
    headers = {"content-disposition": f'attachment; filename="{plain}-{name}"'}
    return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)
