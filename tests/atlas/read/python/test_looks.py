"""Calls worth a look: by what the imports say, not by their spelling."""

from __future__ import annotations

import pytest

from tests.atlas.read.python.reading import read


def looks(text: str) -> list[tuple[int, str]]:
    return [(look.line, look.what) for look in read(text).looks]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("eval(text)", "eval"),
        ("exec(f'{text}')", "exec"),
        ("compile(text, 'name', 'exec')", "compile"),
        ("import builtins\nbuiltins.eval(text)", "eval"),
        ("__import__(name)", "__import__"),
        ("import importlib\nimportlib.import_module(name)", "importlib.import_module"),
        ("import pickle\npickle.load(file)", "pickle.load"),
        ("import pickle as p\np.loads(data)", "pickle.loads"),
        ("from pickle import loads as unpack\nunpack(data)", "pickle.loads"),
        ("def f():\n    from pickle import Unpickler\n    Unpickler(file).load()", "pickle.Unpickler"),
        ("import marshal\nmarshal.loads(data)", "marshal.loads"),
        ("import torch\ntorch.load(path)", "torch.load"),
        ("import torch\ntorch.load(path, weights_only=False)", "torch.load"),
        ("import torch\ntorch.load(path, weights_only=flag)", "torch.load"),
        ("from torch.serialization import load\nload(path)", "torch.load"),
        ("import os\nos.system(command)", "os.system"),
        ("from os import popen\npopen(command)", "os.popen"),
        ("import subprocess\nsubprocess.run(command, shell=True)", "subprocess.run with a shell"),
        ("import subprocess\nsubprocess.Popen(command, shell=flag)", "subprocess.Popen with a shell"),
        ("import subprocess\nsubprocess.getoutput(command)", "subprocess.getoutput with a shell"),
        ("import yaml\nyaml.load(file)", "yaml.load"),
        ("import yaml\nyaml.load(file, Loader=yaml.Loader)", "yaml.load"),
        ("import yaml\nyaml.unsafe_load(file)", "yaml.unsafe_load"),
        ("class A(pickle.Pickler): ...\n@decorator(eval(text))\ndef f(): ...", "eval"),
    ],
)
def test_counts(text: str, what: str) -> None:
    assert [found for _, found in looks(text)] == [what]


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "import re\nre.compile(pattern)",
        "import torch\ntorch.compile(model)",
        "eval('1 + 1')",
        "def eval(x): ...\neval(text)",
        "def f(eval): return eval(text)",
        "import torch\ntorch.load(path, weights_only=True)",
        "import json\njson.load(file)",
        "import subprocess\nsubprocess.run(command)\nsubprocess.run(command, shell=False)",
        "import yaml\nyaml.load(file, Loader=yaml.SafeLoader)\nyaml.load(file, CSafeLoader)\nyaml.safe_load(file)",
        "import importlib\nimportlib.import_module('os.path')\n__import__('os')",
        "pickle.load(file)  # which pickle this is nobody says",
        "# eval(text)\n'pickle.loads(data)'",
        "import os\nos.system\nevaluate = eval",
    ],
)
def test_does_not_count(text: str) -> None:
    assert looks(text) == []


def test_they_come_by_line() -> None:
    text = "import os\ndef f():\n    os.system(a)\nos.popen(b)\nexec(c); eval(d)\n"
    assert looks(text) == [(3, "os.system"), (4, "os.popen"), (5, "exec"), (5, "eval")]


def test_a_file_with_an_error_is_looked_through_as_well() -> None:
    text = "import os\ndef f(:\n    os.system(a)\n    torch.load(b)\ndef g(): eval(c)\n"
    assert looks(text) == [(3, "os.system"), (5, "eval")]
