"""An HTTP server on this machine, in a thread: the base class of local stand-ins for the hub and package indexes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from attrs import define, field


@define
class LocalServer(ABC):
    """Runs while it is entered, at `url`; `asked` is what was asked."""

    asked: list[str] = field(factory=list, kw_only=True)
    server: Any = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def handler(self) -> type[BaseHTTPRequestHandler]:
        """What takes the requests. It has the server as `of`, and prints nothing."""

    def __enter__(self) -> Self:
        handler = type("Handler", (self.handler,), {"of": self, "log_message": lambda *_: None})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()  # seconds until it ends
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_port}"
