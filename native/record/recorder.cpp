#include "record/recorder.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstring>
#include <variant>

#include "cpython/frames.h"
#include "record/counters.h"
#include "record/inputs.h"
#include "record/models.h"
#include "record/recording.h"
#include "record/stream.h"

namespace torchreel {

using namespace layout;

namespace {

// RecordFunction keeps its name as a schema or as text, and does not say which; only a schema's address is lasting.
// An explicit instantiation may name a private member: that is how it is read without copying the name.
using NameOrSchema = std::variant<std::string, at::RecordFunction::schema_ref_t>;
NameOrSchema at::RecordFunction::* name_member();
template <NameOrSchema at::RecordFunction::* Member>
struct Reveal {
  friend NameOrSchema at::RecordFunction::* name_member() { return Member; }
};
template struct Reveal<&at::RecordFunction::fn_>;

// What torch gives of these is a copy.
Keywords at::RecordFunction::* keywords_member();
template <Keywords at::RecordFunction::* Member>
struct RevealKeywords {
  friend Keywords at::RecordFunction::* keywords_member() { return Member; }
};
template struct RevealKeywords<&at::RecordFunction::kwinputs_>;

Kind kind_of(at::RecordScope scope) {
  switch (scope) {
    case at::RecordScope::FUNCTION: return kOp;
    case at::RecordScope::BACKWARD_FUNCTION: return kBackward;
    case at::RecordScope::TORCHSCRIPT_FUNCTION: return kTorchScript;
    case at::RecordScope::LITE_INTERPRETER: return kLite;
    case at::RecordScope::CUSTOM_CLASS: return kCustom;
    case at::RecordScope::USER_SCOPE: return kRange;
    case at::RecordScope::STATIC_RUNTIME_OP:
    case at::RecordScope::STATIC_RUNTIME_MODEL: return kStaticRuntime;
    default: return kOther;
  }
}

uint32_t id_of_schema(Stream* stream, const c10::FunctionSchema& schema, at::RecordScope scope) {
  uint64_t key = reinterpret_cast<uint64_t>(&schema);
  uint64_t hash = (key >> 4) ^ (key >> 14);
  const void* tagged = reinterpret_cast<const void*>(key | static_cast<uint64_t>(scope) << 56);
  const NameSlot& slot = stream->names.find(hash);
  if (TORCHREEL_LIKELY(slot.key == tagged)) return slot.id;
  uint32_t id = stream->recording->names.id(schema.name(), schema.overload_name(), kind_of(scope));
  stream->names.missed(hash) = {tagged, id};
  return id;
}

uint32_t id_of_text(Stream* stream, const std::string& name, Kind kind) {
  uint64_t hash = hash_text(name.data(), name.size()) ^ kind;
  // Odd, so that it is never the address of a schema or of code.
  const void* key = reinterpret_cast<const void*>(hash | 1);
  const NameSlot& slot = stream->names.find(hash >> 32);
  if (TORCHREEL_LIKELY(slot.key == key)) return slot.id;
  uint32_t id = stream->recording->names.id(name, "", kind);
  if (id != kInlineName) stream->names.missed(hash >> 32) = {key, id};
  return id;
}

uint64_t* put_inline_name(uint64_t* at, const std::string& name, Kind kind) {
  size_t bytes = std::min<size_t>(name.size(), 1024);
  *at++ = kName | static_cast<uint64_t>(kind) << kIdShift;
  *at++ = bytes;
  at[bytes / 8] = 0;
  memcpy(at, name.data(), bytes);
  return at + (bytes + 7) / 8;
}

// Where in a module of TorchScript the next begin stands, if it does. What an op calls stands where that op does.
uint64_t* put_script_modules(Stream* stream, uint64_t* at) {
  std::string modules = script_modules();
  if (TORCHREEL_LIKELY(modules.empty())) return at;
  uint32_t id = id_of_text(stream, modules, kOther);
  if (id == kInlineName) return at;
  *at++ = kHandle | kModulesFlag << kFlagShift;
  *at++ = id;
  return at;
}

// What is wanted is known when this is compiled into a callback of the recorder, so it asks nothing there.
[[gnu::always_inline]] inline uint32_t write_begin(const at::RecordFunction& call,
                                                   c10::ArrayRef<const c10::IValue> given, Stream* stream, uint64_t* at,
                                                   const int wants) {
  if ((wants & kStackWanted) != 0) at = put_stack(stream, at);
  if ((wants & kModulesWanted) != 0 && stream->open_ops <= 0) at = put_script_modules(stream, at);

  const NameOrSchema& name = call.*name_member();
  uint64_t key = 0;
  uint32_t id;
  const Keywords* keywords = nullptr;
  if (TORCHREEL_LIKELY(name.index() == 1)) {
    const c10::FunctionSchema& schema = std::get_if<1>(&name)->get();
    id = id_of_schema(stream, schema, call.scope());
    stream->open_ops++;
    if ((wants & kInputsWanted) != 0) {
      // A boxed call shows the whole stack of its interpreter, on which the op's own inputs are the last.
      size_t own = schema.arguments().size();
      if (TORCHREEL_UNLIKELY(given.size() > own)) given = given.slice(given.size() - own);
    }
  } else {
    Kind kind = kind_of(call.scope());
    id = id_of_text(stream, *std::get_if<0>(&name), kind);
    if (TORCHREEL_UNLIKELY(id == kInlineName)) at = put_inline_name(at, *std::get_if<0>(&name), kind);
    key = reinterpret_cast<uint64_t>(&call) | (call.isAsync() ? kKeyAsync : 0);
    if ((wants & kInputsWanted) != 0 && !(call.*keywords_member()).empty()) keywords = &(call.*keywords_member());
  }
  uint64_t flags = 0;
  uint32_t inputs = kNone;
  if ((wants & kInputsWanted) != 0) {
    at = put_inputs(stream, at, given, keywords, id, &inputs);
    if (TORCHREEL_LIKELY(inputs != kNone)) flags |= kHasInputs;
  }
  int64_t seq = call.seqNr();
  if (seq >= 0) {
    flags |= seq == stream->last_seq ? kSeqSame : seq == stream->last_seq + 1 ? kSeqNext : kSeqWord;
    stream->last_seq = seq;
  }
  uint64_t forward_thread = call.forwardThreadId();
  if (forward_thread != 0) flags |= kHasForwardThread;
  // Torch numbers calls as long as an observer wants it: an execution trace names them by that.
  if (TORCHREEL_UNLIKELY(call.handle() != 0)) {
    *at++ = kHandle | kRecordIdFlag << kFlagShift;
    *at++ = call.handle();
  }
  if ((wants & kCountersWanted) != 0) at = put_counters(stream, at);
  at = put_head(stream, at, key == 0 ? kBegin : kBeginKeyed, id, flags);
  if (key != 0) *at++ = key;
  if ((wants & kInputsWanted) != 0 && inputs != kNone) *at++ = inputs;
  if ((flags & 3) == kSeqWord) *at++ = static_cast<uint64_t>(seq);
  if (forward_thread != 0) *at++ = forward_thread;
  commit_event(stream, at);
  return id;
}

[[gnu::always_inline]] inline void write_end(const at::RecordFunction& call, Stream* stream, const int wants) {
  uint64_t* at = begin_event(stream);
  if ((wants & kCountersWanted) != 0) at = put_counters(stream, at);
  if (TORCHREEL_LIKELY((call.*name_member()).index() == 1)) {
    at = put_head(stream, at, kEnd, 0);
    stream->open_ops--;
  } else {
    at = put_head(stream, at, kEndKeyed, 0);
    *at++ = reinterpret_cast<uint64_t>(&call);
  }
  commit_event(stream, at);
}

template <int wants>
std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& call) {
  Stream* stream = writable_stream();
  if (TORCHREEL_LIKELY(stream != nullptr)) write_begin(call, call.inputs(), stream, begin_event(stream), wants);
  return nullptr;
}

template <int wants>
void on_end(const at::RecordFunction& call, at::ObserverContext*) {
  Stream* stream = writable_stream();
  if (TORCHREEL_LIKELY(stream != nullptr)) write_end(call, stream, wants);
}

// Where in the model's source the call stands, as far as it says so.
int64_t handle_of(const at::RecordFunction& call, Model& model, const Stream* stream) {
  if (model.handles == Handles::kLite) return call.debugHandle();
  return model.handles == Handles::kTorchScript && stream->open_ops <= 0 ? model.place_now() : -1;
}

// Ops that ops call are left out, unless the model wants them. Most of what recording costs is torch's telling, so it
// is silenced within an op that is known to call several.
struct OuterOp {
  bool open = false;
  bool silenced = false;
  int left_out = 0;  // of the calls within it, those that are under way
  int told = 0;      // how many there were
  uint32_t name = 0;
};
__thread OuterOp outer __attribute__((tls_model("initial-exec")));

// A range or a function of TorchScript is no op: what is in it is recorded.
bool is_op(const at::RecordFunction& call) {
  return call.scope() == at::RecordScope::FUNCTION && (call.*name_member()).index() == 1;
}

std::unique_ptr<at::ObserverContext> on_model_begin(const at::RecordFunction& call) {
  bool op = is_op(call);
  if (outer.open && op) {
    outer.left_out++;
    outer.told++;
    return nullptr;
  }
  Model* model = current_model();
  Stream* stream = model == nullptr ? nullptr : writable_stream();
  if (stream == nullptr) return nullptr;
  if (stream->model != model->id) {  // a thread of torch's own that works for the model
    leave_event(stream);
    mark(std::string(kModelMark) + std::to_string(model->id));
    stream = writable_stream();
    if (stream == nullptr) return nullptr;
    stream->model = model->id;
  }
  uint64_t* at = begin_event(stream);
  int64_t debug_handle = handle_of(call, *model, stream);
  if (debug_handle >= 0) {
    *at++ = kHandle;
    *at++ = static_cast<uint64_t>(debug_handle);
  }
  uint32_t name = write_begin(call, model->inputs_of(call), stream, at, model->wants);
  if (op && !model->nested) {
    outer = {true, model->is_worth_silence(name), 0, 0, name};
    if (outer.silenced) at::enableRecordFunction(false);
  }
  return nullptr;
}

void on_model_end(const at::RecordFunction& call, at::ObserverContext*) {
  bool op = is_op(call);
  if (outer.left_out > 0 && op) {
    outer.left_out--;
    return;
  }
  Model* model = current_model();
  if (outer.open && op) {
    if (outer.silenced) {
      at::enableRecordFunction(true);
    } else if (model != nullptr) {
      model->calls_others(outer.name, outer.told);
    }
    outer.open = outer.silenced = false;
  }
  Stream* stream = model == nullptr ? nullptr : writable_stream();
  if (stream != nullptr) write_end(call, stream, model->wants);
}

at::CallbackHandle call_callback = at::INVALID_CALLBACK_HANDLE;
at::CallbackHandle emitter = at::INVALID_CALLBACK_HANDLE;

template <int wants>
at::RecordFunctionCallback callback() {
  at::RecordFunctionCallback callback(&on_begin<wants>, &on_end<wants>);
  callback.needsInputs((wants & kInputsWanted) != 0);
  return callback;
}

at::RecordFunctionCallback callback_for(int wants) {
  return [wants]<size_t... each>(std::index_sequence<each...>) {
    constexpr at::RecordFunctionCallback (*made[])() = {&callback<each>...};
    return made[wants]();
  }(std::make_index_sequence<16>());
}

using Scopes = std::unordered_set<at::RecordScope, std::hash<at::RecordScope>>;

// All but those that mark a kernel's dtype or a build feature: these are no calls.
const Scopes& recorded_scopes() {
  using enum at::RecordScope;
  static const Scopes scopes = {FUNCTION,         BACKWARD_FUNCTION, TORCHSCRIPT_FUNCTION, CUSTOM_CLASS,
                                LITE_INTERPRETER, USER_SCOPE,        STATIC_RUNTIME_OP,    STATIC_RUNTIME_MODEL};
  return scopes;
}

}  // namespace

