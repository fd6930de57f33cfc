"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests import limits, seeds, skipped

# Before torch is loaded. Its threads would else turn on the spot while they wait for each other, and take the cores
# from the other tests: more than twice the CPU time of a training step on a loaded machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The files of tests, whose asserts pytest rewrites, are compiled once and not by each run and process, also where
# PYTHONDONTWRITEBYTECODE is set: two fifths of the time of collecting. What tests import, they decide themselves.
_compiled_is_kept = not sys.dont_write_bytecode
sys.dont_write_bytecode = False

FUNCTIONS_OF_TORCHSCRIPT = (
    "aten::_unwrap_optional",
    "aten::has_torch_function",
    "aten::is_scripting",
    "aten::manual_seed",
    "aten::wait",
    "prim::awaitable_nowait",
    "prim::awaitable_wait",
)
"""They live as long as torch does, and stand in no list but the table itself."""
NAMESPACES_OF_TORCH = ("aten", "prim", "prims", "quantized", "onednn", "mkldnn", "mkl", "inductor", "profiler")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has its background programs, and all that they start, ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for plugin in (limits, seeds, skipped):
        config.pluginmanager.register(plugin)


def pytest_collection_finish() -> None:
    """What torch and the tests' files hold stays: whoever looks through all objects sees what came after it alone.

    Each gc.collect(), and each recording that asks which tensors live, would else look at 800,000 of them.
    """
    sys.dont_write_bytecode = not _compiled_is_kept
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def flags_of_torch_can_be_set() -> None:
    """torch's own testing package forbids it for good when some test imports it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch.backends stands in for the module whose flag counts.
        torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
        assert not torch.backends.flags_frozen()


@pytest.fixture(autouse=True)
def freed_ops_are_no_builtins() -> None:
    """TorchScript knows ops by their address, also after they were freed: any other object may stand there by now."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    builtins = torch.jit._builtins
    table = builtins._get_builtin_table()
    if not _kept:
        _kept.update((id(function), function) for function, _ in builtins._builtin_ops)
    for address in table.keys() - _kept.keys():
        space, _, name = table[address].partition("::")
        packet = vars(vars(torch.ops).get(space, object)).get(name)
        if id(getattr(packet, "_op", None)) == address:
            if space in NAMESPACES_OF_TORCH:
                _kept[address] = packet._op
        elif table[address] not in FUNCTIONS_OF_TORCHSCRIPT and not _is_listed(builtins, address):
            del table[address]


def _is_listed(builtins: Any, address: int) -> bool:
    return any(id(function) == address for function, _ in builtins._builtin_ops)


_kept: dict[int, object] = {}
"""Functions and ops of torch's own by their address: as they are kept alive, they need not be looked at again."""


@pytest.fixture(autouse=True)
def nothing_left_recording() -> Iterator[None]:
    """A test that leaves the recorder on would spoil those after it, and hide what it broke."""
    yield
    core = sys.modules.get("torchreel._core")
    assert core is None or not core.recording(), "this test left the recorder on"
