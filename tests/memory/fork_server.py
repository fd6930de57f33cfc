"""A process that has imported torch and done nothing with it: each line of its input is a script for a fork of it.

{"script": ..., "output": a file} comes in; the child's process id, and later its exit code, go out.
"""

from __future__ import annotations

import json
import os
import sys


def serve() -> str | None:
    """In a child: the script to run. In the server, at the end of its input: None."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            return request["script"]
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


if __name__ == "__main__":
    import pytest  # noqa: F401
    import torch._dynamo  # noqa: F401 - torch.optim imports it when it is first used, which takes seconds

    import torchreel.memory  # noqa: F401

    script = serve()
    if script is not None:
        exec(script, {"__name__": "__main__"})
