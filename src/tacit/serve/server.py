"""The server: one process, its sockets, its links, and what it reads before anyone asks."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, final

from tacit.errors import InvalidArgument, TacitError
from tacit.ledger.requests import APPROVAL_DAYS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.types import ASGIApp

    from tacit.serve.access import Key
    from tacit.serve.app import Console

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_AGAIN: Final = 600.0  # seconds between two checks of the whole ledger, which take 1 % at most


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a console is served.

    Args:
        ledger: The ledger's URL.
        address: The same as a command line takes it.
        anchor: Its anchor file, if not in the usual place.
        key: The file with the key that seals it.
        runs: The folder of runs.
        host: The address to bind to.
        port: The port; 0 for a free one.
        names: What else the server is called by those who open it.
        keys: Who may sign in; empty for this machine's links.
        certificate: A TLS certificate and its key, in PEM.
        approval_days: After how many days an approval lapses, unless the officer says otherwise.
    """

    ledger: str | None = None
    address: str = ""
    anchor: str | None = None
    key: str | None = None
    runs: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()
    keys: Sequence[Key] = ()
    certificate: tuple[Path, Path] | None = None
    approval_days: int = APPROVAL_DAYS

    def __post_init__(self) -> None:
        if self.host not in LOOPBACK and not self.keys:
            raise InvalidArgument(
                f"--host {self.host} needs --keys: whoever reaches this machine could sign in "
                "otherwise; make keys with: tacit serve --keys FILE --add-key NAME:ROLE"
            )
        if self.host not in LOOPBACK and self.certificate is None:
            raise InvalidArgument(
                f"--host {self.host} needs --certificate: keys would pass the network in the "
                "clear; or bind to 127.0.0.1 behind a proxy that speaks TLS, with --name"
            )
        if self.certificate is not None:
            _check_certificate(*self.certificate)


def _check_certificate(certificate: Path, key: Path) -> None:
    """Refuses what TLS cannot speak with, before a link is printed."""
    try:
        # Without a password of ours OpenSSL would ask the terminal for the key's.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, lambda: "")
    except (OSError, ValueError) as error:
        missing = [str(one) for one in (certificate, key) if not one.is_file()]
        reason = f"there is no file {missing[0]}" if missing else str(error)
        raise InvalidArgument(
            f"--certificate {certificate} {key} cannot be used: {reason}; name a certificate and "
            "its own key, both in PEM and the key without a password"
        ) from None


@final
@dataclass(frozen=True, slots=True)
class Served:
    """A console that is about to be served: its application, its socket, and its links."""

    console: Console
    app: ASGIApp
    socket: socket.socket
    links: tuple[tuple[str, str], ...]


def prepared(setting: Setting) -> Served:
    """Opens the ledger and the socket, and makes the links; nothing is answered yet."""
    from tacit.serve.access import Access, local_people  # noqa: PLC0415
    from tacit.serve.app import Console  # noqa: PLC0415
    from tacit.serve.pages import Pages  # noqa: PLC0415

    shelf = None
    if setting.runs is not None:
        from tacit.serve.runs import RunShelf  # noqa: PLC0415

        if not setting.runs.is_dir():
            raise InvalidArgument(f"--runs must be a folder, got {setting.runs}; make it first")
        shelf = RunShelf(setting.runs.resolve())
    ledger = None
    if setting.ledger is not None:
        from tacit.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy
        from tacit.serve.budgets import LedgerView  # noqa: PLC0415

        ledger = LedgerView(
            Ledger(setting.ledger, anchor=setting.anchor, key=setting.key, create=False)
        )
    # Whatever follows the ? of a URL may be a password; the ledger's own name for it has none.
    address = setting.address
    if ledger is not None and "://" in address:
        address = ledger.ledger.location.replace("postgresql+psycopg:", "postgresql:")
    bound = _bound(setting)
    port = bound.getsockname()[1]
    origins = _origins(setting, port)
    access = Access(setting.keys)
    console = Console(
        access, frozenset(origins), ledger, shelf, address=address,
        with_keys=bool(setting.keys), approval_days=setting.approval_days, cookie=f"tacit-{port}",
        here=setting.host in LOOPBACK and not setting.names,
    )  # fmt: skip
    links: list[tuple[str, str]] = []
    if not setting.keys:
        links = [
            (person.role, f"{origins[0]}/enter?token={access.link(person)}")
            for person in local_people()
        ]
    return Served(console, console.app(Pages(console).routes()), bound,
                  tuple(links) or (("sign in", f"{origins[0]}/sign-in"),))  # fmt: skip


