"""Calls of C++ that are worth a look."""

from __future__ import annotations

from tests.atlas.read.cpp.reading import read
from torchreel.atlas.model import Look


def test_calls() -> None:
    text = """\
        void f(const char* name) {
          system("ls");
          std::system(name);
          return ::execvp(name, args);
          auto pipe = popen(name, "r");
          dlopen(name, RTLD_NOW);
          dlopen("libcuda.so", RTLD_NOW);
        }
        """
    assert read(text).looks == [
        Look(2, "system"),
        Look(3, "system"),
        Look(4, "execvp"),
        Look(5, "popen"),
        Look(6, "dlopen"),
    ]


def test_what_only_looks_like_one() -> None:
    text = """\
        // system(x)
        #define RUN(x) system(x)
        int popen(const char* name);
        void f(Os os, Os* p) { os.system("x"); p->system("x"); Os::system("x"); popen("x"); }
        const char* s = "system(x)";
        int system_of(int x);
        """
    assert read(text).looks == []
