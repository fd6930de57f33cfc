"""Calls of a Python file that may execute what they are given."""

from __future__ import annotations

import ast
from collections.abc import Callable

from torchreel.atlas.read.python.nodes import argument, last_name

Test = Callable[[ast.Call], bool]

_SAFE_LOADERS = ("SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader")


def _always(call: ast.Call) -> bool:
    return True


def _of_dynamic_text(call: ast.Call) -> bool:
    return type(argument(call, 0, "name")) is not ast.Constant


def _with_a_shell(call: ast.Call) -> bool:
    shell = argument(call, -1, "shell")
    return shell is not None and not (type(shell) is ast.Constant and not shell.value)


def _of_more_than_weights(call: ast.Call) -> bool:
    only = argument(call, -1, "weights_only")
    return not (type(only) is ast.Constant and only.value is True)


def _with_an_unsafe_loader(call: ast.Call) -> bool:
    return last_name(argument(call, 1, "Loader")) not in _SAFE_LOADERS


_SHELLS = ("run", "call", "check_call", "check_output", "Popen")
_PICKLES = ("pickle", "_pickle", "cPickle", "cloudpickle", "dill")

LOOKS: dict[str, tuple[str, Test]] = {
    **{name: (name, _of_dynamic_text) for name in ("eval", "exec", "compile", "__import__")},
    **{f"builtins.{name}": (name, _of_dynamic_text) for name in ("eval", "exec", "compile", "__import__")},
    "importlib.import_module": ("importlib.import_module", _of_dynamic_text),
    "importlib.__import__": ("__import__", _of_dynamic_text),
    **{
        f"{module}.{name}": (f"{module}.{name}", _always)
        for module in _PICKLES
        for name in ("load", "loads", "Unpickler")
    },
    "marshal.load": ("marshal.load", _always),
    "marshal.loads": ("marshal.loads", _always),
    "torch.load": ("torch.load", _of_more_than_weights),
    "torch.serialization.load": ("torch.load", _of_more_than_weights),
    "os.system": ("os.system", _always),
    "os.popen": ("os.popen", _always),
    **{f"subprocess.{name}": (f"subprocess.{name} with a shell", _with_a_shell) for name in _SHELLS},
    "subprocess.getoutput": ("subprocess.getoutput with a shell", _always),
    "subprocess.getstatusoutput": ("subprocess.getstatusoutput with a shell", _always),
    "asyncio.create_subprocess_shell": ("asyncio.create_subprocess_shell", _always),
    "yaml.load": ("yaml.load", _with_an_unsafe_loader),
    "yaml.load_all": ("yaml.load_all", _with_an_unsafe_loader),
    "yaml.unsafe_load": ("yaml.unsafe_load", _always),
    "yaml.unsafe_load_all": ("yaml.unsafe_load_all", _always),
}
"""What is looked for, by the path of the function as imports say it: what it is called, and when it counts."""
