/** The tables of a reel. Made by torchreel/web/typescript.py from reel/tables.py: do not edit. */

/** one call: an operator, a backward node, a range of the user's, a module or Python call. */
export type Ops = {
  process: number;
  "id": number | null;
  "parent": number | null;
  "thread": number | null;
  "name": string | null;
  "overload": string | null;
  "kind": string | null;
  "start_ns": number | null;
  "dur_ns": number | null;
  "self_ns": number | null;
  "depth": number | null;
  "step": number | null;
  "seq": number | null;
  "fwd_thread": number | null;
  "fwd": number | null;
  "module": number | null;
  "stack": number | null;
  "inputs": number | null;
  "flops": number | null;
  "alloc_bytes": number | null;
  "self_alloc_bytes": number | null;
  "async": boolean | null;
  "open": boolean | null;
  "end_thread": number | null;
  "node": number | null;
  "backend": string | null;
  "debug_handle": number | null;
  "record_id": number | null;
  "script_modules": string | null;
  "args": string | null;
};

/** one moment that the user marked. */
export type Marks = {
  process: number;
  "thread": number | null;
  "time_ns": number | null;
  "name": string | null;
  "op": number | null;
};

/** one step of the program (Recorder.step, or an optimizer's step). */
export type Steps = {
  process: number;
  "step": number | null;
  "start_ns": number | null;
  "end_ns": number | null;
};

/** one event of an allocator. */
export type Allocs = {
  process: number;
  "id": number | null;
  "time_ns": number | null;
  "thread": number | null;
  "device": string | null;
  "action": string | null;
  "addr": number | null;
  "size": number | null;
  "total": number | null;
  "op": number | null;
  "stack": number | null;
  "alloc": number | null;
  "category": string | null;
  "stream": number | null;
  "pool": string | null;
  "device_free": number | null;
  "compile_context": string | null;
  "metadata": string | null;
  "forward": string | null;
  "reserved": number | null;
};

/** one segment of an allocator's final state. */
export type Segments = {
  process: number;
  "device": string | null;
  "address": number | null;
  "size": number | null;
  "allocated": number | null;
  "active": number | null;
  "requested": number | null;
  "stream": number | null;
  "type": string | null;
  "pool": string | null;
  "expandable": boolean | null;
  "stack": number | null;
  "forward": string | null;
};

/** one block of an allocator's final state: what was alive when the recording ended, and the free ones of a segment. */
export type Blocks = {
  process: number;
  "device": string | null;
  "address": number | null;
  "size": number | null;
  "requested": number | null;
  "state": string | null;
  "stack": number | null;
  "alloc": number | null;
  "forward": string | null;
};

/** one beginning or end of a user's range, as a memory snapshot keeps them. */
export type Annotations = {
  process: number;
  "device": string | null;
  "time_ns": number | null;
  "name": string | null;
  "stage": string | null;
};

/** one device whose allocator or activity was recorded. */
export type Devices = {
  process: number;
  "device": string | null;
  "index": number | null;
  "total": number | null;
  "fraction": number | null;
  "lost_events": number | null;
  "note": string | null;
  "api": string | null;
  "model": string | null;
  "capability": string | null;
  "multiprocessors": number | null;
  "warp_size": number | null;
  "properties": string | null;
};

/** one setting of the allocators. */
export type Settings = {
  process: number;
  "name": string | null;
  "value": string | null;
};

/** one distinct list of arguments, each column a JSON list with one item per argument. */
export type Inputs = {
  process: number;
  "id": number | null;
  "dims": string | null;
  "strides": string | null;
  "dtypes": string | null;
  "scalars": string | null;
  "keywords": string | null;
};

/** one distinct stack. */
export type Stacks = {
  process: number;
  "id": number | null;
  "frames": number[] | null;
};

/** one distinct line of source. */
export type Frames = {
  process: number;
  "id": number | null;
  "file": string | null;
  "line": number | null;
  "function": string | null;
  "fx": string | null;
};

/** one file that frames name and that was there when the recording ended. */
export type Sources = {
  process: number;
  "path": string | null;
  "bytes": number | null;
  "sha256": string | null;
  "text": string | null;
};

