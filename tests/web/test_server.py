"""The server over real sockets: who is answered, and what."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.web.answers import Answers
from torchreel.web.server import ADDRESS, application

STACK = (("/nowhere/train.py", 3, "main"),)


class Served:
    """A server in a thread of this process."""

    def __init__(self, answers: Answers) -> None:
        import socket

        import uvicorn

        self.token = "the-token"
        self._socket = socket.socket()
        self._socket.bind((ADDRESS, 0))
        self._socket.listen()  # who comes before the server is ready waits
        self.port = self._socket.getsockname()[1]
        settings = uvicorn.Config(application(answers, self.token, self.port), log_level="error", lifespan="off")
        self.server = uvicorn.Server(settings)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._socket]})
        self.thread.start()

    def ask(
        self, path: str, *, method: str = "GET", body: bytes | None = None, token: bool = True, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=300)
        cookie = {"Cookie": f"torchreel-{self.port}={self.token}"} if token else {}
        connection.request(method, path, body, {**cookie, **headers})
        response = connection.getresponse()
        data = response.read()
        kind = response.headers.get("content-type", "")
        return response.status, json.loads(data) if data and "json" in kind else data, dict(response.headers)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("web") / "run.reel"
    calls = [call("aten::linear", 2, call("aten::mm", 5, stack=STACK), stack=STACK), call("<b>&\x00", 3)]
    server = Served(Answers(torchreel.load(write_reel(path, Process({"main": calls})))))
    yield server
    server.close()


PATHS = ("/", "/page.js", "/page.css", "/api/about", "/api/tile/0/0", "/api/nothing", "/../../etc/passwd")


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(served: Served, path: str) -> None:
    for answer in (served.ask(path, token=False), served.ask(f"{path}?token=wrong", token=False)):
        assert answer[0] == 403 and list(answer[1]) == ["error"]
        assert "Set-Cookie" not in answer[2] and "set-cookie" not in answer[2]


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"])
def test_every_method_is_guarded(served: Served, method: str) -> None:
    for path in ("/", "/page.js", "/api/about", "/nothing"):
        status, _, headers = served.ask(path, method=method, token=False)
        assert status == 403 and "content-security-policy" in headers, path
    if method not in ("POST", "HEAD"):
        status, answer, headers = served.ask("/api/about", method=method)
        assert status == 405 and answer == {
            "error": f"/api/about is not asked by {method}: use GET, or POST for /api/sql."
        }
        assert headers["content-security-policy"].startswith("default-src 'none'")


def test_another_name_for_this_machine_is_refused(served: Served) -> None:
    """A page of an attacker's whose name leads here sends its own name."""
    assert served.ask("/api/about", Host="evil.example")[0] == 403
    assert served.ask("/api/about", Host=f"evil.example:{served.port}")[0] == 403
    assert served.ask("/api/about", Host=f"localhost:{served.port}")[0] == 200


def test_other_pages_may_not_send_anything(served: Served) -> None:
    body = json.dumps({"sql": "select 1"}).encode()
    assert served.ask("/api/sql", method="POST", body=body, Origin="http://evil.example")[0] == 403
    assert served.ask("/api/sql", method="POST", body=body, Origin="null")[0] == 403
    status, answer, _ = served.ask("/api/sql", method="POST", body=body, Origin=f"http://127.0.0.1:{served.port}")
    assert (status, answer) == (200, {"columns": ["1"], "rows": [[1]], "cut": False})


def test_every_answer_has_the_policy(served: Served) -> None:
    for path in ("/api/about", "/api/nothing", "/nothing"):
        headers = {name.lower(): value for name, value in served.ask(path)[2].items()}
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert not any(name.startswith("access-control") for name in headers)


