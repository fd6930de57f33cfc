// Python stacks as ids: a walk of the thread's own interpreter frames, interned frame by frame from the outermost.
// A walk does not require the GIL; a frame seen for the first time takes it to name its line.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/small_cache.h"
#include "cpython/interpreter.h"

namespace torchreel {

// Where the definitions of frames and stacks go: each once, under the table's lock.
class StackSink {
 public:
  virtual ~StackSink() = default;
  virtual void frame(uint32_t id, int line, const std::string& file, const std::string& function) = 0;
  // A stack is its caller's (0: none) and the frame that was called.
  virtual void stack(uint32_t id, uint32_t parent, uint32_t frame) = 0;
};

class FrameTable {
 public:
  explicit FrameTable(StackSink& sink) : sink_(sink) {}

  // The id of the stack that `parent` becomes when it calls `code` and stands at `instr`. May take the GIL.
  uint32_t stack(uint32_t parent, PyCodeObject* code, const _Py_CODEUNIT* instr);
  // The same for a place in a source of TorchScript, which stays alive as long as the table knows it.
  bool find(uint32_t parent, const void* source, const void* place, uint32_t& id);
  uint32_t define_script(uint32_t parent, std::shared_ptr<const void> source, const void* place,
                         const std::string& file, int line, const std::string& function);
  // Outermost frames of these files (a runner's, not the user's) are left out, and so are calls of their functions.
  // The first is torchreel itself, whose frames are left out wherever they stand.
  void hide(std::vector<std::string> files) { hidden_ = std::move(files); }
  bool hides(PyCodeObject* code) const;
  // Keeps a code object, so that its address stays its own. Needs the GIL.
  void keep(PyCodeObject* code);
  // Lets go of all code objects. Needs the GIL.
  void release();
  // Held by whoever defines a stack, and by a reader of what the sink was given.
  std::mutex& mutex() { return mutex_; }
  // Forgets all stacks and frames, and lets go of their code objects. Needs the GIL.
  void clear();

 private:
  struct Key {
    uint32_t parent;
    const void* code;
    const void* instr;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  static constexpr size_t kMost = 1 << 20;

  bool hides(const std::string& file) const;
  bool is_own(const std::string& file) const { return !hidden_.empty() && file.starts_with(hidden_.front()); }
  uint32_t define(const Key& key, PyCodeObject* code, const _Py_CODEUNIT* instr);
  uint32_t add(const Key& key, const std::string& file, int line, const std::string& function);
  uint32_t frame(const std::string& file, int line, const std::string& function);

  StackSink& sink_;
  std::mutex mutex_;
  std::vector<std::string> hidden_;
  std::unordered_map<Key, uint32_t, Hash> stacks_;
  std::unordered_map<std::string, uint32_t> frames_;
  std::unordered_map<PyCodeObject*, bool> codes_;
  std::unordered_map<const void*, std::shared_ptr<const void>> sources_;
  uint32_t next_stack_ = 1;  // 0 is the empty stack
};

// A thread's last stack, frame by frame, and its own view of the table.
struct StackCache {
  static constexpr int kDeepest = 256;
  struct Level {
    const void* instr;
    uint32_t id;
  };
  struct Entry {
    const void* code = nullptr;
    const void* instr = nullptr;
    uint32_t parent = 0;
    uint32_t id = 0;
  };
  StackCache() { entries.prepare(); }
  void forget() {
    depth = 0;
    entries.clear();
    entries.prepare();
  }

  int depth = 0;
  Level levels[kDeepest];
  SmallCache<Entry, 128, 4096> entries;
};

// The calling thread's stack as an id of the table; the cache must be of this thread and this table. Sets `id` and
// returns true if the thread runs Python. Does not require the GIL, but may take it.
bool walk_stack(StackCache& cache, FrameTable& table, uint32_t& id);

// Adds the frames of TorchScript's interpreter to a stack, if it runs on this thread, and returns whether it does.
bool add_script_frames(StackCache& cache, FrameTable& table, uint32_t& id);
// The modules within which TorchScript's interpreter stands, as torch writes them:
// TOP(Net)::forward.fc(Linear)::forward.
std::string script_modules();

// A Python text, or bytes, as text that every reader reads (see base/text.h): a str may hold what is not Unicode, as
// names of files do. Needs the GIL.
std::string python_text(PyObject* text);
// The same without replacing anything: of a path its bytes.
std::string python_bytes(PyObject* text);

// Text of a code object for the names of Python calls: "file(line): function". Needs the GIL.
std::string describe(PyCodeObject* code);

}  // namespace torchreel
