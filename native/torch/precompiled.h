// What most files of the tape and of graphs include of torch: read once per build. Each file still includes what it
// uses. More is not better: pybind11, or torch/library.h, would cost every file more than they save a few.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>
