// How a run of a Replay ended. The call cache makes a Report for each run, on its stack, and turns any Outcome but
// kDone into a cache miss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graphs/run/graph.h"

namespace torchreel::graphs {

enum class Outcome {
  kDone,
  kMoved,    // a parameter or another tensor of the state is at another address, or has a gradient to add to
  kAliased,  // an input shares memory with a tensor that the function writes
  kGuard,    // a number that Python used is another one
  kHeld,     // the caller holds an output that the run would overwrite
  kKept,     // an op keeps an argument that the run would overwrite
};

struct Report {
  bool wants_graph = false;
  std::shared_ptr<Graph> graph;  // the graph that ran, if it is wanted
  std::string failure;           // what a guard found
  uint32_t op = 0;               // the op that the run stopped at
  std::vector<Lease*> saved;     // with the graph: leases on the memory that its backward reads
  // Ends the leases that nobody took over.
  ~Report() {
    for (Lease* lease : saved) Pool::end(lease);
  }
};

}  // namespace torchreel::graphs
