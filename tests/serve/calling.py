"""Requests to the application itself, byte for byte as a stranger would send them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message

ORIGIN = "http://127.0.0.1:8765"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


def call(
    app: ASGIApp, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> Answer:
    """One request; a stream that never ends is left after its first event."""
    path, _, query = target.partition("?")
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": _decoded(path), "raw_path": path.encode(), "headers": lines,
        "query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 5), "server": None,
    }  # fmt: skip
    sent: list[Message] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if parts:
            return parts.pop(0)
        await asyncio.sleep(3600.0)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        task = asyncio.create_task(app(scope, receive, send))  # type: ignore[arg-type]
        for _ in range(1000):
            await asyncio.wait([task], timeout=0.02)
            events = any(b"text/event-stream" in dict(one.get("headers", [])).get(
                b"content-type", b"") for one in sent)  # fmt: skip
            if task.done() or (events and len(sent) > 1):
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if task.done() and not task.cancelled() and task.exception() and not sent:
            raise AssertionError(task.exception())

    asyncio.run(run())
    start = sent[0]
    found = [(name.decode(), value.decode()) for name, value in start["headers"]]
    return Answer(start["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))


def _decoded(path: str) -> str:
    from urllib.parse import unquote  # noqa: PLC0415

    return unquote(path)


@dataclass
class Browser:
    """Keeps a cookie, and sends what a browser sends with a form of the page."""

    app: ASGIApp
    cookie: str = ""
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"host": "127.0.0.1:8765"})

    def get(self, target: str, **more: str) -> Answer:
        found = call(self.app, "GET", target, self._sent(more))
        self._keep(found)
        word = re.search(r'name="csrf" value="([^"]+)"', found.body.decode("utf-8", "replace"))
        self.csrf = word[1] if word else self.csrf
        return found

    def post(self, target: str, fields: Mapping[str, str], **more: str) -> Answer:
        body = urlencode({"csrf": self.csrf, **fields}).encode()
        sent = self._sent({"origin": ORIGIN, "content-length": str(len(body)), **more})
        found = call(self.app, "POST", target, sent, body)
        self._keep(found)
        return found

    def enter(self, token: str) -> Browser:
        assert self.get(f"/enter?token={quote(token)}").status == 303
        self.get("/runs")
        return self

    def _sent(self, more: Mapping[str, str]) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        own = {"cookie": self.cookie} if self.cookie else {}
        return {**self.headers, **own, **named}

    def _keep(self, found: Answer) -> None:
        given = found.header("set-cookie")
        if given:
            self.cookie = given.partition(";")[0]
