#include "tape/capture/where.h"

#include <memory>
#include <mutex>

#include "cpython/frames.h"

namespace torchreel::tape {

namespace {

class Rows final : public StackSink {
 public:
  void frame(uint32_t id, int line, const std::string& file, const std::string& function) override {
    if (frames.size() <= id) frames.resize(id + 1);
    frames[id] = {file, line, function};
  }
  void stack(uint32_t id, uint32_t parent, uint32_t frame) override {
    if (stacks.size() <= id) stacks.resize(id + 1);
    stacks[id] = {parent, frame};
  }
  std::vector<FrameRow> frames;
  std::vector<StackRow> stacks = {{0, 0}};
};

// One table for all tapes of the process. Never freed.
Rows& rows() {
  static auto* rows = new Rows();
  return *rows;
}

FrameTable& table() {
  static auto* table = new FrameTable(rows());
  return *table;
}

PyCodeObject* module_call = nullptr;

StackCache* new_cache() {
  static thread_local std::unique_ptr<StackCache> owner;
  owner = std::make_unique<StackCache>();
  return owner.get();
}

}  // namespace

uint32_t stack_of_caller() {
  // A plain thread variable is the cheapest to look at; another one owns what it points to.
  static __thread StackCache* cache __attribute__((tls_model("initial-exec"))) = nullptr;
  if (cache == nullptr) cache = new_cache();
  uint32_t id = 0;
  walk_stack(*cache, table(), id);
  return id;
}

PyObject* module_of_caller() {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (state == nullptr) return nullptr;
  const auto* frame = innermost_frame(state);
  while (frame != nullptr && is_incomplete(frame)) frame = frame->previous;
  for (; frame != nullptr; frame = frame->previous) {
    if (frame->code == module_call) return frame->localsplus[0];
  }
  return nullptr;
}

void set_module_call(PyCodeObject* code) {
  Py_INCREF(code);
  module_call = code;
}

void hide_files(std::vector<std::string> files) { table().hide(std::move(files)); }

std::vector<FrameRow> frames() {
  std::lock_guard lock(table().mutex());
  return rows().frames;
}

std::vector<StackRow> stacks() {
  std::lock_guard lock(table().mutex());
  return rows().stacks;
}

}  // namespace torchreel::tape