def serve(served: Served, setting: Setting) -> None:
    """Answers until the process is interrupted."""
    import uvicorn  # noqa: PLC0415

    certificate, key = setting.certificate or (None, None)
    config = uvicorn.Config(
        served.app, log_level="warning", access_log=False, lifespan="off", http="h11",
        ws="none", server_header=False, timeout_graceful_shutdown=1, proxy_headers=False,
        ssl_certfile=certificate, ssl_keyfile=key, h11_max_incomplete_event_size=64 << 10,
    )  # fmt: skip
    threading.Thread(target=_look_ahead, args=(served.console, setting), daemon=True).start()
    uvicorn.Server(config).run(sockets=[served.socket])


def _look_ahead(console: Console, setting: Setting) -> None:
    """Reads what takes a while before somebody asks; then looks after the ledger now and then."""
    from tacit.serve import planner  # noqa: PLC0415

    time.sleep(0.5)  # the first page comes first
    planner.answer(planner.PlanForm())
    if console.ledger is not None:
        with contextlib.suppress(TacitError):
            console.ledger.read()
    time.sleep(1.0)
    if console.shelf is not None:
        with contextlib.suppress(TacitError, OSError, ValueError):
            console.shelf.rows()
        console.warm = True
    if find_spec("matplotlib") is not None:
        import tacit.reports.run_figure  # noqa: F401, PLC0415 - so that no reader waits for it
    # Modules stay for good. Looking through them for garbage takes longer than a page may.
    gc.collect()
    gc.freeze()
    while setting.ledger is not None:
        start = time.monotonic()
        _lapse(console)
        console.unsound = _problems(setting)
        time.sleep(max(_AGAIN, 100.0 * (time.monotonic() - start)))


def _lapse(console: Console) -> None:
    """Ends approvals whose last day is over; a page has said so since midnight."""
    from tacit.ledger import lapse  # noqa: PLC0415

    assert console.ledger is not None
    with contextlib.suppress(TacitError):  # every page says what is wrong with the ledger
        lapse(console.ledger.ledger)


def _problems(setting: Setting) -> tuple[str, ...]:
    from tacit.ledger import verify  # noqa: PLC0415

    assert setting.ledger is not None
    try:
        return verify(setting.ledger, anchor=setting.anchor, key=setting.key).problems
    except TacitError as error:
        return (str(error),)


def _bound(setting: Setting) -> socket.socket:
    family = socket.AF_INET6 if ":" in setting.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((setting.host, setting.port))
        made.listen(128)  # before a link is printed: whoever is quick waits, and is not refused
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(
            f"--port {setting.port} on {setting.host} cannot be had: {reason}; take another, or "
            "--port 0 for a free one"
        ) from None
    return made


def _origins(setting: Setting, port: int) -> list[str]:
    scheme = "http" if setting.certificate is None else "https"
    own = [setting.host] if setting.host not in LOOPBACK else ["127.0.0.1", "localhost", "[::1]"]
    found = [f"{scheme}://{name}:{port}" for name in own if name not in ("0.0.0.0", "::")]
    # A proxy in front speaks TLS, at the usual port unless the name has another.
    for name in setting.names:
        found += [f"https://{name}", f"{scheme}://{name}:{port}"]
    if not found:
        raise InvalidArgument(f"--host {setting.host} needs --name: what is the server called?")
    return [one.lower() for one in found]
