"""Programs that ask torch and its tensors for what can change between calls.

Each is made by a function without arguments, and gives a `World`: see lockstep.py. They are as odd as programs can be.
"""

# ruff: noqa  (no linter would have them as they are)
# mypy: ignore-errors

import collections, contextlib, functools, itertools, operator, types, warnings, weakref, copy, math, dataclasses
import torch
from torch.nn import functional as F
from tests.guards.lockstep import World

PROGRAMS = {}
P = PROGRAMS


def program(f):
    PROGRAMS[f.__name__] = f
    return f


class Box:
    def __init__(self, **kw):
        self.__dict__.update(kw)


def inplace(get, make_v, change, back):
    def make():
        box = Box(v=make_v())

        def fn(x):
            return get(box, x)

        return World(fn, lambda: change(box.v), lambda: back(box.v))

    return make


def mode(read, on, off):
    def make():
        def fn(x):
            return x * (2 if read() else 3)

        off()
        return World(fn, on, off)

    return make


B, C = torch.backends, torch._C
P["m_cudnn_sdp"] = mode(
    lambda: C._get_cudnn_sdp_enabled(), lambda: C._set_sdp_use_cudnn(False), lambda: C._set_sdp_use_cudnn(True)
)
P["m_flash"] = mode(
    lambda: C._get_flash_sdp_enabled(), lambda: C._set_sdp_use_flash(False), lambda: C._set_sdp_use_flash(True)
)
P["m_math"] = mode(
    lambda: C._get_math_sdp_enabled(), lambda: C._set_sdp_use_math(False), lambda: C._set_sdp_use_math(True)
)
P["m_mem"] = mode(
    lambda: C._get_mem_efficient_sdp_enabled(),
    lambda: C._set_sdp_use_mem_efficient(False),
    lambda: C._set_sdp_use_mem_efficient(True),
)
P["m_nnpack"] = mode(
    lambda: C._get_nnpack_enabled(), lambda: C._set_nnpack_enabled(False), lambda: C._set_nnpack_enabled(True)
)
P["m_bench"] = mode(
    lambda: C._get_cudnn_benchmark(), lambda: C._set_cudnn_benchmark(True), lambda: C._set_cudnn_benchmark(False)
)
P["m_cudnn_det"] = mode(
    lambda: C._get_cudnn_deterministic(),
    lambda: C._set_cudnn_deterministic(True),
    lambda: C._set_cudnn_deterministic(False),
)
P["m_cudnn_tf32"] = mode(
    lambda: C._get_cudnn_allow_tf32(), lambda: C._set_cudnn_allow_tf32(False), lambda: C._set_cudnn_allow_tf32(True)
)
P["m_cublas_tf32"] = mode(
    lambda: C._get_cublas_allow_tf32(), lambda: C._set_cublas_allow_tf32(True), lambda: C._set_cublas_allow_tf32(False)
)
P["m_cudnn"] = mode(
    lambda: C._get_cudnn_enabled(), lambda: C._set_cudnn_enabled(False), lambda: C._set_cudnn_enabled(True)
)
P["m_mkldnn"] = mode(
    lambda: C._get_mkldnn_enabled(), lambda: C._set_mkldnn_enabled(False), lambda: C._set_mkldnn_enabled(True)
)
P["m_matmul_high"] = mode(
    lambda: torch.get_float32_matmul_precision() == "high",
    lambda: torch.set_float32_matmul_precision("high"),
    lambda: torch.set_float32_matmul_precision("highest"),
)
P["m_matmul_med"] = mode(
    lambda: torch.get_float32_matmul_precision() == "medium",
    lambda: torch.set_float32_matmul_precision("medium"),
    lambda: torch.set_float32_matmul_precision("highest"),
)
P["m_multithread"] = mode(
    lambda: C._is_multithreading_enabled(),
    lambda: C._set_multithreading_enabled(False),
    lambda: C._set_multithreading_enabled(True),
)
P["m_viewreplay"] = mode(
    lambda: C._is_view_replay_enabled(),
    lambda: C._set_view_replay_enabled(True),
    lambda: C._set_view_replay_enabled(False),
)
P["m_autocast_cuda_dtype"] = mode(
    lambda: torch.get_autocast_dtype("cuda") is torch.bfloat16,
    lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    lambda: torch.set_autocast_dtype("cuda", torch.float16),
)
P["m_autocast_gpu_dtype"] = mode(
    lambda: torch.get_autocast_gpu_dtype() is torch.bfloat16,
    lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    lambda: torch.set_autocast_dtype("cuda", torch.float16),
)
P["m_autocast_cpu_dtype"] = mode(
    lambda: torch.get_autocast_dtype("cpu") is torch.float16,
    lambda: torch.set_autocast_dtype("cpu", torch.float16),
    lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
)
P["m_autocast_cuda_on"] = mode(
    lambda: torch.is_autocast_enabled("cuda"),
    lambda: torch.set_autocast_enabled("cuda", True),
    lambda: torch.set_autocast_enabled("cuda", False),
)
P["m_autocast_on"] = mode(
    lambda: torch.is_autocast_enabled("cpu"),
    lambda: torch.set_autocast_enabled("cpu", True),
    lambda: torch.set_autocast_enabled("cpu", False),
)
P["m_autocast_cache"] = mode(
    lambda: torch.is_autocast_cache_enabled(),
    lambda: torch.set_autocast_cache_enabled(False),
    lambda: torch.set_autocast_cache_enabled(True),
)
P["m_grad"] = mode(
    lambda: torch.is_grad_enabled(), lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)
)
P["m_dtype"] = mode(
    lambda: torch.get_default_dtype() is torch.float64,
    lambda: torch.set_default_dtype(torch.float64),
    lambda: torch.set_default_dtype(torch.float32),
)
P["m_threads"] = mode(
    lambda: torch.get_num_threads() == 1, lambda: torch.set_num_threads(1), lambda: torch.set_num_threads(2)
)
P["m_det"] = mode(
    lambda: torch.are_deterministic_algorithms_enabled(),
    lambda: torch.use_deterministic_algorithms(True),
    lambda: torch.use_deterministic_algorithms(False),
)
P["m_det_warn"] = mode(
    lambda: torch.is_deterministic_algorithms_warn_only_enabled(),
    lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    lambda: torch.use_deterministic_algorithms(False),
)
P["m_anomaly"] = mode(
    lambda: torch.is_anomaly_enabled(),
    lambda: torch.autograd.set_detect_anomaly(True),
    lambda: torch.autograd.set_detect_anomaly(False),
)
P["m_anomaly_nan"] = mode(
    lambda: torch.is_anomaly_check_nan_enabled(),
    lambda: torch.autograd.set_detect_anomaly(False, False),
    lambda: torch.autograd.set_detect_anomaly(False, True),
)