/** one nn.Module. */
export type Modules = {
  process: number;
  "id": number | null;
  "path": string | null;
  "class": string | null;
  "parent": number | null;
};

/** one thread that ran something. */
export type Threads = {
  process: number;
  "id": number | null;
  "os_id": number | null;
  "torch_id": number | null;
  "name": string | null;
};

/** one process. */
export type Processes = {
  process: number;
  "name": string | null;
  "pid": number | null;
  "parent_pid": number | null;
  "host": string | null;
  "rank": number | null;
  "world_size": number | null;
  "local_rank": number | null;
  "node": number | null;
  "command": string | null;
  "torch_version": string | null;
  "python_version": string | null;
  "clock": string | null;
  "start_ns": number | null;
  "end_ns": number | null;
  "complete": boolean | null;
  "lost_events": number | null;
};

/** one activity of a device. */
export type Kernels = {
  process: number;
  "id": number | null;
  "device": string | null;
  "stream": number | null;
  "name": string | null;
  "start_ns": number | null;
  "dur_ns": number | null;
  "op": number | null;
  "kind": string | null;
  "launch": number | null;
  "correlation": number | null;
  "context": number | null;
  "graph": number | null;
  "graph_node": number | null;
  "grid": number[] | null;
  "block": number[] | null;
  "registers": number | null;
  "shared_bytes": number | null;
  "blocks_per_sm": number | null;
  "warps_per_sm": number | null;
  "occupancy": number | null;
  "bytes": number | null;
  "direction": string | null;
  "source": string | null;
  "target": string | null;
  "collective": number | null;
  "step": number | null;
  "module": number | null;
  "args": string | null;
};

/** one range of the user's as a device saw it: from its first activity to its last. */
export type DeviceRanges = {
  process: number;
  "device": string | null;
  "stream": number | null;
  "name": string | null;
  "start_ns": number | null;
  "dur_ns": number | null;
  "op": number | null;
};

/** one wait of a stream, a device or the host for work of a device. */
export type Syncs = {
  process: number;
  "device": string | null;
  "stream": number | null;
  "kind": string | null;
  "start_ns": number | null;
  "dur_ns": number | null;
  "launch": number | null;
  "wait_on_stream": number | null;
  "wait_on_event": number | null;
  "wait_on_launch": number | null;
};

/** one stream of a device. */
export type Streams = {
  process: number;
  "device": string | null;
  "stream": number | null;
  "name": string | null;
};

/** one process group of torch.distributed. */
export type ProcessGroups = {
  process: number;
  "id": number | null;
  "name": string | null;
  "description": string | null;
  "backend": string | null;
  "ranks": number[] | null;
  "size": number | null;
};

/** one call of a collective, or of a point-to-point send or receive. */
export type Collectives = {
  process: number;
  "id": number | null;
  "group": number | null;
  "name": string | null;
  "seq": number | null;
  "peer": number | null;
  "dtype": string | null;
  "bytes": number | null;
  "in_elems": number | null;
  "out_elems": number | null;
  "in_bytes": number | null;
  "out_bytes": number | null;
  "in_split": number[] | null;
  "out_split": number[] | null;
  "source_rank": number | null;
  "target_rank": number | null;
  "async": boolean | null;
  "op": number | null;
  "kernel": number | null;
  "enter_ns": number | null;
  "start_ns": number | null;
  "end_ns": number | null;
  "open": boolean | null;
  "comms_id": string | null;
};

/** one hardware counter of a kernel or of a range of kernels. */
export type KernelCounters = {
  process: number;
  "kernel": number | null;
  "range": string | null;
  "start_ns": number | null;
  "dur_ns": number | null;
  "name": string | null;
  "value": number | null;
};

/** one value of a counter over time. */
export type Samples = {
  process: number;
  "time_ns": number | null;
  "device": string | null;
  "name": string | null;
  "value": number | null;
};

/** one end of an arrow between two calls that no parent joins: of a remote call, for instance. */
export type Flows = {
  process: number;
  "id": number | null;
  "name": string | null;
  "end": string | null;
  "thread": number | null;
  "time_ns": number | null;
  "op": number | null;
};

