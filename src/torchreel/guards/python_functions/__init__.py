"""C functions of Python itself that are known: what they read, whether they change anything, and what they make.

This is a trusted base: a function that is not here is not known, and a call of it makes a function run eagerly. Each is
matched by the object itself. A rule looks at all arguments, by position and by keyword, callbacks included.

| file | is |
|---|---|
| `table.py` | the tables, and how a rule gets into them |
| `arguments.py` | what C code may do with its arguments |
| `functions.py`, `classes.py`, `methods.py`, `object_methods.py`, `caches.py` | the rules |
"""

from torchreel.guards.python_functions import classes, functions, methods, object_methods
from torchreel.guards.python_functions.caches import rule_of_object
from torchreel.guards.python_functions.table import CLASSES, FUNCTIONS, METHODS

__all__ = ["CLASSES", "FUNCTIONS", "METHODS", "classes", "functions", "methods", "object_methods", "rule_of_object"]