P["m_rng"] = mode(lambda: int(torch.get_rng_state()[0]) % 2, lambda: torch.manual_seed(3), lambda: torch.manual_seed(4))
P["m_seed"] = mode(lambda: torch.initial_seed() % 2, lambda: torch.manual_seed(3), lambda: torch.manual_seed(4))


@program
def aten_manual_seed():
    def fn(x):
        torch.ops.aten.manual_seed(7)
        return x * 2

    return World(fn, seen=lambda: torch.rand(1))


@program
def aten_append():
    l = [x for x in range(1)]

    def fn(x):
        torch.ops.aten.append(l, 3)
        return x * 2

    return World(fn, seen=lambda: list(l))


@program
def aten_print():
    def fn(x):
        torch._print("")
        return x * 2

    return World(fn)


@program
def aten_warn():
    def fn(x):
        torch.ops.aten.warn("x")
        return x * 2

    return World(fn)


@program
def q_scale():
    def fn(x):
        return x.dequantize() * x.q_scale()

    return World(fn, inputs=lambda t: (torch.quantize_per_tensor(torch.randn(3), 0.1 * (t + 1), 0, torch.qint8),))


@program
def q_outer():
    box = Box(q=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))

    def fn(x):
        return x * box.q.q_scale()

    def c():
        box.q = torch.quantize_per_tensor(torch.ones(3), 0.2, 0, torch.qint8)

    def b():
        box.q = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)

    return World(fn, c, b)