/** one hardware counter of one call. */
export type Counters = {
  process: number;
  "op": number | null;
  "name": string | null;
  "value": number | null;
};

/** one op of a tape: of a step that was traced while it was recorded. */
export type TapeOps = {
  process: number;
  "tape": string | null;
  "index": number | null;
  "name": string | null;
  "op": number | null;
  "module": string | null;
  "file": string | null;
  "line": number | null;
  "backward": boolean | null;
  "forward": number | null;
  "inserted": boolean | null;
  "inputs": string | null;
  "outputs": string | null;
};

/** Each table: what a row is, and what each column means. */

export const TABLES: Record<string, { row: string; columns: Record<string, string> }> = {
  "ops": {
    "row": "one call: an operator, a backward node, a range of the user's, a module or Python call",
    "columns": {
      "id": "unique in the process; within a thread it grows with start_ns",
      "parent": "id of the innermost call open on this thread at the start, else null",
      "thread": "id in threads: where it started",
      "name": "as PyTorch names it: aten::mm, autograd::engine::evaluate_function: ..., a range's name",
      "overload": "overload name of an operator (Tensor, Scalar, out ...), else empty",
      "kind": "op, backward, torchscript, lite, custom, static_runtime, range (the user's), module, python, backend (measured by the runtime of a deployed model), runtime and driver (calls of a device's API), overhead (of the profiler) or other",
      "start_ns": "when it began",
      "dur_ns": "how long it was open",
      "self_ns": "dur_ns less the time of its children; 0 for an async range",
      "depth": "how many calls were open on the thread when it began",
      "step": "the step in which it began, else null",
      "seq": "autograd sequence number, which links backward to forward, else null",
      "fwd_thread": "for a backward call: id in threads of its forward call, else null",
      "fwd": "for a backward call: id of its forward call, else null",
      "module": "id in modules; a backward call has the module of its forward call",
      "stack": "id in stacks; a backward call has the stack of its forward call",
      "inputs": "id in inputs, else null",
      "flops": "floating point operations of the call itself, null where no formula is known",
      "alloc_bytes": "bytes allocated less bytes freed while it was open on its thread",
      "self_alloc_bytes": "the same, without what its children did",
      "async": "ended on another thread, or declared asynchronous",
      "open": "had not ended when the recording did; dur_ns then counts to that moment",
      "end_thread": "for a call that ended on another thread: id in threads, else null",
      "node": "RPC worker id of the process, else null",
      "backend": "for an op of a deployed model's own runtime: which one measured it, else null",
      "debug_handle": "the number by which a deployed model names a place in its source, else null",
      "record_id": "the number by which an execution trace of torch's names the call, else null",
      "script_modules": "within TorchScript: the modules and methods that stand open, as torch writes them, else null: TOP(Net)::forward.fc(Linear)::forward.",
      "args": "what an imported trace says of the call beyond these columns, as a JSON object, else null"
    }
  },
  "marks": {
    "row": "one moment that the user marked",
    "columns": {
      "thread": "id in threads",
      "time_ns": "when",
      "name": "the mark's name",
      "op": "id of the innermost call open then, else null"
    }
  },
  "steps": {
    "row": "one step of the program (Recorder.step, or an optimizer's step)",
    "columns": {
      "step": "number, from 0",
      "start_ns": "when it began",
      "end_ns": "when the next began, or the recording ended"
    }
  },
  "allocs": {
    "row": "one event of an allocator",
    "columns": {
      "id": "unique in the process; within a device in the order in which they happened",
      "time_ns": "when; for a block older than the recording, when that began; null before torch 2.2",
      "thread": "id in threads, else null",
      "device": "cpu, cuda:0 ...",
      "action": "alloc, free, or preexisting: alive when the recording began; in a snapshot's history also free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot, oom",
      "addr": "address of the block or segment; null for oom",
      "size": "bytes that were asked for; null for a free of a block of unknown size",
      "total": "bytes known to be allocated on the device after this event",
      "op": "id of the innermost call that made it, else null",
      "stack": "id in stacks, else null",
      "alloc": "for a free: id of the event that made the block, else null (older than the recording)",
      "category": "parameter, gradient, optimizer_state ... where it is known, else null",
      "stream": "the device's stream as a handle, else null",
      "pool": "id of the memory pool, as two numbers: 0,0 is the default one; null where the file has none",
      "device_free": "for oom: bytes that the device had free, else null",
      "compile_context": "the compiled region it came from, or N/A; null where the file has none",
      "metadata": "the user's text that was set then; null where the file has none",
      "forward": "lines of the forward call's stack, for an event of a backward call, else null",
      "reserved": "bytes that a backend said to hold of the device after this event, else null"
    }
  },
  "segments": {
    "row": "one segment of an allocator's final state",
    "columns": {
      "device": "cpu, cuda:0 ...",
      "address": "first byte",
      "size": "bytes",
      "allocated": "bytes of its blocks that are allocated",
      "active": "bytes of its blocks that are allocated, or freed and still in use by a stream",
      "requested": "bytes that the program asked for in it; null where the file has none",
      "stream": "the device's stream as a handle",
      "type": "small or large: the size of the blocks in it",
      "pool": "id of the memory pool, as two numbers: 0,0 is the default one; null where the file has none",
      "expandable": "whether it can grow; null where the file does not say",
      "stack": "id in stacks, else null",
      "forward": "lines of the forward call's stack, else null"
    }
  },
  "blocks": {
    "row": "one block of an allocator's final state: what was alive when the recording ended, and the free ones of a segment",
    "columns": {
      "device": "cpu, cuda:0 ...",
      "address": "first byte",
      "size": "bytes",
      "requested": "bytes that the program asked for; null where the file has none",
      "state": "active_allocated, active_pending_free (freed, still in use by a stream) or inactive",
      "stack": "id in stacks, else null",
      "alloc": "id in allocs of the event that made it, else null",
      "forward": "lines of the forward call's stack, else null"
    }
  },
  "annotations": {
    "row": "one beginning or end of a user's range, as a memory snapshot keeps them",
    "columns": {
      "device": "the current device then",
      "time_ns": "when",
      "name": "the range's name",
      "stage": "START or END"
    }
  },
  "devices": {
    "row": "one device whose allocator or activity was recorded",
    "columns": {
      "device": "cpu, cuda:0 ...",
      "index": "its place in a snapshot's device_traces",
      "total": "bytes of memory that it has, else null",
      "fraction": "the part of it that the process may use, else null",
      "lost_events": "events that the history no longer held, else null",
      "note": "what a reader should know of it, else null",
      "api": "cuda, hip, xpu or mtia; null for the CPU",
      "model": "its name: NVIDIA H100 80GB HBM3 ..., else null",
      "capability": "compute capability: 9.0 ..., else null",
      "multiprocessors": "how many multiprocessors (compute units) it has, else null",
      "warp_size": "threads of a warp (wavefront), else null",
      "properties": "all that the trace says of it, as a JSON object, else null"
    }
  },
  "settings": {
    "row": "one setting of the allocators",
    "columns": {
      "name": "as torch names it: max_split_size, expandable_segments ...",
      "value": "as JSON"
    }
  },
  "inputs": {
    "row": "one distinct list of arguments, each column a JSON list with one item per argument",
    "columns": {
      "id": "referred to by ops.inputs",
      "dims": "sizes of a tensor, a list of them for a list of tensors, [] for the rest",
      "strides": "strides, in the same form",
      "dtypes": "float, long int ... for a tensor, Scalar, ScalarList, TensorList, or empty",
      "scalars": "the value of a number, boolean, text or list as text; empty for a tensor",
      "keywords": "arguments that were given by name, a JSON object; null for none"
    }
  },
  "stacks": {
    "row": "one distinct stack",
    "columns": {
      "id": "referred to by ops.stack and allocs.stack",
      "frames": "ids in frames, the innermost first"
    }
  },
  "frames": {
    "row": "one distinct line of source",
    "columns": {
      "id": "referred to by stacks.frames",
      "file": "path as Python knows it",
      "line": "line number",
      "function": "qualified name",
      "fx": "for a line that torch.fx generated: its node and original line as JSON, if known, else null"
    }
  },
  "sources": {
    "row": "one file that frames name and that was there when the recording ended",
    "columns": {
      "path": "as frames.file has it",
      "bytes": "its size",
      "sha256": "of its bytes, in hexadecimal",
      "text": "the source, if it is the program's own Python file of at most 2 MiB, else null"
    }
  },
  "modules": {
    "row": "one nn.Module",
    "columns": {
      "id": "referred to by ops.module",
      "path": "class of the root, then attribute names: GPT2Model.h.0.attn",
      "class": "class name",
      "parent": "id of the module that holds it, else null"
    }
  },
  "threads": {
    "row": "one thread that ran something",
    "columns": {
      "id": "referred to by ops.thread and others",
      "os_id": "the operating system's thread id",
      "torch_id": "PyTorch's own thread number",
      "name": "Python's or the operating system's name for it"
    }
  },
  "processes": {
    "row": "one process",
    "columns": {
      "name": "its directory in the reel: host-pid, of a rank rank00003-host-pid",
      "pid": "process id",
      "parent_pid": "process id of its parent",
      "host": "host name",
      "rank": "rank in torch.distributed, or the one that its launcher gave it, else null",
      "world_size": "ranks in all, else null",
      "local_rank": "rank among those of its machine, else null",
      "node": "RPC worker id, else null",
      "command": "its command line",
      "torch_version": "version of torch",
      "python_version": "version of Python",
      "clock": "where its times come from",
      "start_ns": "when its recording began",
      "end_ns": "when it ended, or the last time it was seen alive",
      "complete": "false if the process ended without closing its recording, or still runs",
      "lost_events": "events that could not be kept, because the disk could not follow or was full"
    }
  },
  "kernels": {
    "row": "one activity of a device",
    "columns": {
      "id": "unique in the process",
      "device": "as torch says it: cuda:0 (also of ROCm), xpu:0, mtia:0 ...",
      "stream": "stream, queue; null where the trace has none",
      "name": "kernel, copy, memset",
      "start_ns": "when it began",
      "dur_ns": "how long it took",
      "op": "id in ops of the innermost operator or range that launched it, else null",
      "kind": "compute, communication, copy, set or other",
      "launch": "id in ops of the runtime or driver call that launched it, else null",
      "correlation": "the number that it shares with that call, else null",
      "context": "context of the device, else null",
      "graph": "id of the CUDA graph that it is part of, else null",
      "graph_node": "id of its node in that graph, else null",
      "grid": "blocks in x, y, z, else null",
      "block": "threads of a block in x, y, z, else null",
      "registers": "registers per thread, else null",
      "shared_bytes": "bytes of shared memory per block, else null",
      "blocks_per_sm": "blocks per multiprocessor, else null",
      "warps_per_sm": "warps per multiprocessor, else null",
      "occupancy": "estimated achieved occupancy in percent, else null",
      "bytes": "for a copy or set: how many bytes, else null",
      "direction": "for a copy: HtoD, DtoH, DtoD, HtoH, PtoP, else null",
      "source": "for a copy: memory that it reads: Pageable, Pinned, Device ..., else null",
      "target": "for a copy: memory that it writes, else null",
      "collective": "id in collectives, else null",
      "step": "the step in which its launch began, else null",
      "module": "id in modules of the module around its launch; in backward, of the forward call's",
      "args": "what the trace says of it beyond these columns, as a JSON object, else null"
    }
  },
  "device_ranges": {
    "row": "one range of the user's as a device saw it: from its first activity to its last",
    "columns": {
      "device": "cuda:0 ...",
      "stream": "stream, queue",
      "name": "the range's name",
      "start_ns": "when its first activity began",
      "dur_ns": "until its last activity ended",
      "op": "id in ops of the range, else null"
    }
  },
  "syncs": {
    "row": "one wait of a stream, a device or the host for work of a device",
    "columns": {
      "device": "cuda:0 ...",
      "stream": "stream, queue; null for all of the device",
      "kind": "as the trace names it: Event Sync, Stream Wait Event, Context Sync ...",
      "start_ns": "when it began",
      "dur_ns": "how long it took",
      "launch": "id in ops of the call that asked for it, else null",
      "wait_on_stream": "the stream that it waited for, else null",
      "wait_on_event": "the event that it waited for, else null",
      "wait_on_launch": "id in ops of the call that recorded that event, else null"
    }
  },
  "streams": {
    "row": "one stream of a device",
    "columns": {
      "device": "cuda:0 ...",
      "stream": "its number, as kernels.stream has it",
      "name": "as the trace names it"
    }
  },
  "process_groups": {
    "row": "one process group of torch.distributed",
    "columns": {
      "id": "referred to by collectives.group",
      "name": "as c10d names it: the same on all its ranks",
      "description": "what its maker calls it, else null",
      "backend": "nccl, gloo ..., else null",
      "ranks": "its global ranks, else null",
      "size": "how many ranks it has, else null"
    }
  },
  "collectives": {
    "row": "one call of a collective, or of a point-to-point send or receive",
    "columns": {
      "id": "unique in the process",
      "group": "id in process_groups, else null",
      "name": "allreduce, allgather ...",
      "seq": "its number in the group in this process, from 0; point-to-point calls are counted apart",
      "peer": "for a point-to-point call: the other rank, else null",
      "dtype": "element type, else null",
      "bytes": "bytes of the larger of input and output, else null",
      "in_elems": "elements that go in, else null",
      "out_elems": "elements that come out, else null",
      "in_bytes": "bytes that go in, else null",
      "out_bytes": "bytes that come out, else null",
      "in_split": "sizes of the parts that go to each rank, else null",
      "out_split": "sizes of the parts that come from each rank, else null",
      "source_rank": "the rank that sends, else null",
      "target_rank": "the rank that receives, else null",
      "async": "whether the caller went on without waiting, else null",
      "op": "id in ops of the c10d call or record_param_comms, else null",
      "kernel": "id in kernels of its first kernel, else null",
      "enter_ns": "when it was called",
      "start_ns": "when the backend began with it, else null",
      "end_ns": "when it was done, else null",
      "open": "whether it was not done when the recording ended",
      "comms_id": "the trace's own number of it, else null"
    }
  },
  "kernel_counters": {
    "row": "one hardware counter of a kernel or of a range of kernels",
    "columns": {
      "kernel": "id in kernels, else null",
      "range": "the name of the profiler's range",
      "start_ns": "when the range began",
      "dur_ns": "how long it took",
      "name": "smsp__inst_executed.sum ...",
      "value": "what it counted"
    }
  },
  "samples": {
    "row": "one value of a counter over time",
    "columns": {
      "time_ns": "when",
      "device": "cuda:0 ..., null for the host",
      "name": "the counter's name",
      "value": "its value then"
    }
  },
  "flows": {
    "row": "one end of an arrow between two calls that no parent joins: of a remote call, for instance",
    "columns": {
      "id": "the same at both ends, and unique in the reel",
      "name": "what flows: rpc ...",
      "end": "out at the caller, in at the callee",
      "thread": "id in threads",
      "time_ns": "when",
      "op": "id in ops of the call at this end, else null"
    }
  },
  "counters": {
    "row": "one hardware counter of one call",
    "columns": {
      "op": "id in ops",
      "name": "cycles, instructions ...",
      "value": "how much it grew while the call was open, children included"
    }
  },
  "tape_ops": {
    "row": "one op of a tape: of a step that was traced while it was recorded",
    "columns": {
      "tape": "the tape's file in the directory of the process: step-1.tape",
      "index": "its place in the tape, from 0",
      "name": "with its overload: aten::add.Tensor",
      "op": "id in ops of its call; null for an inserted one, or where the call was not recorded",
      "module": "the nn.Module in which it ran, by the name of the variable that holds it, else null",
      "file": "the user's own source that called it, else null",
      "line": "line number in it, else null",
      "backward": "whether it ran in backward",
      "forward": "for an op in backward: index of the op whose gradient it computes, else null",
      "inserted": "not called by the program: what else is needed to have the same tensors",
      "inputs": "all arguments of its schema: tensors with name, dtype and sizes, other values",
      "outputs": "what it gave, in the same form"
    }
  }
};
