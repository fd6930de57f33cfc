"""The language of a file, by its name."""

from __future__ import annotations

PYTHON = "python"
CPP = ("c++", "cuda")

_BY_ENDING = {
    ".py": PYTHON,
    ".pyi": PYTHON,
    ".pyw": PYTHON,
    ".c": "c++",
    ".cc": "c++",
    ".cpp": "c++",
    ".cxx": "c++",
    ".h": "c++",
    ".hh": "c++",
    ".hpp": "c++",
    ".hxx": "c++",
    ".inc": "c++",
    ".inl": "c++",
    ".ipp": "c++",
    ".mm": "c++",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".hip": "cuda",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".md": "markdown",
    ".markdown": "markdown",
    ".rst": "rst",
    ".cmake": "cmake",
    ".toml": "toml",
    ".cfg": "ini",
    ".ini": "ini",
    ".json": "json",
    ".txt": "text",
    ".sh": "shell",
    ".bash": "shell",
    ".mk": "make",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".js": "javascript",
    ".css": "css",
    ".html": "html",
    ".bzl": "starlark",
    ".proto": "protobuf",
    ".fbs": "flatbuffers",
}
_BY_NAME = {
    "CMakeLists.txt": "cmake",
    "Makefile": "make",
    "Dockerfile": "docker",
    "BUILD": "starlark",
    "BUILD.bazel": "starlark",
    "WORKSPACE": "starlark",
    "LICENSE": "text",
    "NOTICE": "text",
    "README": "text",
}


def language_of(path: str) -> str | None:
    """The language of a file; None for one that is no source: the atlas leaves it out."""
    name = path.rpartition("/")[2]
    if name in _BY_NAME:
        return _BY_NAME[name]
    stem, dot, ending = name.rpartition(".")
    if not stem or not dot:  # `.py` alone is a hidden file without an ending
        return None
    ending = ending.lower()
    if ending == "in":  # templates: version.h.in
        return language_of(stem)
    return _BY_ENDING.get(f".{ending}")
