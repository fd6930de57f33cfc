// The least that any observer of torch's calls can cost: a global callback that does nothing at begin and end.
// And the CPU allocator, read and set: torchreel's stays after a recording with memory, and the bare samples
// between recordings are to be those of a process that never recorded.
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <pybind11/pybind11.h>

#include <memory>

namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction&) { return nullptr; }
void on_end(const at::RecordFunction&, at::ObserverContext*) {}

// One that asks for inputs has torch box the arguments of each call.
void attach(bool inputs) {
  handle = at::addGlobalCallback(at::RecordFunctionCallback(&on_begin, &on_end).needsInputs(inputs));
}
void detach() { at::removeCallback(handle); }

uintptr_t allocator() { return reinterpret_cast<uintptr_t>(c10::GetAllocator(c10::kCPU)); }

// At the priority of torchreel's own: the last of equals wins, so that each can replace the other.
void set_allocator(uintptr_t address) {
  c10::SetAllocator(c10::kCPU, reinterpret_cast<c10::Allocator*>(address), 100);
  if (allocator() != address) throw std::runtime_error("The CPU allocator in place has a higher priority than 100.");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("attach", &attach);
  module.def("detach", &detach);
  module.def("allocator", &allocator);
  module.def("set_allocator", &set_allocator);
}
