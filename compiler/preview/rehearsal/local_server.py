"""An HTTP server that runs in a thread on this machine. It is the base class of local servers that replace the hub and
package indexes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from attrs import define, field


@define
class LocalServer(ABC):
    """A server that runs at the address `url` inside of a `with` block. `requested` lists the requests that it got."""

    requested: list[str] = field(factory=list, kw_only=True)
    server: Any = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def handler(self) -> type[BaseHTTPRequestHandler]:
        """The class that handles the requests. Its attribute `of` is the server. Requests are not written to a log."""

    def __enter__(self) -> Self:
        handler = type("Handler", (self.handler,), {"of": self, "log_message": lambda *_: None})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        # the server checks every 0.02 seconds whether it should stop
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server.server_port}"
