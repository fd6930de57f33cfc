#include "graphs/call/replay/replay.h"

#include <ATen/record_function.h>

#include <unordered_map>

#include "graphs/call/replay/outputs.h"
#include "graphs/call/replay/side_effects.h"
#include "graphs/kernels/layers/boxed.h"
#include "tape/capture/slots.h"
#include "torch/below_autograd.h"

namespace torchreel::graphs {

using tape::kNone;

namespace {

// Leases on what a forward left for its backward. The caller ends them.
std::vector<Lease*> lease_saved(Graph& graph) {
  std::vector<Lease*> all;
  for (const auto& range : graph.saved()) all.push_back(graph.pool().lease(range, &graph, 0));
  return all;
}

}  // namespace

Replay::Replay(std::shared_ptr<const StaticProgram> program, ReplayOptions options, std::string name)
    : name(std::move(name)),
      label_("torchreel::graph " + this->name),
      program_(std::move(program)),
      options_(std::move(options)),
      lowering_(std::make_shared<Lowering>(options_.exact)),
      admission_(*program_),
      inputs_(*program_, options_.fixed),
      branches_(program_, options_, inputs_, lowering_),
      has_side_effects_(has_side_effects(*program_)) {
  for (const auto& segment : program_->recorded().segments) {
    std::unordered_map<uint32_t, uint32_t> firsts;
    auto& derivatives = derivatives_.emplace_back();
    for (uint32_t slot : segment.derivatives) {
      auto index = static_cast<uint32_t>(derivatives.size());
      derivatives.push_back({slot, slot == kNone ? index : firsts.try_emplace(slot, index).first->second});
    }
  }
}

// Runs the kernels on the inputs. False if a guard failed: then the report says which, and nothing has changed.
inline bool Replay::run_guarded(Graph& graph, ThreadBranches& here, const Tensors& given, Report& report) const {
  BelowAutograd below_autograd;
  here.rollback.save(*program_);
  inputs_.copy_in(graph, given);
  try {
    RECORD_FUNCTION(label_, {});  // profilers see the graph, not its ops
    graph.run(options_.cores);
  } catch (const GuardFailure& failure) {
    report.failure = "was " + failure.recorded + " and is " + failure.now;
    report.op = failure.op;
  } catch (const ShapeChange& change) {
    report.failure = change.what();
    report.op = graph.failed_op();
  } catch (...) {
    report.op = graph.failed_op();
    graph.pool().stop_passing();
    throw;
  }
  if (report.failure.empty()) return true;
  graph.forget_unplanned();
  here.rollback.restore(*program_);
  release_gradients(*program_, nullptr);
  return false;
}

Outcome Replay::run(const Tensors& given, Tensors& results, Report& report) {
  Outcome admitted = admission_.check(given, grad);
  if (admitted != Outcome::kDone) return admitted;
  const auto& pool = Pool::of_this_thread();
  std::lock_guard running(pool->running);
  auto& here = branches_.of(pool);
  branches_.renew(here);
  Choice chosen = branches_.choose(here, given);
  if (chosen.graph == nullptr) {
    if (chosen.kept) report.op = Branches::keeper(here);
    return chosen.kept ? Outcome::kKept : Outcome::kHeld;
  }
  Graph& graph = **chosen.graph;
  if (report.wants_graph) report.graph = *chosen.graph;
  inputs_.note_addresses(given, here.last);
  if (!run_guarded(graph, here, given, report)) return Outcome::kGuard;
  hits++;
  branches_.visit(graph);
  Outputs outputs(*program_, options_, graph, given, chosen.copies);
  if (has_side_effects_) {
    BelowAutograd below_autograd;
    leave_side_effects(*program_, graph, given, outputs);
  }
  results.clear();
  for (uint32_t slot : program_->recorded().outputs) results.push_back(outputs.at(slot));
  graph.forget_unplanned();
  if (report.wants_graph) report.saved = lease_saved(graph);  // before anybody can give the pool's memory back
  return Outcome::kDone;
}

void Replay::run_backward(Graph& forward, size_t segment, const std::vector<Lease*>& saved, const Tensors& gradients,
                          bool keeps, Tensors& results) {
  auto& pool = forward.pool();
  std::lock_guard running(pool.running);
  auto& here = branches_.of(pool.shared_from_this());
  branches_.renew(here);
  for (Lease* lease : saved) lease->passing = !keeps;
  auto graph = branches_.choose_backward(here, forward, segment, keeps);
  inputs_.copy_in(*graph, gradients);
  graph->run(options_.cores);
  branches_.visit(*graph);
  Outputs outputs(*program_, options_, *graph, gradients, false);
  results.clear();
  for (const auto& derivative : derivatives_[segment]) {
    bool repeated = derivative.first < results.size();
    results.push_back(repeated ? results[derivative.first] : outputs.at(derivative.slot));
  }
  graph->forget_unplanned();
}

void Replay::make_first(const Tensors& given) {
  const auto& pool = Pool::of_this_thread();
  std::lock_guard running(pool->running);
  branches_.make_first(branches_.of(pool), given);
}

std::vector<Replay::Timed> Replay::timed_run(const Tensors& given) {
  if (timed_ == nullptr || timed_version_ != lowering_->version()) {
    timed_version_ = lowering_->version();
    timed_ = std::make_shared<Graph>(program_, Part::forward(), std::make_shared<Pool>(), std::vector<Obstacle>(),
                                     nullptr, false, lowering_);
  }
  BelowAutograd below_autograd;
  inputs_.copy_in(*timed_, given);
  auto times = timed_->timed_run();
  auto timed = timed_;
  if (timed->kept_op >= 0) timed_ = nullptr;  // an op keeps memory of this pool: the next graph gets another one
  std::vector<Timed> all;
  for (size_t i = 0; i < times.size(); i++) all.push_back({timed->op_of(i), timed->kernel(i).layer(), times[i]});
  return all;
}

}  // namespace torchreel::graphs