def test_about_and_an_op(served: Served) -> None:
    status, about, _ = served.ask("/api/about")
    assert status == 200
    assert about["summary"]["ops"] == 3 and about["end"] == 10
    _, lanes, _ = served.ask("/api/lanes")
    assert lanes["lanes"] == [[0, 0, 0, False], [0, 0, 1, False]]
    assert lanes["labels"] == [["aten::linear", "op"], ["aten::mm", "op"], ["<b>&\x00", "op"]]
    _, op, _ = served.ask("/api/op/0/1")
    assert (op["name"], op["begin"], op["dur_ns"], op["parent_name"]) == ("aten::mm", 0, 5, "aten::linear")
    assert op["frames"] == [{"id": 0, "file": "/nowhere/train.py", "line": 3, "function": "main"}]
    assert served.ask("/api/like/0/1")[1] == {"calls": 1, "median_ns": 5}
    for path in ("op/0/99", "like/0/99", "op/7/1", "kernel/0/0"):
        status, answer, _ = served.ask(f"/api/{path}")
        assert status == 400 and answer["error"].startswith("There is no")


def test_the_next_call_of_a_lane(served: Served) -> None:
    def after(begin: int, by: int) -> object:
        return served.ask(f"/api/neighbour?lane=0&begin={begin}&by={by}")[1]

    assert after(0, 1) == {"process": 0, "id": 2, "kernel": False}
    assert after(10, -1) == {"process": 0, "id": 0, "kernel": False}
    assert after(0, -1) is None and after(10, 1) is None
    assert served.ask("/api/neighbour?lane=9&begin=0&by=1")[0] == 400


def test_the_numbers_are_those_of_the_report(served: Served) -> None:
    from torchreel.analyze import averages

    reel = served.ask("/api/about")[1]["reel"]
    _, found, _ = served.ask("/api/averages?by=name&sort=self")
    assert found["rows"] == averages(torchreel.load(reel)).to_pylist()


BAD = (
    "/api/tile/99/0",
    "/api/tile/0/999999999999",
    "/api/op/0/77",
    "/api/averages?by=colour",
    "/api/averages?limit=-1",
    "/api/averages?sort=beauty",
    "/api/area?begin=x",
    "/api/area?begin=5&end=3",
    "/api/search",
    "/api/search?q=" + "x" * 300,
    "/api/source?file=/etc/passwd",
    "/api/source?file=/nowhere/train.py&process=x",
    "/api/source?file=/nowhere/train.py&process=1",
    "/api/source/77",
    "/api/source/1/0",
    "/api/source/0/999999999999999999",
    "/api/diff",
)


@pytest.mark.parametrize("path", BAD)
def test_wrong_questions_are_a_sentence(served: Served, path: str) -> None:
    status, answer, _ = served.ask(path)
    assert status == 400 and answer["error"].endswith((".", "'"))
    assert "Traceback" not in answer["error"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"sql": 3}', b'{"sql": "' + b"x" * 20_000 + b'"}', b"[" * 100_000]
)
def test_wrong_statements_are_a_sentence(served: Served, body: bytes) -> None:
    status, answer, _ = served.ask("/api/sql", method="POST", body=body)
    assert status == 400 and answer["error"]


def test_what_is_not_there(served: Served) -> None:
    assert served.ask("/api/../answers.py")[0] == 404
    assert served.ask("/api/%2e%2e/answers.py")[0] == 404
    assert served.ask("/favicon.ico")[0] == 404
    assert served.ask("/api/about", method="POST", body=b"")[0] == 404


def test_a_source_is_only_that_of_a_file_that_a_frame_names(served: Served) -> None:
    by_file, by_frame, by_both = (
        served.ask(f"/api/{path}")[1] for path in ("source?file=/nowhere/train.py", "source/0", "source/0/0")
    )
    assert (by_file["text"], by_file["why"]) == (None, "not on this machine: line numbers only")
    assert by_frame == by_both == {**by_file, "process": 0, "frame": 0, "line": 3, "function": "main"}
    assert served.ask("/api/source//etc/passwd")[0] == 404
    assert served.ask("/api/source/0/../../train.py")[0] == 404
