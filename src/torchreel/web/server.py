"""The server: this machine alone, by a token, and nothing that the page does not need.

- It listens on 127.0.0.1. The token of the printed address becomes a cookie; without it every path is refused.
- Host, and Origin of what is sent, must be this server's: another page cannot reach it by a name of its own.
- The page's policy forbids scripts, styles and connections of others.
"""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchreel.errors import TorchreelError, ViewerError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from torchreel.web.answers import Answers

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).parent / "page"
# All that is served of the disk, but for the site of an atlas; no path of a request ever names a file.
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Listener:
    """A socket that is bound, and the address to open."""

    socket: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"


def listen(port: int = 0) -> Listener:
    """Bind the port, or any that is free."""
    if not (PAGE / "page.js").is_file():
        raise ViewerError("The viewer's page is not built: run 'make viewer' in the checkout first.")
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((ADDRESS, port))
        bound.listen()  # who comes before the server is ready waits
    except OSError as error:
        bound.close()
        raise ViewerError(
            f"Port {port} cannot be used: {error.strerror}. Give another --port, or none for any that is free."
        ) from None
    return Listener(bound, secrets.token_urlsafe(16))


@dataclass(frozen=True)
class _Gate:
    """Who is answered."""

    token: str
    port: int

    @property
    def cookie(self) -> str:
        return f"torchreel-{self.port}"

    def refusal(self, request: Request) -> str | None:
        """Why a request is not answered; None if it is."""
        hosts = (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")
        if request.headers.get("host") not in hosts:
            return f"This viewer answers to {hosts[0]} only."
        origin = request.headers.get("origin")
        if origin is not None and origin not in tuple(f"http://{host}" for host in hosts):
            return "Requests of other pages are refused."
        given = request.cookies.get(self.cookie) or request.query_params.get("token", "")
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return "Open the address that 'torchreel view' printed: it holds the token."
        return None


class _Guarded:
    """Asks the gate about every request, whatever its path and method, and gives every answer the headers."""

    def __init__(self, gate: _Gate, app: ASGIApp) -> None:
        self._gate = gate
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if scope["type"] != "http":
            return  # there are no web sockets here
        headers = [(name.lower().encode(), value.encode()) for name, value in _SECURITY.items()]

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        why = self._gate.refusal(Request(scope))
        answer = self._app if why is None else _error(403, why)
        await answer(scope, receive, send_guarded)


def _error(status: int, sentence: str) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"error": sentence}, status)


def application(answers: Answers, token: str, port: int) -> ASGIApp:
    """What answers requests."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response as Plain
    from starlette.routing import Route

    gate = _Gate(token, port)

    async def file(request: Request) -> Response:
        name, kind = _FILES[request.url.path]
        response = Plain((PAGE / name).read_bytes(), media_type=kind)
        if request.query_params.get("token"):
            response.set_cookie(gate.cookie, token, httponly=True, samesite="strict")
        return response

    async def ask(request: Request) -> Response:
        body = await request.body() if request.method == "POST" else b""
        found: Any
        try:
            found = await run_in_threadpool(
                answers.answer, request.method, request.path_params["path"], dict(request.query_params), body
            )
        except TorchreelError as error:
            return _error(400, str(error))
        except KeyError:
            return _error(404, f"There is nothing at /api/{request.path_params['path']}.")
        if isinstance(found, bytes):
            return Plain(found, media_type="application/octet-stream")
        return Plain(answers.encoded(found), media_type="application/json")

    async def page_of_atlas(request: Request) -> Response:
        site, path = answers.atlas, request.path_params["path"]
        found = await run_in_threadpool(site.file, path) if site is not None else None
        if found is None:
            return _error(404, f"There is nothing at {request.url.path}.")
        data, kind = found
        return Plain(data, media_type=kind)

    async def missing(request: Request, _: Exception) -> Response:
        return _error(404, f"There is nothing at {request.url.path}.")

    async def not_so(request: Request, _: Exception) -> Response:
        return _error(405, f"{request.url.path} is not asked by {request.method}: use GET, or POST for /api/sql.")

    starlette = Starlette(
        routes=[
            *(Route(path, file) for path in _FILES),
            Route("/api/{path:path}", ask, methods=["GET", "POST"]),
            Route("/atlas/{path:path}", page_of_atlas),
        ],
        exception_handlers={404: missing, 405: not_so},
    )
    return _Guarded(gate, starlette)


def serve(answers: Answers, listener: Listener) -> None:
    """Answer until Ctrl-C."""
    import uvicorn

    settings = uvicorn.Config(
        application(answers, listener.token, listener.port), log_level="error", lifespan="off", access_log=False
    )
    uvicorn.Server(settings).run(sockets=[listener.socket])
