#include "torch/script_stack.h"

#include <ATen/core/class_type.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <map>
#include <memory>
#include <mutex>

namespace torchreel {

torch::jit::SourceRange original(const torch::jit::SourceRange& range) {
  auto written = range.findSourceRangeThatGenerated();
  if (!written) return range;
  auto where = written->file_line_col();
  return where && !std::get<0>(*where).empty() ? *written : range;  // of some the file was not saved
}

namespace {

// The stack that `caller` becomes when it calls the function of this entry and stands at its range.
uint32_t script_stack(StackCache& cache, FrameTable& table, uint32_t caller, const torch::jit::StackEntry& entry) {
  const auto& source = entry.range.source();
  if (source == nullptr) return caller;
  auto* place = reinterpret_cast<const void*>(entry.range.start() << 32 | entry.range.end());
  uint64_t hash = reinterpret_cast<uint64_t>(source.get()) * 0x9e3779b97f4a7c15;
  hash = (hash ^ reinterpret_cast<uint64_t>(place) ^ caller) * 0x165667b19e3779f9 >> 40;
  const auto& known = cache.entries.find(hash);
  if (known.code == source.get() && known.instr == place && known.parent == caller) return known.id;
  uint32_t id = caller;
  if (!table.find(caller, source.get(), place, id)) {
    auto where = original(entry.range).file_line_col();
    // A place in no file has no frame: it stands for its caller.
    id = where ? table.define_script(caller, source, place, std::get<0>(*where), static_cast<int>(std::get<1>(*where)),
                                     entry.filename)
               : caller;
  }
  cache.entries.missed(hash) = {source.get(), place, caller, id};
  return id;
}

}  // namespace

bool add_script_frames(StackCache& cache, FrameTable& table, uint32_t& id) {
  auto stack = torch::jit::currentCallstack();
  // The innermost stands first.
  for (auto entry = stack.rbegin(); entry != stack.rend(); ++entry) id = script_stack(cache, table, id, *entry);
  return !stack.empty();
}

namespace {

using torch::jit::Function;
using torch::jit::GraphFunction;
using torch::jit::InlinedCallStack;

// An op that was inlined refers to the functions that it was inlined from. torch.jit.freeze frees them, and torch reads
// their names all the same when it is asked where it stands, although it keeps a copy of each name. So the reference is
// turned to a function that lives.
Function* InlinedCallStack::* function_member();
template <Function* InlinedCallStack::* Member>
struct RevealFunction {
  friend Function* InlinedCallStack::* function_member() { return Member; }
};
template struct RevealFunction<&InlinedCallStack::fn_>;

std::mutex mending;

// A function of this name, of which nothing else is of use. It is never freed.
Function* namesake(const std::string& name) {
  static auto* known = new std::map<std::string, std::unique_ptr<GraphFunction>>;
  auto& function = (*known)[name];
  if (function == nullptr) {
    bool is_name = !name.empty() && name.find('.') == std::string::npos;
    function = std::make_unique<GraphFunction>(c10::QualifiedName(is_name ? name : "unknown"),
                                               std::make_shared<torch::jit::Graph>(), nullptr);
  }
  return function.get();
}

void mend(torch::jit::Block* block) {
  for (auto* node : block->nodes()) {
    for (auto called = node->callstack(); called; called = (*called)->callee()) {
      (**called).*function_member() = namesake((*called)->function_name());
    }
    for (auto* inner : node->blocks()) mend(inner);
    if (node->hasAttribute(torch::jit::attr::Subgraph)) mend(node->g(torch::jit::attr::Subgraph)->block());
  }
}

// Every module has this, but for one that was frozen: `training` can be kept there.
bool is_frozen(const c10::ClassType& type) { return type.is_module() && !type.hasAttribute("_is_full_backward_hook"); }

// The type of a module and of its parts, each once.
void mend(const std::shared_ptr<c10::ClassType>& type) {
  static auto* seen = new std::map<const c10::ClassType*, std::weak_ptr<c10::ClassType>>;
  auto& known = (*seen)[type.get()];
  if (known.lock() == type) return;
  known = type;
  if (is_frozen(*type)) {
    for (auto* method : type->methods()) {
      auto* function = torch::jit::tryToGraphFunction(*method);
      if (function != nullptr) mend(function->graph()->block());
    }
  }
  for (size_t i = 0; i < type->numAttributes(); i++) {
    if (auto part = type->getAttribute(i)->cast<c10::ClassType>()) mend(part);
  }
}

std::unique_ptr<at::ObserverContext> on_script_begin(const at::RecordFunction& call) {
  auto inputs = call.inputs();
  if (!inputs.empty() && inputs[0].isObject()) {
    std::lock_guard lock(mending);
    mend(inputs[0].toObjectRef().type());
  }
  return nullptr;
}

int readers = 0;
at::CallbackHandle mender = at::INVALID_CALLBACK_HANDLE;

}  // namespace

void read_scripts(ScriptReader reader, bool on) {
  int bit = static_cast<int>(reader);
  readers = on ? readers | bit : readers & ~bit;
  if (readers != 0 && mender == at::INVALID_CALLBACK_HANDLE) {
    at::RecordFunctionCallback callback(&on_script_begin);
    mender = at::addGlobalCallback(callback.needsInputs(true).scopes({at::RecordScope::TORCHSCRIPT_FUNCTION}));
  } else if (readers == 0 && mender != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(mender);
    mender = at::INVALID_CALLBACK_HANDLE;
  }
}

std::string script_modules() {
  std::string text;
  for (const auto& step : torch::jit::currentModuleHierarchy()) text.append(step).push_back('.');
  return text;
}

}  // namespace torchreel
