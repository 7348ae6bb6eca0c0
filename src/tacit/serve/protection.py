"""What every request passes before a page sees it, and what every answer carries.

A page on another site can make this browser send requests here, and a name on the internet can be
made to point to this machine. So a request must name this server (Host), whatever changes something
must come from a page of it (Origin, and a word that only its pages know), and bodies are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY: Final = 64 << 10  # bytes; a form has hundreds
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_METHODS: Final = ("GET", "HEAD", "POST")
_LONGEST_PATH: Final = 4096


@final
@dataclass(frozen=True, slots=True)
class Protected:
    """An application that sees only requests for this server.

    ``origins`` are the addresses that it answers to, as ``http://127.0.0.1:8000``.
    """

    app: ASGIApp
    origins: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or refuses in one line."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        if refused is not None:
            await _answer(send, *refused)
            return
        meter = _Meter(receive)
        await self.app(scope, meter, _with_headers(send, scope["path"]))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        given = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        hosts = {one.partition("://")[2] for one in self.origins}
        if given.get("host", "").lower() not in hosts:
            return 421, "This server has another name; open the address that it printed."
        if scope["method"] not in _METHODS:
            return 405, "Only pages and forms are answered here."
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST_PATH:
            return 414, "The address is too long."
        site = given.get("sec-fetch-site", "none")
        if scope["method"] == "POST":
            if given.get("origin", "").lower() not in self.origins:
                return 403, "This form is not of this server; open its own page and try again."
            if site not in ("same-origin", "none"):
                return 403, "This form was sent by another page."
            return _too_large(given)
        # Another port of this machine is the same site, with the same cookies.
        loaded = given.get("sec-fetch-mode", "navigate") != "navigate"
        if loaded and site in ("cross-site", "same-site"):
            return 403, "Only this server's own pages load this."
        return None


def _too_large(given: Mapping[str, str]) -> tuple[int, str] | None:
    length = given.get("content-length", "")
    if "transfer-encoding" in given or not (length.isascii() and length.isdigit()):
        return 411, "The length of the form must be given."
    return (413, "The form is too large.") if int(length) > LARGEST_BODY else None


@final
class _Meter:
    """A body that ends where it grows larger than any form."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._read = receive, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        return message if self._read <= LARGEST_BODY else {"type": "http.disconnect"}


def _with_headers(send: Send, path: str) -> Send:
    fixed = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    kept = b"public, max-age=3600" if path.startswith("/static/") else b"no-store"

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message["headers"])
            given = {name for name, _ in own}  # a page may have a policy of its own
            more = [pair for pair in fixed if pair[0] not in given]
            message = {**message, "headers": [*own, *more, (b"cache-control", kept)]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body)),
        *((name.encode(), value.encode()) for name, value in HEADERS.items()),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
