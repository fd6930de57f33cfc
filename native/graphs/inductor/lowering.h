// Clusters of steps for which Inductor generated a kernel. Before it is used, runs compare it with the kernels that it
// replaces, in results and in time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// A compiled library for clusters that are alike.
struct Generated {
  struct Pointer {  // an argument: so many bytes into a slot, or into scratch memory
    int64_t slot;   // among the cluster's; -1 for none
    int64_t scratch;
    size_t offset;
  };
  // Throws if the library has no such function. The library stays loaded.
  Generated(const std::string& library, const std::string& entry, std::vector<Pointer> pointers,
            std::vector<size_t> scratch);

  void (*run)(void** pointers);
  std::vector<Pointer> pointers;
  std::vector<size_t> scratch;  // bytes
};

// The decision for clusters that are alike, in one part of a program.
struct Replacement {
  enum State : uint8_t { kToCheck, kUsed, kDropped };
  std::shared_ptr<const Generated> generated;
  std::atomic<State> state{kToCheck};
  std::string why;                            // why it was dropped
  double exact_time = 0, generated_time = 0;  // of all of them, in nanoseconds, once they are known
  size_t clusters = 0, checked = 0;
};

struct Cluster {
  int64_t begin, end;             // steps
  std::vector<uint32_t> slots;    // as the generated kernel numbers them
  std::vector<uint32_t> outputs;  // slots to compare
  std::vector<uint32_t> written;  // slots that existed before and are written
  std::shared_ptr<Replacement> replacement;
  std::atomic<uint32_t> checks{0};
  double exact_time = 0, generated_time = 0;  // the least of all checks
};

// A cluster as a graph has it: used, or still to be checked.
struct Replaced {
  std::shared_ptr<Cluster> cluster;
  bool used;
};

// What a graph replaces, in the order of its steps.
class Replacing {
 public:
  Replacing() = default;
  explicit Replacing(std::vector<Replaced> all) : all_(std::move(all)) {}

  // A step within a cluster counts as all of them: what one of them frees, another may still read.
  int64_t first(int64_t step) const;
  int64_t last(int64_t step) const;
  // The cluster that begins at the step, or null.
  const Replaced* at(size_t step) const;
  const std::vector<Replaced>& all() const { return all_; }
  // By storage: whether it needs no memory, because a generated kernel keeps its values to itself.
  std::vector<bool> elided(const StaticProgram& program) const;

 private:
  const Replaced* around(int64_t step) const;
  std::vector<Replaced> all_;
};

// All clusters of a replay. From any thread.
class Lowering {
 public:
  static constexpr uint32_t kChecks = 3;  // runs

  explicit Lowering(bool exact) : exact_(exact) {}

  void add(const std::shared_ptr<const Generated>& generated, std::vector<std::shared_ptr<Cluster>> clusters);
  // All kernels were added. With `always`, a kernel that is right is used even if it is not faster.
  void arrived(bool always);
  // Changes whenever graphs must be made anew.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // The clusters of these steps that are used, or still to be checked.
  Replacing of(size_t begin, size_t end) const;
  bool exact() const { return exact_; }

  // After one check of the cluster: the least nanoseconds of both.
  void checked(Cluster& cluster, double exact_time, double generated_time);
  void drop(Cluster& cluster, std::string why);

  struct Row {
    int64_t begin, end;
    Replacement::State state;
    std::string why;
    double exact_time, generated_time;
  };
  std::vector<Row> rows() const;

 private:
  void decide(Replacement& replacement);

  bool exact_;
  bool always_ = false;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Cluster>> clusters_;
  std::atomic<uint64_t> version_{0};
};

}  // namespace torchreel::graphs