@program
def q_attr_ops():
    def fn(x):
        return x.dequantize() * 2

    return World(fn, inputs=lambda t: (torch.quantize_per_tensor(torch.randn(3), 0.1 * (t + 1), 0, torch.qint8),))


@program
def sparse_nnz():
    def fn(x):
        return x.to_dense() * x._nnz()

    return World(fn, inputs=lambda t: ((torch.arange(4) > t % 3).float().to_sparse(),))


@program
def sparse_coalesced():
    def fn(x):
        return x.to_dense() * (2 if x.is_coalesced() else 3)

    return World(
        fn,
        inputs=lambda t: (
            torch.eye(2).to_sparse() if t % 3 else torch.sparse_coo_tensor([[0, 0], [0, 1]], [1.0, 2.0], (2, 2)),
        ),
    )


@program
def same_size_outer():
    w = torch.ones(3)

    def fn(x):
        return x * (2 if x.is_same_size(w) else 3)

    return World(fn, lambda: w.resize_(2), lambda: w.resize_(3).fill_(1))


@program
def same_size_fn_outer():
    w = torch.ones(3)

    def fn(x):
        return x * (2 if torch.is_same_size(w, x) else 3)

    return World(fn, lambda: w.resize_(2), lambda: w.resize_(3).fill_(1))


@program
def aten_size_outer():
    w = torch.ones(3)

    def fn(x):
        return x * torch.ops.aten.sym_size.int(w, 0)

    return World(fn, lambda: w.resize_(2), lambda: w.resize_(3).fill_(1))


@program
def aten_dim_outer():
    w = torch.ones(3)

    def fn(x):
        return x * torch.ops.aten.numel(w)

    return World(fn, lambda: w.resize_(2), lambda: w.resize_(3).fill_(1))


@program
def aten_stride_outer():
    w = torch.ones(3, 3)

    def fn(x):
        return x * torch.ops.aten.sym_stride.int(w, 0)

    def flip():
        w.t_()

    return World(fn, flip, flip)


@program
def aten_is_contig():
    w = torch.ones(3, 3)
    w[0] = 2

    def fn(x):
        return x * (2 if torch.ops.aten.is_contiguous(w) else 3)

    def flip():
        w.t_()

    return World(fn, flip, flip)


@program
def equal_outer():
    w = torch.ones(3)

    def fn(x):
        return x * (2 if torch.equal(w, torch.ones(3)) else 3)

    return World(fn, lambda: w.add_(1), lambda: w.sub_(1))


@program
def allclose_outer():
    w = torch.ones(3)

    def fn(x):
        return x * (2 if torch.allclose(w, torch.ones(3)) else 3)

    return World(fn, lambda: w.add_(1), lambda: w.sub_(1))


@program
def tolist_outer():
    w = torch.ones(3)

    def fn(x):
        return x * sum(w.tolist())

    return World(fn, lambda: w.add_(1), lambda: w.sub_(1))


@program
def tolist_result():
    w = torch.ones(3)

    def fn(x):
        return (x * 2).tolist(), x.sum().item(), w.tolist()

    return World(fn, lambda: w.add_(1), lambda: w.sub_(1))


@program
def result_numbers_dict():
    def fn(x):
        return {"loss": x.sum().item(), "t": x * 2}

    return World(fn)


@program
def t_inplace_outer():
    w = torch.arange(6.0).view(2, 3)

    def fn(x):
        w.t_()
        return x * 2

    return World(fn, seen=lambda: w)


@program
def squeeze_inplace_arg():
    def fn(x):
        x.unsqueeze_(0)
        return x * 2

    return World(fn)


@program
def out_resize():
    w = torch.empty(0)

    def fn(x):
        torch.add(x, x, out=w)
        return w

    return World(fn, lambda: w.resize_(0), seen=lambda: w)


@program
def detach_inplace():
    def fn(x):
        y = x * 2
        y.detach_()
        return y

    return World(fn, inputs=lambda t: (torch.randn(3, requires_grad=True),))


@program
def detach_outer():
    p = torch.ones(3, requires_grad=True)
    q = [p * 2]

    def fn(x):
        q[0].detach_()
        return x * 2

    def c():
        q[0] = p * 2

    return World(fn, c, c, seen=lambda: q[0].requires_grad)


