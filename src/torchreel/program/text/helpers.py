"""Functions that the emitted program defines at its top, those of them that it needs.

Each is short, and says what torch itself has no name for. Nothing of torchreel is imported by the emitted program.
"""

from __future__ import annotations

from collections.abc import Iterator

_BELOW_AUTOGRAD = '''\
def below_autograd(function):
    """The ops are those that autograd called, for forward and backward: it must not hear of them again."""

    def called(*args):
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return function(*args)

    return called
'''

_CHECK = '''\
def check(found, recorded, where):
    """The function's Python code saw this number, and went on as it did because of it."""
    if repr(found) != repr(recorded):  # 0.0 and -0.0 are two numbers
        raise RuntimeError(
            f"{where}: the number that left for Python is {found!r}, and was {recorded!r} when this was recorded, "
            "so the ops that follow are not those that the function would run: record it again."
        )
    return found
'''

_SAME_SIZE = '''\
def same_size(tensor, sizes, where):
    """The size of this tensor depends on values, and the ops that follow have it in their arguments."""
    if list(tensor.shape) != sizes:
        raise RuntimeError(f"{where}: the result has the size {list(tensor.shape)}, not the recorded {sizes}.")
'''

_NUMBER = '''\
def number_of(value):
    """The tensor that torch makes of a Python number: unlike any other, it does not widen the dtypes it meets."""
    dtype = torch.complex128 if isinstance(value, complex) else torch.float64
    nothing = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    # Autograd, let in for this: it keeps the tensor for backward.
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), nothing), torch.enable_grad():
        return (torch.ones((), dtype=dtype, requires_grad=True) * value).grad_fn._saved_other
'''

_WITHOUT_GRADIENTS = '''\
def without_gradients(*owners):
    """The function adds to a gradient that is there already, and there was none when this was recorded."""
    if any(owner.grad is not None for owner in owners):
        raise RuntimeError("A tensor of the state has a gradient, and had none when this was recorded: clear it first.")
'''

_UNPACKED = """\
def unpacked(text):
    return torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(text))), dtype=torch.uint8)
"""

_CONSTANT = '''\
def constant_of(text, dtype, sizes, strides, offset=0, bytes=0, device="cpu"):
    """A tensor that the function used and did not make; its elements are packed in the order of indices."""
    end = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    whole = torch.zeros(max(end * dtype.itemsize, bytes), dtype=torch.uint8, device=device)
    whole = whole[: len(whole) // dtype.itemsize * dtype.itemsize].view(dtype)
    return whole.as_strided(sizes, strides, offset).copy_(unpacked(text).view(dtype).view(sizes))
'''

_GENERATOR = '''\
def generator_in(device, state):
    """A random generator of the function's own, in the state that it had."""
    return torch.Generator(device).set_state(unpacked(state))
'''

_OPAQUE = '''\
def opaque(what, where):
    """A region that torch compiled: what it does was not recorded."""
    raise RuntimeError(f"{where}: {what} was compiled, so its ops are not here: record it without torch.compile.")
'''

_SEEN = '''\
def seen(tensor, dtype_number, digest, where):
    """The function's Python code saw all of this tensor, and went on as it did because of it."""
    dense = tensor.resolve_conj().resolve_neg().contiguous()
    seed = hashed(struct.pack(f"<{dense.dim()}q", *dense.shape), dtype_number)
    if hashed(dense.reshape(-1).view(torch.uint8).numpy().tobytes(), seed) != digest:
        raise RuntimeError(
            f"{where}: the values that left for Python are not those of when this was recorded, "
            "so the ops that follow are not those that the function would run: record it again."
        )
'''

_HASHED = '''\
def hashed(content, seed):
    """The hash that tapes keep of tensors."""

    def fold(a, b):
        product = a * b
        return (product ^ product >> 64) & 0xFFFFFFFFFFFFFFFF

    mix = 0x9FB21C651E98DF25
    a, b = seed ^ mix, (seed + len(content) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    whole = len(content) // 16 * 16
    for left, right in struct.iter_unpack("<QQ", content[:whole]):
        a, b = fold(a ^ left, 0xA0761D6478BD642F), fold(b ^ right, 0xE7037ED1A0B428DB)
    left, right = struct.unpack("<QQ", content[whole:].ljust(16, b"\\0"))
    a, b = fold(a ^ left, mix), fold(b ^ right, mix)
    return fold(a ^ ((b << 1 | b >> 63) & 0xFFFFFFFFFFFFFFFF), mix) >> 1
'''

_HELPERS = {
    "below_autograd": _BELOW_AUTOGRAD,
    "check": _CHECK,
    "same_size": _SAME_SIZE,
    "number_of": _NUMBER,
    "without_gradients": _WITHOUT_GRADIENTS,
    "unpacked": _UNPACKED,
    "constant_of": _CONSTANT,
    "generator_in": _GENERATOR,
    "opaque": _OPAQUE,
    "hashed": _HASHED,
    "seen": _SEEN,
}
_NEEDS = {"constant_of": {"unpacked"}, "generator_in": {"unpacked"}, "seen": {"hashed"}}

# What must not be the name of a slot.
NAMES = (
    *_HELPERS,
    *("torch", "base64", "struct", "zlib", "run", "inputs", "state", "objects", "_"),
)


def imports(used: set[str]) -> Iterator[str]:
    """The imports that these helpers need, and torch."""
    needed = _with_needs(used)
    modules = [*(["base64", "zlib"] if "unpacked" in needed else []), *(["struct"] if "hashed" in needed else [])]
    yield from (f"import {module}" for module in sorted(modules))
    yield from ([""] if modules else [])
    yield "import torch"


def definitions(used: set[str]) -> Iterator[str]:
    """The definitions of these helpers, and of those that they need."""
    needed = _with_needs(used)
    for name, text in _HELPERS.items():
        if name in needed:
            yield from ("", "", *text.rstrip("\n").splitlines())


def _with_needs(used: set[str]) -> set[str]:
    return used.union(*(_NEEDS.get(name, set()) for name in used))
