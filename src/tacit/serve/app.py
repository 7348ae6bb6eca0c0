"""The application: which page there is, who may see it, and what a form may do.

Pages are rendered here, on the server; a browser without scripts sees them too. Handlers are plain
functions that run in threads, for the ledger and the accountants take their time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tacit import __version__
from tacit._validation import printable
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.ledger.requests import APPROVAL_DAYS
from tacit.serve import planner
from tacit.serve.planner import PlanForm
from tacit.serve.protection import Protected

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from tacit.serve.access import Access, Session
    from tacit.serve.budgets import Alert, LedgerView
    from tacit.serve.runs import RunShelf

Form = Mapping[str, str]
Get = Callable[["Request", "Session"], Response]
Post = Callable[["Request", "Session", Form], Response]
Refuse = Callable[["Request", Exception], Awaitable[Response]]

TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STALE: Final = 5.0  # seconds for which alerts are not looked for again
_PATIENCE: Final = 3.0  # seconds after which somebody is refused who waits to compute a plan
MOST_FIELDS: Final = 100


@final
@dataclass(slots=True)
class Console:
    """What the pages are made from; ``ledger`` and ``shelf`` are None where none was named.

    ``here`` says that only this machine is answered: what an audit found is secret, and is shown to
    engineers and officers there and nowhere else. ``address`` is the ledger's as a command line
    takes it. ``approval_days`` is how long an approval lasts unless its officer says otherwise.
    ``unsound`` is what the last check of the whole ledger found, and ``warm`` says whether runs
    were read once, which takes a while the first time.
    """

    access: Access
    origins: frozenset[str]
    ledger: LedgerView | None = None
    shelf: RunShelf | None = None
    address: str = ""
    with_keys: bool = False
    here: bool = True
    approval_days: int = APPROVAL_DAYS
    cookie: str = "tacit"
    unsound: tuple[str, ...] = ()
    warm: bool = False
    _alerts: tuple[float, tuple[Alert, ...]] = (-1e9, ())
    _planners: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(2)
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _environment: Environment = field(init=False)
    _static: dict[str, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._environment = _templates()
        place = resources.files("tacit.serve").joinpath("static")
        self._static = {
            one.name: one.read_bytes()
            for one in place.iterdir() if one.name.rpartition(".")[2] in TYPES
        }  # fmt: skip

    # ---- pages and forms

    def app(self, routes: list[Route]) -> ASGIApp:
        """The application with these routes beside its own, behind its protection."""
        own = [
            Route("/", self.first),
            Route("/enter", self.enter),
            Route("/sign-in", self.sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self.post("viewer", self.sign_out), methods=["POST"]),
            Route("/links", self.post("officer", self.share), methods=["POST"]),
            Route("/static/{name}", self.static),
            Route("/plan", self.get("viewer", self.plan)),
            Route("/plan/answer", self.get("viewer", self.answer)),
            Route("/plan/recipe", self.get("viewer", self.recipe)),
        ]
        refusals: dict[Any, Refuse] = {
            404: partial(self._refused, 404), 405: partial(self._refused, 405),
            TacitError: partial(self._refused, 400), ClientDisconnect: partial(self._refused, 413),
            Exception: partial(self._refused, 500),
        }  # fmt: skip
        if self.ledger is not None:
            from tacit.serve.budgets import StillReading  # noqa: PLC0415 - SQLAlchemy

            refusals[StillReading] = self._wait
        # A handler's own error is answered by one line: what it says may be secret.
        app = Starlette(routes=[*own, *routes], exception_handlers=refusals)
        return Protected(app, self.origins)

    def get(self, role: str, handler: Get) -> Callable[[Request], Awaitable[Response]]:
        """A page for those who have at least this role."""

        async def endpoint(request: Request) -> Response:
            session = self.session(request)
            if session is None:
                return RedirectResponse("/sign-in", 303)
            if not session.may(role):
                return self.say(403, f"This needs the role of an {role}.", session)
            return await run_in_threadpool(handler, request, session)

        return endpoint

    def post(self, role: str, handler: Post) -> Callable[[Request], Awaitable[Response]]:
        """A form of those who have at least this role; it must hold the session's own word."""

        async def endpoint(request: Request) -> Response:
            session = self.session(request)
            if session is None:
                return RedirectResponse("/sign-in", 303)
            form = await read_form(request)
            if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
                return self.say(403, "This form is too old; open its page again.", session)
            if not session.may(role):
                return self.say(403, f"This needs the role of an {role}.", session)
            return await run_in_threadpool(handler, request, session, form)

        return endpoint

    def session(self, request: Request) -> Session | None:
        """Who asks, if they have shown it."""
        return self.access.session(request.cookies.get(self.cookie))

    def page(
        self, template: str, session: Session | None, status: int = 200, /, **given: Any
    ) -> Response:
        """A template as a page."""
        found = self._environment.get_template(template).render(
            session=session, version=__version__, with_keys=self.with_keys,
            alerts=() if session is None or planner.cold() else self.alerts(), **given,
        )  # fmt: skip
        return HTMLResponse(found, status)

    def say(self, status: int, text: str, session: Session | None = None) -> Response:
        """One line on a page of its own."""
        return self.page("message.html", session, status, text=text, here="")

    async def _refused(self, status: int, request: Request, error: Exception) -> Response:
        session = self.session(request)
        if isinstance(error, TacitError):
            missing = isinstance(error, CheckpointError) and "no such run" in str(error)
            return self.say(404 if missing else status, self.shown(error), session)
        texts = {404: "There is no such page.", 405: "That is no form of this page.",
                 413: "The form did not arrive whole.",
                 500: "This page failed; the terminal of the server says how."}  # fmt: skip
        return self.say(status, texts[status], session)

    async def _wait(self, request: Request, error: Exception) -> Response:
        """A page that comes again by itself; a form is to be sent again by whoever sent it."""
        session, text = self.session(request), self.shown(error)
        if request.method != "GET":
            return self.say(503, f"Nothing was done: {text}. Send the form again.", session)
        answer = self.say(503, f"{text}. The page comes by itself.", session)
        answer.headers["refresh"] = "1"
        return answer

    def shown(self, error: BaseException) -> str:
        """An error in one line, without the machine's own paths."""
        line = printable(" ".join(str(error).split()))
        if self.shelf is not None:
            line = line.replace(str(self.shelf.root), "RUNS")
        return line[:600]

    def alerts(self) -> tuple[Alert, ...]:
        """What somebody should look at, on every page."""
        with self._lock:
            at, found = self._alerts
            if time.monotonic() - at > _STALE:
                found = tuple(self._found_alerts())
                self._alerts = (time.monotonic(), found)
            return found

    def _found_alerts(self) -> list[Alert]:
        from tacit.serve import budgets, runs  # noqa: PLC0415 - SQLAlchemy and PyTorch

        found = [budgets.Alert("alarm", f"The ledger is not sound: {one}") for one in self.unsound]
        if self.ledger is not None:
            try:
                found += budgets.alerts(self.ledger.books())
            except budgets.StillReading as error:
                found.append(budgets.Alert("warning", f"{self.shown(error)}; its alerts follow."))
            except TacitError as error:
                found.append(budgets.Alert("alarm", self.shown(error)))
        if self.shelf is not None and self.warm:
            found += runs.alerts(self.shelf.rows())
        return found

    # ---- coming and going

    async def first(self, request: Request) -> Response:
        """Where somebody goes who types the address."""
        del request
        return RedirectResponse("/plan", 303)

    async def enter(self, request: Request) -> Response:
        """Exchanges the token of a link for a session."""
        name = self.access.enter(request.query_params.get("token", "")[:200])
        if name is None:
            return self.say(403, "This link was used already, or is too old; ask for another one.")
        return self._welcomed(request, name)

    async def sign_in(self, request: Request) -> Response:
        """Asks for a key, or says which link to open."""
        if request.method != "POST":
            return self.page("sign_in.html", None, wrong=False, here="")
        form = await read_form(request)
        name = self.access.sign_in(form.get("key", "")[:200]) if self.with_keys else None
        if name is None:
            return self.page("sign_in.html", None, 403, wrong=True, here="")
        return self._welcomed(request, name)

    def _welcomed(self, request: Request, name: str) -> Response:
        # Where this server is known by TLS alone, also by that of a proxy, the cookie goes by it.
        plain = f"http://{request.headers['host'].lower()}" in self.origins
        answer = RedirectResponse("/plan", 303)
        answer.set_cookie(
            self.cookie, name, httponly=True, samesite="lax", secure=not plain, path="/"
        )
        return answer

    def sign_out(self, request: Request, session: Session, form: Form) -> Response:
        """Ends the session."""
        del session, form
        self.access.leave(request.cookies.get(self.cookie, ""))
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(self.cookie, path="/")
        return answer

    def share(self, request: Request, session: Session, form: Form) -> Response:
        """A link for an auditor, who may look and nothing else."""
        from tacit.ledger.requests import Person  # noqa: PLC0415

        del form
        auditor = Person(f"a guest of {session.person.name}"[:200], "viewer", session.person.key)
        link = f"{request.headers['origin']}/enter?token={self.access.link(auditor)}"
        return self.page("link.html", session, link=link, here="")

    async def static(self, request: Request) -> Response:
        """A style sheet or a script that comes with the package."""
        name = request.path_params["name"]
        if name not in self._static:
            return PlainTextResponse("There is no such file.\n", 404)
        kind = TYPES[name.rpartition(".")[2]]
        return Response(self._static[name], media_type=kind)

    # ---- the planner

    def plan(self, request: Request, session: Session) -> Response:
        """The form with its answer."""
        form = PlanForm.read(request.query_params)
        return self.page(
            "plan.html", session, here="plan", form=form, budgets=self._budget_names(),
            recipes=planner.recipes(), choices=planner, later=planner.cold(), moved=False,
            **({} if planner.cold() else self._answered(form)),
        )  # fmt: skip

    def answer(self, request: Request, session: Session) -> Response:
        """The answer by itself, for a form that has changed."""
        form = PlanForm.read(request.query_params)
        found = self._environment.get_template("answer.html").render(
            form=form, session=session, moved=True, **self._answered(form)
        )
        return HTMLResponse(found, headers={"HX-Replace-Url": f"/plan?{form.address()}"})

    def recipe(self, request: Request, session: Session) -> Response:
        """The form with a recipe's own numbers in it."""
        del session
        form = PlanForm.read(request.query_params)
        if form.recipe in planner.recipes():
            form = planner.preset(form.recipe, form)
        return RedirectResponse(f"/plan?{form.address()}", 303)

    def _answered(self, form: PlanForm) -> dict[str, Any]:
        try:
            state = None
            if self.ledger is not None and form.budget:
                state = self.ledger.books().budgets.get(form.budget)
            with self.computing():
                return {"answer": planner.answer(form, state), "problem": ""}
        except planner.REFUSED as error:
            return {"answer": None, "problem": self.shown(error)}

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """A place among the few who compute a plan at a time, so that other pages stay quick."""
        if not self._planners.acquire(timeout=_PATIENCE):
            raise InvalidArgument("the planner is busy with others' plans; try it again soon")
        try:
            yield
        finally:
            self._planners.release()

    def _budget_names(self) -> list[str]:
        """Names only: while charges are computed again, none is relied upon."""
        if self.ledger is None:
            return []
        from tacit.serve.budgets import StillReading  # noqa: PLC0415 - SQLAlchemy

        try:
            if not planner.cold():
                self.ledger.books()
        except StillReading:
            pass
        except TacitError:
            return []
        return list(self.ledger.ledger.books.budgets)


@cache
def _templates() -> Environment:
    """The package's own templates, each compiled once; whatever they are given is escaped."""
    made = Environment(
        loader=PackageLoader("tacit.serve"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(clean=_clean, path=lambda text: quote(str(text), safe="/"), point=_point)
    return made


async def read_form(request: Request) -> Form:
    """The fields of a form, none of them twice; ``Protected`` has looked at its size."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InvalidArgument("the form has too many fields") from None
    if len(dict(pairs)) < len(pairs):
        raise InvalidArgument("the form has a field twice")
    return dict(pairs)


def as_event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: message\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


async def pause(seconds: float) -> None:
    """Waits, and lets others go on."""
    await asyncio.sleep(seconds)


def _point(text: str) -> Markup:
    """A number in a column: what follows the point has a width of its own, so that points meet."""
    if not text[:1].isdigit() and not text.startswith("≈"):
        return escape(text)
    whole, point, rest = text.partition(".")
    return Markup('{}<span class="fraction">{}{}</span>').format(whole, point, rest)


def _clean(value: object) -> str:
    """One line that neither hides nor turns anything around, whoever wrote it."""
    return printable(" ".join(str(value).split()))