@program
def as_strided_offset():
    base = torch.arange(64.0)

    def fn(x):
        return x.as_strided((2,), (1,), 0)

    return World(fn, inputs=lambda t: (base[16 * (t % 3) :][:4],))


@program
def view_offset():
    base = torch.arange(64.0)

    def fn(x):
        return x * x[1:3].storage_offset()

    return World(fn, inputs=lambda t: (base[16 * (t % 3) :][:2].expand(2),))


@program
def view_offset2():
    base = torch.arange(64.0)

    def fn(x):
        return x * x[1:].storage_offset()

    return World(fn, inputs=lambda t: (base[16 * (t % 3) :][:2],))


@program
def view_offset_outer():
    base = torch.arange(64.0)
    box = Box(w=base[0:3])

    def fn(x):
        return x * box.w[1:].storage_offset()

    def c():
        box.w = base[16:19]

    def b():
        box.w = base[0:3]

    return World(fn, c, b)


@program
def base_attr():
    base = torch.arange(64.0)

    def fn(x):
        y = x[1:]
        return x * (2 if y._base is x else 3)

    return World(fn, inputs=lambda t: (torch.randn(3) if t % 3 else base[0:3],))


@program
def base_attr_shape():
    def fn(x):
        y = x[1:]
        return x * y._base.numel()

    return World(fn, inputs=lambda t: (torch.randn(16 * (t % 3 + 1))[:3],))


@program
def grad_fn_name():
    box = Box(w=torch.ones(3, requires_grad=True))
    box.a, box.b = box.w * 2, box.w + 2
    box.v = box.a

    def fn(x):
        return x * len(box.v.grad_fn.name())

    def c():
        box.v = box.b

    def b():
        box.v = box.a

    return World(fn, c, b)


@program
def fresh_set_frozenset():
    def fn(x):
        return frozenset({x * 2})

    return World(fn)


@program
def result_slice():
    def fn(x):
        return slice(x * 2, None)

    return World(fn)


@dataclasses.dataclass
class Out:
    a: object
    b: object = None


@program
def result_dataclass():
    def fn(x):
        return Out(x * 2, [x * 3])

    return World(fn)


@program
def result_namedtuple():
    Pt = collections.namedtuple("Pt", "a b")

    def fn(x):
        return Pt(x * 2, [x * 3])

    return World(fn)


@program
def result_slots():
    class S:
        __slots__ = ("a", "b")

    def fn(x):
        s = S()
        s.a = x * 2
        s.b = 3
        return s

    w = World(fn)
    return World(lambda x: (lambda s: (s.a, s.b))(fn(x)))


@program
def result_ordered_default():
    def fn(x):
        d = collections.OrderedDict()
        d["a"] = x * 2
        return d

    return World(fn)


@program
def result_default():
    def fn(x):
        d = collections.defaultdict(list)
        d["a"].append(x * 2)
        return d

    return World(fn)


@program
def result_exc():
    def fn(x):
        return ValueError(x * 2)

    return World(fn)


@program
def result_outer_alias():
    w = torch.ones(3)
    kept = []

    def fn(x):
        return w.view(3, 1)

    return World(fn, lambda: w.add_(1), lambda: w.sub_(1))


@program
def acc_hook_inside():
    m = torch.nn.Linear(3, 1)
    torch.manual_seed(0)
    with torch.no_grad():
        m.weight.fill_(1)
        m.bias.zero_()
    log = []
    node = [None, None]

    def fn(x):
        m.weight.grad = None
        m.bias.grad = None
        m(x).sum().backward()
        return m.weight.grad.clone()

    def c():
        node[0] = torch.autograd.graph.get_gradient_edge(m.weight).node
        node[1] = node[0].register_hook(lambda *a: log.append(1))

    def b():
        node[1].remove()

    return World(fn, c, b, seen=lambda: len(log))


@program
def acc_prehook_inside():
    m = torch.nn.Linear(3, 1)
    with torch.no_grad():
        m.weight.fill_(1)
        m.bias.zero_()
    node = [None, None]

    def fn(x):
        m.weight.grad = None
        m.bias.grad = None
        m(x).sum().backward()
        return m.weight.grad.clone()

    def c():
        node[0] = torch.autograd.graph.get_gradient_edge(m.weight).node
        node[1] = node[0].register_prehook(lambda g: (g[0] * 2,))

    def b():
        node[1].remove()

    return World(fn, c, b)


