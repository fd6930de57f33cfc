// The recordings of one graphed function, and the way from the arguments of a call to its outputs without a line of
// Python.
//
// Python owns a CallCache for each graphed function and adds entries to it. A CachedCall calls call() each time that
// the function is called. The GIL is held; a long replay gives it away meanwhile.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphs/call/cache_entry.h"

namespace torchreel::graphs {

// Why a call was not replayed, for whoever runs it then.
struct CacheMiss {
  const char* why = "";  // "new", "foreign", "changed", or the name of an Outcome
  uint64_t entry = 0;
  std::string detail;
  uint32_t op = 0;
};

class CallCache {
 public:
  bool on = true;
  uint64_t verify = 0;        // every so many calls are left to the one who checks them
  bool verify_first = false;  // and so is the first replay of each entry

  // The newest entry is tried first.
  void add(std::shared_ptr<CacheEntry> entry) { entries_.insert(entries_.begin(), std::move(entry)); }
  // Drops the entry of this number.
  void drop(uint64_t number);

  // A call as vectorcall has it. Null without a Python error if the call has to be run by somebody else: then
  // last_miss() says why, in the thread of the call. Null with a Python error if the call failed.
  PyObject* call(PyObject* const* args, size_t positional, PyObject* names);
  static const CacheMiss& last_miss();

 private:
  bool may_replay(CacheMiss& miss);

  std::vector<std::shared_ptr<CacheEntry>> entries_;
  uint64_t calls_ = 0;
};

}  // namespace torchreel::graphs
