// Counts of instructions between two points of a program that runs under valgrind's callgrind; nothing elsewhere.
#include <pybind11/pybind11.h>
#include <valgrind/callgrind.h>

#include <string>

namespace {

void begin() {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

// Writes what was counted since begin() to a file that bears the label.
void end(const std::string& label) {
  CALLGRIND_DUMP_STATS_AT(label.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("begin", &begin);
  module.def("end", &end);
}
