"""A web server in this process that knows ranges and can misbehave, request by request."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Server:
    """Serves ``files``; each request takes the next of ``moods``, and the last one stays.

    Moods: ``""`` (as it should be), ``404``, ``500``, ``drop N`` (closes after N bytes of the
    answer), ``no range``, ``from start`` (says 206 but begins at 0), ``no length``, ``wrong``
    (other bytes), ``short N`` (serves the first N bytes as if they were all), ``long`` (a byte too
    many), ``slow S`` (S seconds after each 4,096 bytes), ``silent S`` (S seconds before a word).
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.moods = [""]
        self.asked: list[tuple[str, str | None]] = []  # path and range of every request
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{name}"

    def mood(self) -> str:
        return self.moods.pop(0) if len(self.moods) > 1 else self.moods[0]


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            server.asked.append((self.path, wanted))
            mood, _, number = server.mood().partition(" ")
            body = server.files.get(self.path.lstrip("/"))
            if body is None or mood in {"404", "500"}:
                self.send_error(int(mood or 404))
                return
            if mood == "silent":
                time.sleep(float(number))
            if mood == "wrong":
                body = bytes(255 - byte for byte in body)
            if mood == "short":
                body = body[: int(number)]
            if mood == "long":
                body += b"!"
            self.answer(body, wanted, mood, number)

        def answer(self, body: bytes, wanted: str | None, mood: str, number: str) -> None:
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            ranged = wanted and (mood, number) != ("no", "range")
            if ranged and start >= len(body):
                self.send_error(416)
                return
            rest = body[start:] if ranged and mood != "from" else body
            self.send_response(206 if ranged else 200)
            if ranged:
                first = len(body) - len(rest)
                self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
            if (mood, number) != ("no", "length"):
                self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.send(rest[: int(number)] if mood == "drop" else rest, mood, number)

        def send(self, rest: bytes, mood: str, number: str) -> None:
            try:
                for first in range(0, len(rest), 4096):
                    self.wfile.write(rest[first : first + 4096])
                    if mood == "slow":
                        time.sleep(float(number))
            except ConnectionError:
                pass  # the reader is gone, as some tests want it to

    return Handler
