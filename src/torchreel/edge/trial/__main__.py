"""The process in which files are tried: python -m torchreel.edge.trial, with requests on its standard input.

A request and an answer are a line of JSON each. {"load": path, "threads": 2} loads a model and runs it, if the file
says on what; {"run": path, "tensors": file} runs it on tensors. The answer has "tried", the kinds of inputs that it
ran on, or "error", what was raised. The process ends with its input.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, TextIO

import torch

from torchreel.edge.example_inputs import declared_inputs
from torchreel.edge.formats.adapter import Deployed
from torchreel.edge.formats.formats import adapter_for, load
from torchreel.edge.trial.kinds import kind_of, namespaces

_KEPT = 2
"""As many models as `torchreel edge --compare` has."""


def _limit_memory() -> None:
    """Beside what torch has mapped, half of the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped = pages * os.sysconf("SC_PAGE_SIZE")
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    resource.setrlimit(resource.RLIMIT_AS, (mapped + room, mapped + room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Trials:
    def __init__(self) -> None:
        self._models: dict[str, Deployed] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(request["threads"])
        try:
            return {"tried": self._load(request["load"]) if "load" in request else self._run(request)}
        except Exception as error:
            return {"error": str(error), "class": type(error).__name__, "namespaces": sorted(namespaces())}

    def _load(self, path: str) -> list[str]:
        self._models.pop(path, None)
        while len(self._models) >= _KEPT:
            del self._models[next(iter(self._models))]
        deployed = load(path, check=False)
        adapter_for(deployed.module)
        self._models[path] = deployed
        return _run_declared(Path(path), deployed)

    def _run(self, request: dict[str, Any]) -> list[str]:
        if request["run"] not in self._models:
            self._load(request["run"])
        tensors = torch.load(request["tensors"], weights_only=True)
        with torch.inference_mode():
            self._models[request["run"]].run(tensors)
        return [kind_of(tensors)]


def _run_declared(path: Path, deployed: Deployed) -> list[str]:
    """Run the model on such inputs as its file declares, if it does. What it raises then is of no interest."""
    with contextlib.suppress(Exception), torch.inference_mode():
        tensors = declared_inputs(path, deployed.inputs)
        deployed.run(tensors)
        return [kind_of(tensors)]
    return []


def _answers() -> TextIO:
    """Standard output, for answers alone: what a model prints there goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def main() -> None:
    answers = _answers()
    _limit_memory()
    trials = Trials()
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        # If the parent is gone, the child ends itself, whatever the file makes it do.
        faulthandler.dump_traceback_later(request["seconds"] + 60, exit=True)
        answer = trials.answer(request)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
