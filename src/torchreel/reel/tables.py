"""The tables of a reel and what each column means. docs/format.md is made from this file.

Every table has one Parquet file per process; `process` (the index of that process in the reel)
is added to each row when the reel is opened, so ids are unique together with `process`.
Times are nanoseconds since the epoch, durations are nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

TEXT = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class TableDefinition:
    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The schema of one process's file: without `process`."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def _table(name: str, row: str, *columns: tuple[str, pa.DataType, str]) -> TableDefinition:
    return TableDefinition(name, row, tuple(Column(*column) for column in columns))


OPS = _table(
    "ops",
    "one call: an operator, a backward node, a range of the user's, a module or Python call",
    ("id", pa.int64(), "unique in the process; within a thread it grows with start_ns"),
    ("parent", pa.int64(), "id of the innermost call open on this thread at the start, else null"),
    ("thread", pa.int32(), "id in threads: where it started"),
    ("name", TEXT, "as PyTorch names it: aten::mm, autograd::engine::evaluate_function: ..., a range's name"),
    ("overload", TEXT, "overload name of an operator (Tensor, Scalar, out ...), else empty"),
    (
        "kind",
        TEXT,
        "op, backward, torchscript, lite, custom, static_runtime, range (the user's), module, python, "
        "backend (measured by the runtime of a deployed model), runtime and driver (calls of a device's API), "
        "overhead (of the profiler) or other",
    ),
    ("start_ns", pa.int64(), "when it began"),
    ("dur_ns", pa.int64(), "how long it was open"),
    ("self_ns", pa.int64(), "dur_ns less the time of its children; 0 for an async range"),
    ("depth", pa.int32(), "how many calls were open on the thread when it began"),
    ("step", pa.int32(), "the step in which it began, else null"),
    ("seq", pa.int64(), "autograd sequence number, which links backward to forward, else null"),
    ("fwd_thread", pa.int32(), "for a backward call: id in threads of its forward call, else null"),
    ("fwd", pa.int64(), "for a backward call: id of its forward call, else null"),
    ("module", pa.int32(), "id in modules; a backward call has the module of its forward call"),
    ("stack", pa.int32(), "id in stacks; a backward call has the stack of its forward call"),
    ("inputs", pa.int32(), "id in inputs, else null"),
    ("flops", pa.int64(), "floating point operations of the call itself, null where no formula is known"),
    ("alloc_bytes", pa.int64(), "bytes allocated less bytes freed while it was open on its thread"),
    ("self_alloc_bytes", pa.int64(), "the same, without what its children did"),
    ("async", pa.bool_(), "ended on another thread, or declared asynchronous"),
    ("open", pa.bool_(), "had not ended when the recording did; dur_ns then counts to that moment"),
    ("end_thread", pa.int32(), "for a call that ended on another thread: id in threads, else null"),
    ("node", pa.int32(), "RPC worker id of the process, else null"),
    ("backend", TEXT, "for an op of a deployed model's own runtime: which one measured it, else null"),
    ("debug_handle", pa.int64(), "the number by which a deployed model names a place in its source, else null"),
    ("record_id", pa.int64(), "the number by which an execution trace of torch's names the call, else null"),
    (
        "script_modules",
        TEXT,
        "within TorchScript: the modules and methods that stand open, as torch writes them, else null: "
        "TOP(Net)::forward.fc(Linear)::forward.",
    ),
    ("args", TEXT, "what an imported trace says of the call beyond these columns, as a JSON object, else null"),
)
MARKS = _table(
    "marks",
    "one moment that the user marked",
    ("thread", pa.int32(), "id in threads"),
    ("time_ns", pa.int64(), "when"),
    ("name", TEXT, "the mark's name"),
    ("op", pa.int64(), "id of the innermost call open then, else null"),
)
STEPS = _table(
    "steps",
    "one step of the program (Recorder.step, or an optimizer's step)",
    ("step", pa.int32(), "number, from 0"),
    ("start_ns", pa.int64(), "when it began"),
    ("end_ns", pa.int64(), "when the next began, or the recording ended"),
)
ALLOCS = _table(
    "allocs",
    "one event of an allocator",
    ("id", pa.int64(), "unique in the process; within a device in the order in which they happened"),
    (
        "time_ns",
        pa.int64(),
        "when; for a block older than the recording, when that began; null before torch 2.2",
    ),
    ("thread", pa.int32(), "id in threads, else null"),
    ("device", TEXT, "cpu, cuda:0 ..."),
    (
        "action",
        TEXT,
        "alloc, free, or preexisting: alive when the recording began; in a snapshot's history also free_requested, "
        "free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot, oom",
    ),
    ("addr", pa.int64(), "address of the block or segment; null for oom"),
    ("size", pa.int64(), "bytes that were asked for; null for a free of a block of unknown size"),
    ("total", pa.int64(), "bytes known to be allocated on the device after this event"),
    ("op", pa.int64(), "id of the innermost call that made it, else null"),
    ("stack", pa.int32(), "id in stacks, else null"),
    ("alloc", pa.int64(), "for a free: id of the event that made the block, else null (older than the recording)"),
    ("category", TEXT, "parameter, gradient, optimizer_state ... where it is known, else null"),
    ("stream", pa.int64(), "the device's stream as a handle, else null"),
    ("pool", TEXT, "id of the memory pool, as two numbers: 0,0 is the default one; null where the file has none"),
    ("device_free", pa.int64(), "for oom: bytes that the device had free, else null"),
    ("compile_context", TEXT, "the compiled region it came from, or N/A; null where the file has none"),
    ("metadata", TEXT, "the user's text that was set then; null where the file has none"),
    ("forward", TEXT, "lines of the forward call's stack, for an event of a backward call, else null"),
    ("reserved", pa.int64(), "bytes that a backend said to hold of the device after this event, else null"),
)
SEGMENTS = _table(
    "segments",
    "one segment of an allocator's final state",
    ("device", TEXT, "cpu, cuda:0 ..."),
    ("address", pa.int64(), "first byte"),
    ("size", pa.int64(), "bytes"),
    ("allocated", pa.int64(), "bytes of its blocks that are allocated"),
    ("active", pa.int64(), "bytes of its blocks that are allocated, or freed and still in use by a stream"),
    ("requested", pa.int64(), "bytes that the program asked for in it; null where the file has none"),
    ("stream", pa.int64(), "the device's stream as a handle"),
    ("type", TEXT, "small or large: the size of the blocks in it"),
    ("pool", TEXT, "id of the memory pool, as two numbers: 0,0 is the default one; null where the file has none"),
    ("expandable", pa.bool_(), "whether it can grow; null where the file does not say"),
    ("stack", pa.int32(), "id in stacks, else null"),
    ("forward", TEXT, "lines of the forward call's stack, else null"),
)
BLOCKS = _table(
    "blocks",
    "one block of an allocator's final state: what was alive when the recording ended, and the free ones of a segment",
    ("device", TEXT, "cpu, cuda:0 ..."),
    ("address", pa.int64(), "first byte"),
    ("size", pa.int64(), "bytes"),
    ("requested", pa.int64(), "bytes that the program asked for; null where the file has none"),
    ("state", TEXT, "active_allocated, active_pending_free (freed, still in use by a stream) or inactive"),
    ("stack", pa.int32(), "id in stacks, else null"),
    ("alloc", pa.int64(), "id in allocs of the event that made it, else null"),
    ("forward", TEXT, "lines of the forward call's stack, else null"),
)
ANNOTATIONS = _table(
    "annotations",
    "one beginning or end of a user's range, as a memory snapshot keeps them",
    ("device", TEXT, "the current device then"),
    ("time_ns", pa.int64(), "when"),
    ("name", TEXT, "the range's name"),
    ("stage", TEXT, "START or END"),
)
DEVICES = _table(
    "devices",
    "one device whose allocator or activity was recorded",
    ("device", TEXT, "cpu, cuda:0 ..."),
    ("index", pa.int32(), "its place in a snapshot's device_traces"),
    ("total", pa.int64(), "bytes of memory that it has, else null"),
    ("fraction", pa.float64(), "the part of it that the process may use, else null"),
    ("lost_events", pa.int64(), "events that the history no longer held, else null"),
    ("note", pa.string(), "what a reader should know of it, else null"),
    ("api", TEXT, "cuda, hip, xpu or mtia; null for the CPU"),
    ("model", TEXT, "its name: NVIDIA H100 80GB HBM3 ..., else null"),
    ("capability", TEXT, "compute capability: 9.0 ..., else null"),
    ("multiprocessors", pa.int32(), "how many multiprocessors (compute units) it has, else null"),
    ("warp_size", pa.int32(), "threads of a warp (wavefront), else null"),
    ("properties", pa.string(), "all that the trace says of it, as a JSON object, else null"),
)
SETTINGS = _table(
    "settings",
    "one setting of the allocators",
    ("name", TEXT, "as torch names it: max_split_size, expandable_segments ..."),
    ("value", pa.string(), "as JSON"),
)
INPUTS = _table(
    "inputs",
    "one distinct list of arguments, each column a JSON list with one item per argument",
    ("id", pa.int32(), "referred to by ops.inputs"),
    ("dims", pa.string(), "sizes of a tensor, a list of them for a list of tensors, [] for the rest"),
    ("strides", pa.string(), "strides, in the same form"),
    ("dtypes", pa.string(), "float, long int ... for a tensor, Scalar, ScalarList, TensorList, or empty"),
    ("scalars", pa.string(), "the value of a number, boolean, text or list as text; empty for a tensor"),
    ("keywords", pa.string(), "arguments that were given by name, a JSON object; null for none"),
)
STACKS = _table(
    "stacks",
    "one distinct stack",
    ("id", pa.int32(), "referred to by ops.stack and allocs.stack"),
    ("frames", pa.list_(pa.int32()), "ids in frames, the innermost first"),
)
FRAMES = _table(
    "frames",
    "one distinct line of source",
    ("id", pa.int32(), "referred to by stacks.frames"),
    ("file", TEXT, "path as Python knows it"),
    ("line", pa.int32(), "line number"),
    ("function", TEXT, "qualified name"),
    (
        "fx",
        pa.string(),
        "for a line that torch.fx generated: its node and original line as JSON, if known, else null",
    ),
)
SOURCES = _table(
    "sources",
    "one file that frames name and that was there when the recording ended",
    ("path", TEXT, "as frames.file has it"),
    ("bytes", pa.int64(), "its size"),
    ("sha256", pa.string(), "of its bytes, in hexadecimal"),
    ("text", pa.string(), "the source, if it is the program's own Python file of at most 2 MiB, else null"),
)
MODULES = _table(
    "modules",
    "one nn.Module",
    ("id", pa.int32(), "referred to by ops.module"),
    ("path", pa.string(), "class of the root, then attribute names: GPT2Model.h.0.attn"),
    ("class", pa.string(), "class name"),
    ("parent", pa.int32(), "id of the module that holds it, else null"),
)
THREADS = _table(
    "threads",
    "one thread that ran something",
    ("id", pa.int32(), "referred to by ops.thread and others"),
    ("os_id", pa.int64(), "the operating system's thread id"),
    ("torch_id", pa.int64(), "PyTorch's own thread number"),
    ("name", pa.string(), "Python's or the operating system's name for it"),
)
PROCESSES = _table(
    "processes",
    "one process",
    ("name", pa.string(), "its directory in the reel: host-pid, of a rank rank00003-host-pid"),
    ("pid", pa.int64(), "process id"),
    ("parent_pid", pa.int64(), "process id of its parent"),
    ("host", pa.string(), "host name"),
    ("rank", pa.int32(), "rank in torch.distributed, or the one that its launcher gave it, else null"),
    ("world_size", pa.int32(), "ranks in all, else null"),
    ("local_rank", pa.int32(), "rank among those of its machine, else null"),
    ("node", pa.int32(), "RPC worker id, else null"),
    ("command", pa.string(), "its command line"),
    ("torch_version", pa.string(), "version of torch"),
    ("python_version", pa.string(), "version of Python"),
    ("clock", pa.string(), "where its times come from"),
    ("start_ns", pa.int64(), "when its recording began"),
    ("end_ns", pa.int64(), "when it ended, or the last time it was seen alive"),
    ("complete", pa.bool_(), "false if the process ended without closing its recording, or still runs"),
    ("lost_events", pa.int64(), "events that could not be kept, because the disk could not follow or was full"),
)
KERNELS = _table(
    "kernels",
    "one activity of a device",
    ("id", pa.int64(), "unique in the process"),
    ("device", TEXT, "as torch says it: cuda:0 (also of ROCm), xpu:0, mtia:0 ..."),
    ("stream", pa.int64(), "stream, queue; null where the trace has none"),
    ("name", TEXT, "kernel, copy, memset"),
    ("start_ns", pa.int64(), "when it began"),
    ("dur_ns", pa.int64(), "how long it took"),
    ("op", pa.int64(), "id in ops of the innermost operator or range that launched it, else null"),
    ("kind", TEXT, "compute, communication, copy, set or other"),
    ("launch", pa.int64(), "id in ops of the runtime or driver call that launched it, else null"),
    ("correlation", pa.int64(), "the number that it shares with that call, else null"),
    ("context", pa.int64(), "context of the device, else null"),
    ("graph", pa.int64(), "id of the CUDA graph that it is part of, else null"),
    ("graph_node", pa.int64(), "id of its node in that graph, else null"),
    ("grid", pa.list_(pa.int32()), "blocks in x, y, z, else null"),
    ("block", pa.list_(pa.int32()), "threads of a block in x, y, z, else null"),
    ("registers", pa.int32(), "registers per thread, else null"),
    ("shared_bytes", pa.int64(), "bytes of shared memory per block, else null"),
    ("blocks_per_sm", pa.float64(), "blocks per multiprocessor, else null"),
    ("warps_per_sm", pa.float64(), "warps per multiprocessor, else null"),
    ("occupancy", pa.float64(), "estimated achieved occupancy in percent, else null"),
    ("bytes", pa.int64(), "for a copy or set: how many bytes, else null"),
    ("direction", TEXT, "for a copy: HtoD, DtoH, DtoD, HtoH, PtoP, else null"),
    ("source", TEXT, "for a copy: memory that it reads: Pageable, Pinned, Device ..., else null"),
    ("target", TEXT, "for a copy: memory that it writes, else null"),
    ("collective", pa.int64(), "id in collectives, else null"),
    ("step", pa.int32(), "the step in which its launch began, else null"),
    ("module", pa.int32(), "id in modules of the module around its launch; in backward, of the forward call's"),
    ("args", TEXT, "what the trace says of it beyond these columns, as a JSON object, else null"),
)
DEVICE_RANGES = _table(
    "device_ranges",
    "one range of the user's as a device saw it: from its first activity to its last",
    ("device", TEXT, "cuda:0 ..."),
    ("stream", pa.int64(), "stream, queue"),
    ("name", TEXT, "the range's name"),
    ("start_ns", pa.int64(), "when its first activity began"),
    ("dur_ns", pa.int64(), "until its last activity ended"),
    ("op", pa.int64(), "id in ops of the range, else null"),
)
SYNCS = _table(
    "syncs",
    "one wait of a stream, a device or the host for work of a device",
    ("device", TEXT, "cuda:0 ..."),
    ("stream", pa.int64(), "stream, queue; null for all of the device"),
    ("kind", TEXT, "as the trace names it: Event Sync, Stream Wait Event, Context Sync ..."),
    ("start_ns", pa.int64(), "when it began"),
    ("dur_ns", pa.int64(), "how long it took"),
    ("launch", pa.int64(), "id in ops of the call that asked for it, else null"),
    ("wait_on_stream", pa.int64(), "the stream that it waited for, else null"),
    ("wait_on_event", pa.int64(), "the event that it waited for, else null"),
    ("wait_on_launch", pa.int64(), "id in ops of the call that recorded that event, else null"),
)
STREAMS = _table(
    "streams",
    "one stream of a device",
    ("device", TEXT, "cuda:0 ..."),
    ("stream", pa.int64(), "its number, as kernels.stream has it"),
    ("name", TEXT, "as the trace names it"),
)
PROCESS_GROUPS = _table(
    "process_groups",
    "one process group of torch.distributed",
    ("id", pa.int32(), "referred to by collectives.group"),
    ("name", TEXT, "as c10d names it: the same on all its ranks"),
    ("description", TEXT, "what its maker calls it, else null"),
    ("backend", TEXT, "nccl, gloo ..., else null"),
    ("ranks", pa.list_(pa.int32()), "its global ranks, else null"),
    ("size", pa.int32(), "how many ranks it has, else null"),
)
COLLECTIVES = _table(
    "collectives",
    "one call of a collective, or of a point-to-point send or receive",
    ("id", pa.int64(), "unique in the process"),
    ("group", pa.int32(), "id in process_groups, else null"),
    ("name", TEXT, "allreduce, allgather ..."),
    ("seq", pa.int64(), "its number in the group in this process, from 0; point-to-point calls are counted apart"),
    ("peer", pa.int32(), "for a point-to-point call: the other rank, else null"),
    ("dtype", TEXT, "element type, else null"),
    ("bytes", pa.int64(), "bytes of the larger of input and output, else null"),
    ("in_elems", pa.int64(), "elements that go in, else null"),
    ("out_elems", pa.int64(), "elements that come out, else null"),
    ("in_bytes", pa.int64(), "bytes that go in, else null"),
    ("out_bytes", pa.int64(), "bytes that come out, else null"),
    ("in_split", pa.list_(pa.int64()), "sizes of the parts that go to each rank, else null"),
    ("out_split", pa.list_(pa.int64()), "sizes of the parts that come from each rank, else null"),
    ("source_rank", pa.int32(), "the rank that sends, else null"),
    ("target_rank", pa.int32(), "the rank that receives, else null"),
    ("async", pa.bool_(), "whether the caller went on without waiting, else null"),
    ("op", pa.int64(), "id in ops of the c10d call or record_param_comms, else null"),
    ("kernel", pa.int64(), "id in kernels of its first kernel, else null"),
    ("enter_ns", pa.int64(), "when it was called"),
    ("start_ns", pa.int64(), "when the backend began with it, else null"),
    ("end_ns", pa.int64(), "when it was done, else null"),
    ("open", pa.bool_(), "whether it was not done when the recording ended"),
    ("comms_id", TEXT, "the trace's own number of it, else null"),
)
KERNEL_COUNTERS = _table(
    "kernel_counters",
    "one hardware counter of a kernel or of a range of kernels",
    ("kernel", pa.int64(), "id in kernels, else null"),
    ("range", TEXT, "the name of the profiler's range"),
    ("start_ns", pa.int64(), "when the range began"),
    ("dur_ns", pa.int64(), "how long it took"),
    ("name", TEXT, "smsp__inst_executed.sum ..."),
    ("value", pa.float64(), "what it counted"),
)
SAMPLES = _table(
    "samples",
    "one value of a counter over time",
    ("time_ns", pa.int64(), "when"),
    ("device", TEXT, "cuda:0 ..., null for the host"),
    ("name", TEXT, "the counter's name"),
    ("value", pa.float64(), "its value then"),
)
FLOWS = _table(
    "flows",
    "one end of an arrow between two calls that no parent joins: of a remote call, for instance",
    ("id", pa.int64(), "the same at both ends, and unique in the reel"),
    ("name", TEXT, "what flows: rpc ..."),
    ("end", TEXT, "out at the caller, in at the callee"),
    ("thread", pa.int32(), "id in threads"),
    ("time_ns", pa.int64(), "when"),
    ("op", pa.int64(), "id in ops of the call at this end, else null"),
)
COUNTERS = _table(
    "counters",
    "one hardware counter of one call",
    ("op", pa.int64(), "id in ops"),
    ("name", TEXT, "cycles, instructions ..."),
    ("value", pa.int64(), "how much it grew while the call was open, children included"),
)

TAPE_OPS = _table(
    "tape_ops",
    "one op of a tape: of a step that was traced while it was recorded",
    ("tape", TEXT, "the tape's file in the directory of the process: step-1.tape"),
    ("index", pa.int32(), "its place in the tape, from 0"),
    ("name", TEXT, "with its overload: aten::add.Tensor"),
    ("op", pa.int64(), "id in ops of its call; null for an inserted one, or where the call was not recorded"),
    ("module", TEXT, "the nn.Module in which it ran, by the name of the variable that holds it, else null"),
    ("file", TEXT, "the user's own source that called it, else null"),
    ("line", pa.int32(), "line number in it, else null"),
    ("backward", pa.bool_(), "whether it ran in backward"),
    ("forward", pa.int32(), "for an op in backward: index of the op whose gradient it computes, else null"),
    ("inserted", pa.bool_(), "not called by the program: what else is needed to have the same tensors"),
    ("inputs", pa.string(), "all arguments of its schema: tensors with name, dtype and sizes, other values"),
    ("outputs", pa.string(), "what it gave, in the same form"),
)

TABLES: dict[str, TableDefinition] = {
    table.name: table
    for table in (
        OPS,
        MARKS,
        STEPS,
        ALLOCS,
        SEGMENTS,
        BLOCKS,
        ANNOTATIONS,
        DEVICES,
        SETTINGS,
        INPUTS,
        STACKS,
        FRAMES,
        SOURCES,
        MODULES,
        THREADS,
        PROCESSES,
        KERNELS,
        DEVICE_RANGES,
        SYNCS,
        STREAMS,
        PROCESS_GROUPS,
        COLLECTIVES,
        KERNEL_COUNTERS,
        SAMPLES,
        FLOWS,
        COUNTERS,
        TAPE_OPS,
    )
}
