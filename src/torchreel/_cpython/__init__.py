"""All private CPython that Python code uses, and what follows from the version of CPython.

Another version of Python means: read `native/cpython/` and this folder. Everything here was seen in CPython 3.11.
`tests/test_layering.py` finds private CPython elsewhere.

| file | what is in it |
|---|---|
| `interpreter.py` | private parts of the standard library |
| `opcodes.py` | opcodes: which there are, how arguments are encoded, what code reads by name |
"""
