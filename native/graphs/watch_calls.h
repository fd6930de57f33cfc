// Which functions of Python run on a thread for a while, and on which objects. Holds none of these alive.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace torchreel::graphs {

// Starts and stops on the same thread, with the GIL. One that runs within another is part of that one too.
class WatchCalls {
 public:
  // Functions of files under `foreign` are not told of, nor those under `library` but for packages that are installed
  // there. `call` is the code that calls a module, `init` the one that makes it.
  WatchCalls(std::vector<std::string> foreign, std::string library, pybind11::object call, pybind11::object init);
  ~WatchCalls();
  void start();
  void stop();

  // Of each code: itself, its globals, and of what is still alive the functions and what was their `self`.
  pybind11::list functions() const;
  pybind11::list modules() const;  // that were called, and are alive
  pybind11::list born() const;     // that were made, and are alive

  void take_call();  // of the innermost frame

 private:
  // Objects are known by their address: one that was there before has had it all the time.
  struct Objects {
    std::unordered_set<PyObject*> known;
    std::vector<pybind11::object> references;
    void take(PyObject* object);
    pybind11::list alive() const;
  };

  struct Code {
    pybind11::object globals;
    Objects functions, selves;
    bool foreign;
  };

  bool is_foreign(PyCodeObject* code) const;

  std::vector<std::string> foreign_;
  std::string library_;
  pybind11::object call_, init_;
  std::unordered_map<PyCodeObject*, Code> codes_;
  std::vector<pybind11::object> kept_;  // the codes
  Objects modules_, born_;
  WatchCalls* outer_ = nullptr;
  bool running_ = false;
};

}  // namespace torchreel::graphs
