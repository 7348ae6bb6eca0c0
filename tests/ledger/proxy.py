"""A wire to a PostgreSQL server that can be cut at the moment a commit is answered."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Passes bytes both ways; while ``cut`` is "before" or "after", a COMMIT cuts the wire.

    "before": the server never hears of it. "after": the server has committed, but the answer is
    lost. The client cannot tell the two apart.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut: str | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass, args=(source, sink, source is client), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, sink: socket.socket, asking: bool) -> None:
        with contextlib.suppress(OSError):
            while raw := source.recv(65536):
                if asking and self.cut and b"COMMIT\0" in raw:
                    self._sever(source, sink, raw)
                    return
                sink.sendall(raw)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _sever(self, client: socket.socket, server: socket.socket, raw: bytes) -> None:
        self.cuts, cut = self.cuts + 1, self.cut
        client.shutdown(socket.SHUT_RDWR)  # the other thread has nowhere to pass the answer
        if cut == "after":
            server.sendall(raw)
        else:
            server.shutdown(socket.SHUT_RDWR)
