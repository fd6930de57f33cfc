"""What people look for in torch's Python, and the files that they want. Written before the ranking was tuned."""

from __future__ import annotations

WANTED: dict[str, tuple[str, ...]] = {
    # Classes.
    "AdamW": ("torch/optim/adamw.py",),
    "CUDAGraphTreeManager": ("torch/_inductor/cudagraph_trees.py",),
    "DataLoader": ("torch/utils/data/dataloader.py",),
    "DeviceMesh": ("torch/distributed/device_mesh.py",),
    "DistributedDataParallel": ("torch/nn/parallel/distributed.py",),
    "FakeTensorMode": ("torch/_subclasses/fake_tensor.py",),
    "FullyShardedDataParallel": ("torch/distributed/fsdp/fully_sharded_data_parallel.py",),
    "GraphModule": ("torch/fx/graph_module.py",),
    "Interpreter": ("torch/fx/interpreter.py",),
    "LSTM": ("torch/nn/modules/rnn.py",),
    "Linear": ("torch/nn/modules/linear.py",),
    "Module": ("torch/nn/modules/module.py",),
    "ReLU": ("torch/nn/modules/activation.py",),
    "ShapeEnv": ("torch/fx/experimental/symbolic_shapes.py",),
    "SummaryWriter": ("torch/utils/tensorboard/writer.py",),
    "TensorDataset": ("torch/utils/data/dataset.py",),
    "TwoTensor": ("torch/testing/_internal/two_tensor.py",),
    # Functions.
    "all_reduce": ("torch/distributed/distributed_c10d.py",),
    "autocast": ("torch/amp/autocast_mode.py",),
    "checkpoint": ("torch/utils/checkpoint.py",),
    "clip_grad_norm_": ("torch/nn/utils/clip_grad.py",),
    "cudagraphify": ("torch/_inductor/cudagraph_trees.py", "torch/_inductor/compile_fx.py"),
    "export": ("torch/export/__init__.py",),
    "gradcheck": ("torch/autograd/gradcheck.py",),
    "init_process_group": ("torch/distributed/distributed_c10d.py",),
    "random_split": ("torch/utils/data/dataset.py",),
    "record_function": ("torch/autograd/profiler.py",),
    "relu": ("torch/nn/functional.py",),
    "scaled_dot_product_attention": ("torch/nn/functional.py",),
    "vmap": ("torch/_functorch/apis.py", "torch/_functorch/vmap.py"),
    # Words.
    "cudagraph trees": ("torch/_inductor/cudagraph_trees.py",),
    "DataLoader worker": ("torch/utils/data/_utils/worker.py",),
    "dynamo guards": ("torch/_dynamo/guards.py",),
    "fake tensor": ("torch/_subclasses/fake_tensor.py",),
    "grad scaler": ("torch/amp/grad_scaler.py",),
    "memory snapshot": ("torch/cuda/memory.py",),
    "multihead attention": ("torch/nn/modules/activation.py",),
    "onnx export": ("torch/onnx/__init__.py",),
    "symbolic shapes": ("torch/fx/experimental/symbolic_shapes.py",),
    "tensorboard writer": ("torch/utils/tensorboard/writer.py",),
    # Beginnings.
    "CosineAnneal": ("torch/optim/lr_scheduler.py",),
    "empty_cac": ("torch/cuda/memory.py",),
    "kaiming_uni": ("torch/nn/init.py",),
    # Names of files.
    "batchnorm": ("torch/nn/modules/batchnorm.py",),
    "functional.py": ("torch/nn/functional.py",),
    "lr_scheduler": ("torch/optim/lr_scheduler.py",),
    "nn/init": ("torch/nn/init.py",),
    "profiler util": ("torch/autograd/profiler_util.py",),
    "torch.optim.sgd": ("torch/optim/sgd.py",),
    "triton_heuristics": ("torch/_inductor/runtime/triton_heuristics.py",),
}

WANTED_IN_SOURCES: dict[str, tuple[str, ...]] = {
    "profiler_edge": (
        "pytorch/torch/csrc/jit/mobile/profiler_edge.h",
        "pytorch/torch/csrc/jit/mobile/profiler_edge.cpp",
    ),
    "KinetoEdgeCPUProfiler": (
        "pytorch/torch/csrc/jit/mobile/profiler_edge.h",
        "pytorch/torch/csrc/jit/mobile/profiler_edge.cpp",
    ),
    "cudagraph trees": ("pytorch/torch/_inductor/cudagraph_trees.py",),
    "memory snapshot": ("pytorch/torch/csrc/cuda/memory_snapshot.cpp",),
    "_memory_snapshot_pickled": ("pytorch/torch/csrc/cuda/memory_snapshot.cpp",),
    "profiler legacy": (
        "pytorch/torch/csrc/autograd/profiler_legacy.cpp",
        "pytorch/torch/csrc/autograd/profiler_legacy.h",
    ),
    "ProfilerLegacyThreadLocalState": ("pytorch/torch/csrc/autograd/profiler_legacy.cpp",),
    "thread local debug info": (
        "pytorch/c10/util/ThreadLocalDebugInfo.h",
        "pytorch/c10/util/ThreadLocalDebugInfo.cpp",
    ),
    "gen trace type": ("pytorch/tools/autograd/gen_trace_type.py",),
    "format_trace_inputs": ("pytorch/tools/autograd/gen_trace_type.py",),
}