void attach_callbacks(const Recording& recording) {
  if (call_callback != at::INVALID_CALLBACK_HANDLE) return;
  const auto& options = recording.options;
  int wants = (options.shapes ? kInputsWanted : 0) | (options.stacks ? kStackWanted : 0) |
              (options.counters.empty() ? 0 : kCountersWanted) | (options.modules ? kModulesWanted : 0);
  call_callback = at::addGlobalCallback(callback_for(wants).scopes(recorded_scopes()));
}

void detach_callbacks() {
  if (call_callback == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(call_callback);
  call_callback = at::INVALID_CALLBACK_HANDLE;
}

at::RecordFunctionCallback model_callback(const Model& model) {
  at::RecordFunctionCallback callback(&on_model_begin, &on_model_end);
  callback.needsInputs((model.wants & kInputsWanted) != 0);
  // The lite interpreter tells of each op twice: as its own, with its place in the source, and as torch's.
  return callback.scopes(model.handles == Handles::kLite ? Scopes{at::RecordScope::LITE_INTERPRETER}
                                                         : recorded_scopes());
}

void mark(std::string_view name) {
  Stream* stream = writable_stream();
  if (stream == nullptr) return;
  std::string text(name);
  uint64_t* at = begin_event(stream);
  uint32_t id = id_of_text(stream, text, kOther);
  if (id == kInlineName) at = put_inline_name(at, text, kOther);
  commit_event(stream, put_head(stream, at, kMark, id));
}

void flow(std::string_view name, uint64_t id, bool in) {
  Stream* stream = writable_stream();
  if (stream == nullptr) return;
  std::string text(name);
  uint64_t* at = begin_event(stream);
  uint32_t name_id = id_of_text(stream, text, kOther);
  if (name_id == kInlineName) at = put_inline_name(at, text, kOther);
  at = put_head(stream, at, kFlow, name_id, in);
  *at++ = id;
  commit_event(stream, at);
}

namespace {

const torch::profiler::impl::ProfilerStubs* emit_stubs = nullptr;

std::unique_ptr<at::ObserverContext> emit_begin(const at::RecordFunction& call) {
  emit_stubs->rangePush(call.name());
  return nullptr;
}

void emit_end(const at::RecordFunction&, at::ObserverContext*) { emit_stubs->rangePop(); }

}  // namespace

std::string emit_ranges(const std::string& to) {
  emit_stubs = to == "itt" ? torch::profiler::impl::ittStubs() : torch::profiler::impl::cudaStubs();
  if (!emit_stubs->enabled()) return "this build of torch has no " + to;
  emitter = at::addGlobalCallback(at::RecordFunctionCallback(&emit_begin, &emit_end).scopes(recorded_scopes()));
  return "";
}

void stop_emitting() {
  if (emitter == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(emitter);
  emitter = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace torchreel
