"""A process that has imported torch and torchreel and done nothing with them: each line of its input is a script for a
fork of it, which begins at once instead of after seconds of importing.

{"script", "arguments", "directory", "environment", "output", "errors"} comes in, the last two as paths of files; the
child's process id, and later its exit code, go out.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any


def serve() -> dict[str, Any] | None:
    """In a child: what to run. In the server, at the end of its input: None."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            return request
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def become(request: dict[str, Any]) -> None:
    """What a process started for this script would be."""
    for stream, path in ((1, request["output"]), (2, request["errors"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0)  # noqa: SIM115 - the server's has lines of requests in its buffer
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = ["-c", *request["arguments"]]
    sys.path[0] = ""


if __name__ == "__main__":
    import pytest  # noqa: F401
    import torch._dynamo  # noqa: F401 - torch.optim imports it when it is first used, which takes seconds

    import torchreel.memory  # noqa: F401

    # A child would look through all of it when it ends, and with that copy its memory: a second for each.
    gc.collect()
    gc.freeze()
    request = serve()
    if request is not None:
        become(request)
        exec(compile(request["script"], "<string>", "exec"), {"__name__": "__main__"})