@program
def post_acc_hook():
    m = torch.nn.Linear(3, 1)
    with torch.no_grad():
        m.weight.fill_(1)
        m.bias.zero_()
    h = []

    def fn(x):
        m.weight.grad = None
        m.bias.grad = None
        m(x).sum().backward()
        return m.weight.grad.clone()

    def c():
        h.append(m.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(3)))

    def b():
        h.pop().remove()

    return World(fn, c, b)


@program
def tensor_hook_added():
    m = torch.nn.Linear(3, 1)
    with torch.no_grad():
        m.weight.fill_(1)
        m.bias.zero_()
    h = []

    def fn(x):
        m.weight.grad = None
        m.bias.grad = None
        m(x).sum().backward()
        return m.weight.grad.clone()

    def c():
        h.append(m.weight.register_hook(lambda g: g * 3))

    def b():
        h.pop().remove()

    return World(fn, c, b)


@program
def saved_hooks():
    w = torch.ones(3, requires_grad=True)
    log = []
    cm = []

    def fn(x):
        return (w * x).sum()

    def c():
        cm.append(torch.autograd.graph.saved_tensors_hooks(lambda t: (log.append(1), t)[1], lambda t: t))
        cm[-1].__enter__()

    def b():
        cm.pop().__exit__(None, None, None)

    return World(fn, c, b, seen=lambda: len(log))


class Mul(torch.autograd.Function):
    k = 2

    @staticmethod
    def forward(ctx, x, box):
        ctx.box = box
        ctx.save_for_backward(x)
        return x * box.k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.box.b, None


@program
def func_state_inside():
    box = Box(k=2, b=3)

    def fn(x):
        y = Mul.apply(x, box)
        (g,) = torch.autograd.grad(y.sum(), x)
        return y.detach(), g

    def c():
        box.b = 5

    def b():
        box.b = 3

    return World(fn, c, b, inputs=lambda t: (torch.randn(3, requires_grad=True),))


@program
def func_state_forward():
    box = Box(k=2, b=3)

    def fn(x):
        return Mul.apply(x, box)

    def c():
        box.k = 5

    def b():
        box.k = 2

    return World(fn, c, b, inputs=lambda t: (torch.randn(3, requires_grad=True),))


@program
def func_state_outside():
    box = Box(k=2, b=3)
    leaf = torch.ones(3, requires_grad=True)

    def fn(x):
        return Mul.apply(leaf, box) * x

    def g():
        leaf.grad = None
        return None

    def c():
        box.b = 5

    def b():
        box.b = 3

    import torchreel

    state = {}

    def seen():
        return None

    return World(fn, c, b)


@program
def func_attr_needs():
    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.n = ctx.needs_input_grad
            return x * w * (2 if ctx.needs_input_grad[1] else 3)

        @staticmethod
        def backward(ctx, g):
            return g, g

    w = torch.ones(3, requires_grad=True)

    def fn(x):
        return Fn.apply(x, w)

    return World(fn, lambda: w.requires_grad_(False), lambda: w.requires_grad_(True))


@program
def func_class_patched():
    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    f0 = Fn.__dict__["forward"]

    def fn(x):
        return Fn.apply(x)

    def c():
        Fn.forward = staticmethod(lambda ctx, x: x * 5)

    def b():
        Fn.forward = f0

    return World(fn, c, b)


@program
def script_fn():
    s = torch.jit.script(_scripted)

    def fn(x):
        return s(x)

    return World(fn)


def _scripted(x):
    if bool(x.sum() > 0):
        return x * 2
    return x * 3


@program
def script_item():
    s = torch.jit.script(_scripted2)

    def fn(x):
        return s(x)

    return World(fn)


def _scripted2(x):
    n = float(x[0])
    return x * n


@program
def script_len():
    s = torch.jit.script(_scripted3)
    l = [torch.ones(3)]

    def fn(x):
        return x * s(l)

    return World(fn, lambda: l.append(torch.ones(3)), lambda: l.pop())


