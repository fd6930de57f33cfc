#include "graphs/call/replay/branches.h"

#include <algorithm>
#include <atomic>

#include "graphs/call/replay/side_effects.h"
#include "tape/capture/slots.h"

namespace torchreel::graphs {

using tape::kNone;

namespace {

std::vector<Obstacle> obstacles_in(const Pool& pool) {
  std::vector<Obstacle> obstacles;
  for (const auto& range : pool.leased()) obstacles.push_back({range, INT64_MAX});
  return obstacles;
}

void add_outputs(const Graph& graph, std::vector<Obstacle>& obstacles) {
  for (const auto& output : graph.outputs()) obstacles.push_back({output.range, INT64_MAX});
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Branches::Branches(std::shared_ptr<const StaticProgram> program, const ReplayOptions& options, const Inputs& inputs,
                   std::shared_ptr<Lowering> lowering)
    : program_(std::move(program)),
      options_(options),
      inputs_(inputs),
      lowering_(std::move(lowering)),
      id_(next_id()) {}

ThreadBranches& Branches::of(const std::shared_ptr<Pool>& pool) {
  // Those of a living thread are here as long as the replay.
  if (pool->last_replay == id_ && !pool->is_left()) return *static_cast<ThreadBranches*>(pool->last_branches);
  std::lock_guard lock(mutex_);
  auto found = std::find_if(threads_.begin(), threads_.end(), [&](const auto& one) { return one->pool == pool; });
  if (found == threads_.end()) {
    std::erase_if(threads_, [](const auto& one) {
      // A backward of its forward may run in another thread right now.
      std::unique_lock idle(one->pool->running, std::try_to_lock);
      return idle.owns_lock() && one->pool->is_left();
    });
    threads_.push_back(std::make_unique<ThreadBranches>());
    threads_.back()->pool = pool;
    found = threads_.end() - 1;
  }
  pool->last_replay = id_;
  pool->last_branches = found->get();
  return **found;
}

void Branches::renew(ThreadBranches& here) const {
  uint64_t version = lowering_->version();
  if (here.version == version) return;
  here.version = version;
  auto& old = here.outdated;
  old.insert(old.end(), here.forward.begin(), here.forward.end());
  for (const auto& backward : here.backward) old.push_back(backward.graph);
  if (here.copying != nullptr) old.push_back(here.copying);
  here.forward.clear();
  here.backward.clear();
  here.copying = nullptr;
}

uint32_t Branches::keeper(const ThreadBranches& here) {
  for (const auto& graph : here.forward) {
    if (graph->kept_op >= 0) return static_cast<uint32_t>(graph->kept_op);
  }
  for (const auto& backward : here.backward) {
    if (backward.graph->kept_op >= 0) return static_cast<uint32_t>(backward.graph->kept_op);
  }
  const auto& copying = here.copying;
  return copying != nullptr && copying->kept_op >= 0 ? static_cast<uint32_t>(copying->kept_op) : kNone;
}

// What a forward leaves for its backward cannot be copied, so such programs get more branches.
size_t Branches::most_graphs() const { return program_->has_backward() ? 8 * options_.branches : options_.branches; }

std::shared_ptr<Graph> Branches::make_forward(const std::shared_ptr<Pool>& pool,
                                              std::vector<char*> bound_inputs) const {
  return std::make_shared<Graph>(program_, Part::forward(), pool, obstacles_in(*pool), nullptr, false, lowering_,
                                 std::move(bound_inputs));
}

// The first graph that overwrites nothing that is held. `fitting` counts those whose inputs lie where they read them.
inline Choice Branches::choose_usable(ThreadBranches& here, const Tensors& given, size_t& fitting) const {
  Choice choice;
  auto& pool = *here.pool;
  auto& graphs = here.forward;
  for (size_t i = 0; i < graphs.size(); i++) {
    if (i == 0) release_gradients(*program_, graphs[0].get());
    if (!Inputs::lie_as_bound(*graphs[i], given)) continue;
    fitting++;
    const Lease* held = pool.first_in(graphs[i]->writes());
    if (held != nullptr && i == 0) {
      release_gradients(*program_, nullptr);
      held = pool.first_in(graphs[i]->writes());
    }
    if (held != nullptr) {
      choice.kept = choice.kept || held->output == Lease::kLent;
      continue;
    }
    if (i != 0) std::swap(graphs[0], graphs[i]);
    choice.graph = &graphs[0];
    return choice;
  }
  if (graphs.empty()) release_gradients(*program_, nullptr);
  return choice;
}

Choice Branches::choose_copying(ThreadBranches& here) const {
  const auto& scratch = Pool::scratch_of_this_thread();
  if (here.copying == nullptr) here.copying = make_forward(scratch, {});
  bool kept = scratch->first_in(here.copying->writes()) != nullptr;
  return {kept ? nullptr : &here.copying, true, kept};
}

Choice Branches::choose(ThreadBranches& here, const Tensors& given) const {
  size_t fitting = 0;
  Choice choice = choose_usable(here, given, fitting);
  if (choice.graph != nullptr) return choice;
  bool kept = choice.kept, has_backward = program_->has_backward();
  if (fitting > 0 && options_.held == Held::kError && !kept) return choice;
  auto& graphs = here.forward;
  size_t most = most_graphs();
  bool may_branch = options_.held == Held::kBranch || has_backward || kept;
  if (fitting == 0 || (may_branch && graphs.size() < most)) {
    // With too many graphs for the addresses of inputs, a last one copies all inputs.
    auto bound_inputs = graphs.size() < most ? inputs_.to_bind(given, here.last) : std::vector<char*>();
    graphs.insert(graphs.begin(), make_forward(here.pool, std::move(bound_inputs)));
    if (graphs.size() > most + 1) graphs.pop_back();
    choice.graph = &graphs.front();
    return choice;
  }
  return has_backward || kept ? choice : choose_copying(here);
}

std::shared_ptr<Graph> Branches::choose_backward(ThreadBranches& here, const Graph& forward, size_t segment,
                                                 bool keeps) const {
  auto& pool = *here.pool;
  for (const auto& one : here.backward) {
    if (one.forward != forward.id || one.segment != segment || one.keeps != keeps) continue;
    if (pool.first_in(one.graph->writes()) == nullptr) return one.graph;
  }
  auto graph = std::make_shared<Graph>(program_, Part::backward(segment), here.pool, obstacles_in(pool), &forward,
                                       keeps, lowering_);
  here.backward.insert(here.backward.begin(), {forward.id, segment, keeps, graph});
  size_t segments = program_->recorded().segments.size();
  if (here.backward.size() > 8 * options_.branches * segments) here.backward.pop_back();
  return graph;
}

void Branches::make_first(ThreadBranches& here, const Tensors& given) const {
  here.version = lowering_->version();
  if (!here.forward.empty()) return;
  auto obstacles = obstacles_in(*here.pool);
  here.forward.push_back(make_forward(here.pool, inputs_.to_bind(given, here.last)));
  if (!program_->has_backward()) return;
  const Graph& forward = *here.forward[0];
  add_outputs(forward, obstacles);
  size_t segments = program_->recorded().segments.size();
  for (size_t i = 0; i < segments; i++) {
    bool keeps = i + 1 < segments;  // the segments after it read the same saved memory
    auto backward =
        std::make_shared<Graph>(program_, Part::backward(i), here.pool, obstacles, &forward, keeps, lowering_);
    here.backward.push_back({forward.id, i, keeps, backward});
    add_outputs(*backward, obstacles);
  }
}

// A program that runs a second time in one step begins another step.
void Branches::visit(Graph& graph) const {
  auto& pool = graph.pool();
  if (graph.part().is_forward()) {
    if (std::find(pool.path.begin(), pool.path.end(), this) != pool.path.end()) {
      pool.position = 0;
      pool.path.clear();
    }
    pool.path.push_back(this);
  }
  for (auto& [parent, count] : graph.parents) {
    if (parent != pool.position) continue;
    count++;
    pool.position = graph.id;
    return;
  }
  graph.parents.emplace_back(pool.position, 1);
  pool.position = graph.id;
}

std::vector<std::shared_ptr<Graph>> Branches::graphs() const {
  std::vector<std::shared_ptr<Graph>> all;
  std::lock_guard lock(mutex_);
  for (const auto& thread : threads_) {
    all.insert(all.end(), thread->forward.begin(), thread->forward.end());
    if (thread->copying != nullptr) all.push_back(thread->copying);
    for (const auto& backward : thread->backward) all.push_back(backward.graph);
  }
  return all;
}

}  // namespace torchreel::graphs
