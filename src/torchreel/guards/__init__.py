"""Guards on Python: a call is replayed only if everything that Python could do otherwise is known to be the same.

While a call is recorded, `FollowedCall` follows the Python that really runs. The call begins with known objects: the
function and its arguments. Each opcode reads known objects, and its answer is guarded or follows from its operands. So
the first thing that could differ in another call is in a guard. What no rule knows is a reason to run eagerly.

| file | is |
|---|---|
| `followed_call.py` | one call, from its first opcode to the verdict: guards, or the reason to run eagerly |
| `ending.py` | what the call leaves when it ends, and whether a replay would leave the same |
| `opcodes.py` | the rule of each opcode: where its operands lie, and which operation it is |
| `operations.py` | what an operation reads and writes, by an opcode or by a function of C |
| `attributes.py` | how Python finds an attribute, and what setting one means |
| `calls.py` | what a call of an object is: Python, which is followed, or C, which must be known |
| `python_functions/`, `torch_functions.py` | C functions that are known: the trusted base |
| `checks.py` | guards in the making: each with the object that it reads, and why that object is alive |
| `writes.py` | writes that outlive a call, for a replay that does them again |
| `python_guards.py` | the guards of a recording: do they hold, and if not, what changed |
"""

from torchreel.guards.followed_call import FollowedCall

__all__ = ["FollowedCall"]