def _scripted3(l: "List[torch.Tensor]"):
    return len(l)


from typing import List


@program
def script_mutates():
    s = torch.jit.script(_scripted4)

    def fn(x):
        return s(x)

    return World(fn)


def _scripted4(x):
    print("")
    return x * 2


@program
def parse_to():
    r = torch.ones(3)

    def fn(x):
        return x * (2 if torch._C._nn._parse_to(r)[1] is torch.float32 else 3)

    def c():
        r.data = r.data.double()

    def b():
        r.data = r.data.float()

    return World(fn, c, b)


@program
def result_type_outer():
    r = torch.ones(3)

    def fn(x):
        return x * (2 if torch.result_type(r, 1) is torch.float32 else 3)

    def c():
        r.data = r.data.double()

    def b():
        r.data = r.data.float()

    return World(fn, c, b)


@program
def dlpack():
    w = torch.ones(3)

    def fn(x):
        return x * torch.from_dlpack(w)

    return World(fn, lambda: w.add_(1), lambda: w.sub_(1))


@program
def numpy_fresh():
    def fn(x):
        return x * float((x * 2).numpy().sum())

    return World(fn)


@program
def array_fresh():
    def fn(x):
        return torch.tensor((x * 2).detach().numpy())

    return World(fn)


@program
def generator_arg():
    g = torch.Generator()
    g.manual_seed(1)

    def fn(x):
        return x + torch.rand(3, generator=g)

    return World(fn, lambda: g.manual_seed(5), lambda: g.manual_seed(1))


@program
def generator_state():
    g = torch.Generator()
    g.manual_seed(1)

    def fn(x):
        return x * (g.initial_seed() % 7)

    return World(fn, lambda: g.manual_seed(5), lambda: g.manual_seed(1))


@program
def print_opts():
    def fn(x):
        return x * len(repr(x.sum() * 0))

    return World(fn, lambda: torch.set_printoptions(precision=8), lambda: torch.set_printoptions(precision=4))


@program
def is_storage():
    s = torch.ones(3).untyped_storage()
    box = Box(v=s)

    def fn(x):
        return x * (2 if torch.is_storage(box.v) else 3)

    def c():
        box.v = 5

    def b():
        box.v = s

    return World(fn, c, b)


@program
def save_buf():
    import io

    buf = io.BytesIO()

    def fn(x):
        torch.save(x, buf)
        return x * 2

    return World(fn, seen=lambda: len(buf.getvalue()))


@program
def stack_list_outer():
    l = [torch.ones(3)]

    def fn(x):
        return torch.stack(l) * x

    return World(fn, lambda: l.append(torch.ones(3) * 2), lambda: l.pop())


@program
def foreach_outer():
    l = [torch.ones(3)]

    def fn(x):
        torch._foreach_add_(l, 1.0)
        return x * 2

    return World(fn, lambda: l.append(torch.ones(3) * 2), lambda: l.pop(), seen=lambda: list(l))


@program
def retain_grad():
    def fn(x):
        y = x * 2
        y.retain_grad()
        y.sum().backward()
        g = y.grad
        return g

    return World(fn, inputs=lambda t: (torch.randn(3, requires_grad=True),))


