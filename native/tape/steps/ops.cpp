#include "tape/steps/ops.h"

#include <ATen/core/enum_tag.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tape/steps/collectives.h"

namespace torchreel::tape {

namespace {

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  for (const auto& inner : type.containedTypes()) {
    if (holds_tensors(*inner)) return true;
  }
  return false;
}

bool gives_views(const c10::FunctionSchema& schema) {
  if (schema.arguments().empty() || schema.returns().empty()) return false;
  const auto* self = schema.arguments()[0].alias_info();
  if (self == nullptr || self->isWrite()) return false;
  for (const auto& result : schema.returns()) {
    if (result.alias_info() == nullptr || result.alias_info()->isWrite()) return false;
  }
  for (size_t i = 1; i < schema.arguments().size(); i++) {
    const auto* other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->isWrite()) return false;
  }
  return true;
}

// They return a new tensor or a view, as the case may be, or views that depend on values. Their schemas do not say so.
const std::unordered_set<std::string> kMayGiveViews = {"aten::reshape", "aten::contiguous", "aten::to", "aten::flatten",
                                                       "aten::tensor_split"};
const std::unordered_set<std::string> kReshapes = {"aten::resize_",
                                                   "aten::resize_as_",
                                                   "aten::set_",
                                                   "aten::set_data",
                                                   "aten::resize_as_sparse_",
                                                   "aten::sparse_resize_",
                                                   "aten::sparse_resize_and_clear_",
                                                   "aten::copy_sparse_to_sparse_"};

}  // namespace

OpInfo::OpInfo(c10::OperatorHandle op)
    : handle(op), operator_name(op.operator_name()), schema(&op.schema()), name(c10::toString(op.operator_name())) {
  const auto& schema = handle.schema();
  arguments = schema.arguments().size();
  results = schema.returns().size();
  const auto& base = schema.name();
  random = handle.hasTag(at::Tag::nondeterministic_seeded);
  view = gives_views(schema) && kMayGiveViews.count(base) == 0;
  reshapes = handle.hasTag(at::Tag::inplace_view) || kReshapes.count(base) != 0;
  unset = base.starts_with("aten::empty") || base.starts_with("aten::new_empty") || base.starts_with("aten::_empty") ||
          base.starts_with("aten::resize");
  blank = unset && !base.starts_with("aten::resize");
  shallow = view || blank || reshapes || base.ends_with("_like") || base.starts_with("aten::new_");
  silent = base.starts_with("profiler::");
  bool aten = base.starts_with("aten::");
  varying = (!aten && !is_collective(base)) || handle.hasTag(at::Tag::dynamic_output_shape) ||
            handle.hasTag(at::Tag::data_dependent_output);
  // An op that is not torch's may do its work without other ops, whatever it is registered as.
  parts = aten && handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
          !handle.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  factory = true;
  for (const auto& argument : schema.arguments()) {
    written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    if (holds_tensors(*argument.type())) factory = false;
    if (argument.type()->kind() == c10::TypeKind::GeneratorType) random = true;
    if (argument.type()->str() == "Generator?") random = true;
  }
  if (writes_first(base)) written[0] = true;
}

const OpInfo& info_of(const c10::OperatorHandle& op) {
  // Each recorded call asks for it: a cache by address of the schema, without a lock.
  static std::array<std::atomic<const OpInfo*>, 4096> recent{};
  const void* schema = &op.schema();
  auto& entry = recent[(reinterpret_cast<uintptr_t>(schema) * 0x9e3779b97f4a7c15 >> 48) % recent.size()];
  const OpInfo* found = entry.load(std::memory_order_acquire);
  // A library may be unloaded, and another op get the address of its schema.
  auto is_it = [&](const OpInfo& info) { return info.schema == schema && info.operator_name == op.operator_name(); };
  if (found != nullptr && is_it(*found)) return *found;
  static std::mutex mutex;
  static std::unordered_map<const void*, const OpInfo*> all;  // never freed: tapes point to them
  std::lock_guard lock(mutex);
  auto& info = all[schema];
  if (info == nullptr || !is_it(*info)) info = new OpInfo(op);
  entry.store(info, std::memory_order_release);
  return *info;
}

const OpInfo& op_named(const char* name, const char* overload) {
  return info_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

const OpInfo& op_named(const std::string& name) {
  auto dot = name.find('.', name.find("::"));
  auto op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!op.has_value()) throw std::invalid_argument("There is no op " + name + " in this process.");
  return info_of(*op);
}

}  // namespace torchreel::tape
