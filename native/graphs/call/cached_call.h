// The Python class CachedCall(cache, miss): what `torchreel.graphed` returns. To call it is CallCache::call, and
// miss(*args, **kwargs) if that finds no entry. It is written against the C API, so that a call is one vectorcall.
#pragma once

#include <pybind11/pybind11.h>

namespace torchreel::graphs {

void bind_cached_call(pybind11::module_& module);

}  // namespace torchreel::graphs