@program
def retain_graph_twice():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        w.grad = None
        y = (w * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        return w.grad.clone()

    return World(fn, lambda: w.requires_grad_(False), lambda: w.requires_grad_(True))


@program
def grad_cleared():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        (w * x).sum().backward()
        return w.grad.clone()

    def c():
        w.grad = None

    def b():
        w.grad = torch.ones(3)

    return World(fn, c, b, seen=lambda: w.grad)


@program
def grad_identity():
    w = torch.ones(3, requires_grad=True)
    kept = []

    def fn(x):
        (w * x).sum().backward()
        return x * 2

    def c():
        kept.append(w.grad)
        w.grad = None

    return World(fn, c, c, seen=lambda: (w.grad, list(kept)))


@program
def leaf_question():
    box = Box(v=torch.ones(3))

    def fn(x):
        return (
            x * (2 if box.v.is_leaf else 3) * (5 if box.v.grad_fn is None else 7) * (11 if box.v.requires_grad else 13)
        )

    def c():
        box.v.requires_grad_(True)

    def b():
        box.v = torch.ones(3)

    return World(fn, c, b)


@program
def arg_history():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        return x.detach() * (2 if x.is_leaf else 3)

    return World(fn, inputs=lambda t: (torch.randn(3, requires_grad=True) if t % 3 else w * 2,))


@program
def arg_grad():
    def fn(x):
        return x.detach() * (2 if x.grad is None else 3)

    def inputs(t):
        x = torch.randn(3, requires_grad=True)
        if t % 3 == 0:
            x.grad = torch.ones(3)
        return (x,)

    return World(fn, inputs=inputs)


@program
def arg_attr():
    def fn(x):
        return x * getattr(x, "tag", 1)

    def inputs(t):
        x = torch.randn(3)
        if t % 3 == 0:
            x.tag = t
        return (x,)

    return World(fn, inputs=inputs)


@program
def param_attr():
    w = torch.ones(3)

    def fn(x):
        return x * getattr(w, "tag", 1)

    def c():
        w.tag = 3

    def b():
        del w.tag

    return World(fn, c, b)


@program
def inference_tensor():
    box = Box(v=torch.ones(3))

    def fn(x):
        return x * (2 if box.v.is_inference() else 3)

    def c():
        with torch.inference_mode():
            box.v = torch.ones(3)

    def b():
        box.v = torch.ones(3)

    return World(fn, c, b)


@program
def data_swap():
    w = torch.nn.Parameter(torch.ones(3))

    def fn(x):
        return x * w.data * w.numel()

    def c():
        w.data = torch.full((3,), 5.0)

    def b():
        w.data = torch.ones(3)

    return World(fn, c, b)


@program
def torch_func_mode():
    from torch.overrides import TorchFunctionMode

    class M(TorchFunctionMode):
        def __torch_function__(self, f, t, a=(), k=None):
            return f(*a, **(k or {}))

    m = M()

    def fn(x):
        return x * 2

    return World(fn, lambda: m.__enter__(), lambda: m.__exit__(None, None, None))


@program
def aten_overload_list():
    l = [torch.ones(3)]

    def fn(x):
        return torch.ops.aten.cat.default(l) * 2

    return World(fn, lambda: l.append(torch.ones(3) * 2), lambda: l.pop())


@program
def aten_overload_sizes():
    l = [3, 1]

    def fn(x):
        return torch.ops.aten.view.default(x, l)

    return World(fn, lambda: l.reverse(), lambda: l.reverse())


@program
def aten_overload_grad():
    w = torch.ones(3, requires_grad=True)

    def fn(x):
        return torch.ops.aten.mul.Tensor(x, w)

    return World(fn, lambda: w.requires_grad_(False), lambda: w.requires_grad_(True))


@program
def aten_packet_sort():
    l = [3, 1, 2]

    def fn(x):
        torch.ops.aten.sort(l)
        return x * 2

    return World(fn, lambda: l.reverse(), lambda: l.reverse(), seen=lambda: list(l))


@program
def aten_set_overload():
    w = torch.ones(3)

    def fn(x):
        torch.ops.aten.set_.source_Tensor(w, x)
        return w * 2

    return World(fn, seen=lambda: w)


@program
def fresh_frozenset2():
    def fn(x):
        return frozenset((x * 2,))

    return World(fn)


@program
def custom_op_state():
    box = Box(k=2)
    lib = torch.library.Library("guards_tests_%d" % id(box), "DEF")
    lib.define("foo(Tensor x) -> Tensor")
    lib.impl("foo", lambda x: x * box.k, "CompositeExplicitAutograd")
    op = getattr(torch.ops, "guards_tests_%d" % id(box)).foo

    def fn(x):
        return op.default(x), lib and op(x)

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def int_enum():
    import enum

    class E(enum.IntEnum):
        A = 2
        B = 3

    box = Box(v=E.A)

    def fn(x):
        return x * box.v * (2 if box.v == E.A else 5) * (1 if box.v is E.A else 7) * len(f"{box.v.name}")

    return World(fn, lambda: setattr(box, "v", E.B), lambda: setattr(box, "v", E.A))
