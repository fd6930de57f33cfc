#include "tape/replay/plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <sstream>

#include "tape/capture/slots.h"
#include "tape/replay/numbers.h"
#include "tape/steps/collectives.h"
#include "tape/steps/enums.h"

namespace torchreel::tape {

namespace {

// The anchor has the same storage. It may have another dtype, or a conjugate bit, which the slot has not.
at::Tensor view_of(const at::Tensor& anchor, const PlanSlot& slot) {
  // A file may be damaged, and an op may return another storage than it did.
  auto* impl = anchor.unsafeGetTensorImpl();
  if (!anchor.defined() || slot.extent > impl->unsafe_storage().nbytes()) {
    throw std::runtime_error("A view reaches beyond the memory that it is of.");
  }
  auto keys = impl->key_set() - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl->unsafe_storage()),
                                                       keys, c10::scalarTypeToTypeMeta(slot.dtype));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(slot.sizes, slot.strides, slot.offset);
  return view;
}

at::Tensor shallow_copy(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), false));
}

std::string geometry_of(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  std::ostringstream text;
  text << dtype_name(dtype) << ' ' << sizes << " with strides " << strides;
  return text.str();
}

template <class Visit>
void for_each_result(const Step& step, Visit visit) {
  for (const auto& gave : step.gave) {
    for (uint32_t slot : gave.slots) {
      if (slot != kNone) visit(slot);
    }
  }
}

// Of the arguments, then of the results.
template <class Visit>
void for_each_slot(const Step& step, Visit visit) {
  for (const auto& given : step.given) {
    for (uint32_t slot : given.slots) {
      if (slot != kNone) visit(slot);
    }
  }
  for_each_result(step, visit);
}

// Dispatch keys that ops of a replay skip: no autograd and no autocast, whatever the caller has switched on.
constexpr auto kAbove = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

bool nobody_listens() {
  auto included = c10::impl::tls_local_dispatch_key_set().included_;
  auto usual = c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});
  return (included - usual - kAbove).empty() && !at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
}

// Whether the call meets only the backend for dense CPU tensors.
bool is_dense_cpu(const torch::jit::Stack& stack) {
  auto keys = c10::DispatchKeySet();
  bool tensors = false;
  auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    tensors = true;
    keys = keys | tensor.key_set();
  };
  for (const auto& value : stack) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isList()) {
      for (const auto& element : value.toListRef()) {
        if (element.isTensor()) add(element.toTensor());
      }
    }
  }
  return tensors && (keys - kAbove) == c10::DispatchKeySet(c10::DispatchKey::CPU);
}

}  // namespace

Plan::Plan(std::vector<PlanSlot> slots)
    : slots_(std::move(slots)), values_(slots_.size()), anchors_(slots_.size(), kNone) {
  stack_.reserve(64);
}

bool Plan::is_elided(const Step& step, const std::vector<bool>& reshaped) const {
  if (!step.op->view || step.given.empty() || step.given[0].kind != Given::kSlot) return false;
  const auto& base = slots_[step.given[0].slots[0]];
  if (!base.strided || reshaped[base.storage]) return false;
  for (const auto& gave : step.gave) {
    if (gave.kind != Gave::kSlot && gave.kind != Gave::kSlots) return false;
    for (uint32_t slot : gave.slots) {
      if (slot == kNone) return false;
      const auto& view = slots_[slot];
      if (!view.strided || view.storage != base.storage || view.dtype != base.dtype) return false;
    }
  }
  return true;
}

void Plan::close(const std::vector<uint32_t>& kept) {
  size_t ops = 0;
  for (const auto& step : steps_) ops = std::max<size_t>(ops, step.index + 1);
  numbers_.assign(ops, 0);
  leave_out_views();
  sort_slots();
  set_frees(last_uses(kept));
  find_written();
  storages_.assign(slots_.size(), nullptr);
}

// By storage: whether an op changes the shape or the storage of a tensor on it in place.
std::vector<bool> Plan::find_reshaped() const {
  uint32_t storages = 0;
  for (const auto& slot : slots_) storages = std::max(storages, slot.storage + 1);
  std::vector<bool> reshaped(storages, false);
  for (const auto& step : steps_) {
    if (!step.op->reshapes) continue;
    for_each_slot(step, [&](uint32_t slot) { reshaped[slots_[slot].storage] = true; });
  }
  return reshaped;
}

// Drops the steps that only make views. value() makes such a view when it is needed, from its anchor: the first tensor
// of the same storage that really exists.
void Plan::leave_out_views() {
  auto reshaped = find_reshaped();
  std::vector<uint32_t> first(reshaped.size(), kNone);  // by storage
  std::vector<bool> exists(slots_.size(), false);
  auto note = [&](uint32_t slot) {
    auto& anchor = first[slots_[slot].storage];
    if (anchor == kNone) anchor = slot;
  };
  for (uint32_t slot = 0; slot < slots_.size(); slot++) {
    if (!slots_[slot].external) continue;
    exists[slot] = true;
    note(slot);
  }
  std::vector<Step> steps;
  for (auto& step : steps_) {
    if (is_elided(step, reshaped)) {
      for_each_result(step, [&](uint32_t slot) {
        if (!exists[slot]) anchors_[slot] = first[slots_[slot].storage];
      });
      continue;
    }
    for_each_result(step, [&](uint32_t slot) {
      note(slot);
      if (anchors_[slot] == kNone) exists[slot] = true;
    });
    steps.push_back(std::move(step));
  }
  steps_ = std::move(steps);
}

bool Plan::is_state(uint32_t slot) const { return slots_[slot].external && !slots_[slot].input; }

// Views of state stay from run to run, and all else but the state itself is dropped after a run.
void Plan::sort_slots() {
  for (uint32_t slot = 0; slot < slots_.size(); slot++) {
    if (anchors_[slot] != kNone && is_state(anchors_[slot])) {
      persistent_.push_back(slot);
    } else if (!is_state(slot)) {
      transient_.push_back(slot);
    }
  }
}

// By slot: the last step that uses it or a view of it, -1 for none. The number of steps for those that are `kept`.
std::vector<int64_t> Plan::last_uses(const std::vector<uint32_t>& kept) const {
  std::vector<int64_t> last(slots_.size(), -1);
  auto use = [&](uint32_t slot, size_t step) {
    auto at = static_cast<int64_t>(step);
    last[slot] = at;
    if (anchors_[slot] != kNone) last[anchors_[slot]] = std::max(last[anchors_[slot]], at);
  };
  for (size_t i = 0; i < steps_.size(); i++) {
    for_each_slot(steps_[i], [&](uint32_t slot) { use(slot, i); });
  }
  for (uint32_t slot : kept) {
    if (slot != kNone) use(slot, steps_.size());
  }
  return last;
}

void Plan::set_frees(const std::vector<int64_t>& last) {
  for (auto& step : steps_) step.frees.clear();
  for (uint32_t slot : transient_) {
    if (last[slot] >= 0 && last[slot] < static_cast<int64_t>(steps_.size())) steps_[last[slot]].frees.push_back(slot);
  }
}

void Plan::find_written() {
  std::vector<bool> written(slots_.size(), false);
  for (const auto& step : steps_) {
    for (size_t i = 0; i < step.given.size(); i++) {
      if (!step.op->written[i]) continue;
      for (uint32_t slot : step.given[i].slots) {
        if (slot == kNone) continue;
        uint32_t owner = anchors_[slot] != kNone ? anchors_[slot] : slot;
        if (slots_[owner].external && !written[owner]) written_.push_back(owner);
        written[owner] = true;
      }
    }
  }
}

const at::Tensor& Plan::value(uint32_t slot) {
  auto& value = values_[slot];
  if (!value.defined() && anchors_[slot] != kNone) value = view_of(values_[anchors_[slot]], slots_[slot]);
  return value;
}

void Plan::check_state() const {
  for (uint32_t slot = 0; slot < slots_.size(); slot++) {
    const auto& wanted = slots_[slot];
    if (!wanted.external || !wanted.strided) continue;
    const auto& tensor = values_[slot];
    if (!tensor.defined()) throw StateFailure{slot, "", ""};
    auto* impl = tensor.unsafeGetTensorImpl();
    bool same = c10::typeMetaToScalarType(impl->dtype()) == wanted.dtype &&
                impl->sizes() == c10::IntArrayRef(wanted.sizes) && impl->strides() == c10::IntArrayRef(wanted.strides);
    if (same) continue;
    throw StateFailure{slot, geometry_of(wanted.dtype, wanted.sizes, wanted.strides),
                       geometry_of(tensor.scalar_type(), tensor.sizes(), tensor.strides())};
  }
}

void Plan::check_gradients() const {
  for (const auto& binding : bindings_) {
    if (binding.kind != Binding::kGradient || binding.cleared) continue;
    if (values_[binding.owner].grad().defined()) throw GradientFailure{binding.owner};
  }
}

void Plan::apply_bindings() {
  for (const auto& binding : bindings_) {
    auto& owner = values_[binding.owner];
    at::Tensor given = binding.value == kNone ? at::Tensor() : value(binding.value);
    switch (binding.kind) {
      case Binding::kGradient: owner.mutable_grad() = given; break;
      case Binding::kData: owner.set_data(given); break;
      case Binding::kCopy: owner.copy_(given); break;
    }
  }
  for (uint32_t slot : written_) {
    auto* impl = values_[slot].unsafeGetTensorImpl();
    if (!impl->is_inference()) impl->bump_version();
  }
}

// A tensor of the state may have got another storage since the last run.
void Plan::forget_stale_views() {
  for (uint32_t slot : persistent_) {
    uint32_t anchor = anchors_[slot];
    const void* storage = values_[anchor].unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    if (storages_[slot] == storage) continue;
    values_[slot].reset();
    storages_[slot] = storage;
  }
}

void Plan::clear() {
  for (uint32_t slot : transient_) values_[slot].reset();
}

bool Plan::is_external(const at::Tensor& tensor) const {
  for (uint32_t slot = 0; slot < slots_.size(); slot++) {
    if (slots_[slot].external && values_[slot].is_same(tensor)) return true;
  }
  return false;
}

void Plan::push(const Step& step, const Given& given) {
  switch (given.kind) {
    case Given::kConstant: stack_.push_back(given.constant); break;
    case Given::kSlot: {
      uint32_t slot = given.slots[0];
      const auto& tensor = value(slot);
      // Others may hold this view and must not see it change. Only a tensor of the user's changes itself.
      bool alone = step.op->reshapes && stack_.empty() && tensor.defined() && !is_external(tensor);
      stack_.emplace_back(alone ? shallow_copy(tensor) : tensor);
      break;
    }
    case Given::kSlots: {
      c10::List<at::Tensor> list;
      list.reserve(given.slots.size());
      for (uint32_t slot : given.slots) list.push_back(slot == kNone ? at::Tensor() : value(slot));
      if (given.nested) {
        stack_.emplace_back(c10::List<c10::List<at::Tensor>>({list}));
      } else {
        stack_.emplace_back(std::move(list));
      }
      break;
    }
    case Given::kOptionalSlots: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(given.slots.size());
      for (uint32_t slot : given.slots) {
        list.push_back(slot == kNone ? std::nullopt : std::optional<at::Tensor>(value(slot)));
      }
      stack_.emplace_back(std::move(list));
      break;
    }
    case Given::kStorage: stack_.emplace_back(value(given.slots[0]).storage()); break;
    case Given::kFormula: stack_.emplace_back(evaluate(given.formulas[0], numbers_)); break;
    case Given::kFormulaTensor: stack_.emplace_back(number_tensor(evaluate(given.formulas[0], numbers_))); break;
    case Given::kFormulas: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const auto& formula : given.formulas) list.push_back(evaluate(formula, numbers_));
      stack_.emplace_back(std::move(list));
      break;
    }
  }
}

void Plan::call(Step& step) {
  if (step.region.has_value()) {
    auto given = stack_.back().toTensorVector();
    stack_.clear();
    stack_.emplace_back(region_(*step.region, given));
    return;
  }
  if (is_collective(step.op->name)) return run_collective(step.op->handle, &stack_);
  if (!direct_) return step.op->handle.callBoxed(&stack_);
  if (!step.looked) {
    const auto& handle = step.op->handle;
    bool direct = is_dense_cpu(stack_) && !handle.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect) &&
                  handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    if (direct) step.kernel.emplace(handle.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
    step.looked = true;
  }
  if (step.kernel.has_value()) {
    step.kernel->callBoxed(step.op->handle, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  } else {
    step.op->handle.callBoxed(&stack_);
  }
}

void Plan::check(const Step& step, uint32_t slot, const at::Tensor& tensor) {
  const auto& wanted = slots_[slot];
  if (!wanted.strided || !tensor.defined() || tensor.layout() != c10::kStrided) return;
  bool same = tensor.scalar_type() == wanted.dtype && tensor.sizes() == c10::IntArrayRef(wanted.sizes);
  if (same) return;
  throw ShapeFailure{step.index, geometry_of(wanted.dtype, wanted.sizes, wanted.strides),
                     geometry_of(tensor.scalar_type(), tensor.sizes(), tensor.strides())};
}

void Plan::take(Step& step, size_t first) {
  bool checks = step.op->varying || step.op->factory;
  for (size_t i = 0; i < step.gave.size(); i++) {
    auto& gave = step.gave[i];
    auto& value = stack_[first + i];
    if (gave.kind == Gave::kSlot) {
      if (!value.isTensor()) continue;
      if (checks) check(step, gave.slots[0], value.toTensor());
      values_[gave.slots[0]] = std::move(value).toTensor();
    } else if (gave.kind == Gave::kSlots) {
      auto tensors = value.toTensorVector();
      for (size_t j = 0; j < gave.slots.size() && j < tensors.size(); j++) {
        if (gave.slots[j] == kNone) continue;
        if (checks) check(step, gave.slots[j], tensors[j]);
        values_[gave.slots[j]] = std::move(tensors[j]);
      }
    } else if (gave.kind == Gave::kNumber) {
      if (step.keeps_number) numbers_[step.index] = value.toScalar().toDouble();
      if (step.guarded && !same_number(gave.number, value)) {
        throw GuardFailure{step.index, text_of(gave.number), text_of(value)};
      }
    }
  }
}

void Plan::note_digests(const Step& step, const std::vector<at::Tensor>& written) {
  if (step.op->view || step.op->unset) return;
  std::vector<std::optional<Digest>> all;
  std::vector<const at::Tensor*> made;
  for (const auto& gave : step.gave) {
    for (uint32_t slot : gave.slots) {
      if (slot == kNone) continue;
      made.push_back(&values_[slot]);
      all.push_back(digest_of(values_[slot]));
    }
  }
  for (const auto& tensor : written) {
    bool among = false;
    for (const auto* other : made) among = among || other->is_same(tensor);
    if (!among) all.push_back(digest_of(tensor));
  }
  digests_.emplace_back(step.index, std::move(all));
}

void Plan::run(bool digests) {
  c10::impl::ExcludeDispatchKeyGuard guard(kAbove);
  c10::AutoGradMode grad(true);
  direct_ = nobody_listens();
  digests_.clear();
  check_state();
  check_gradients();
  forget_stale_views();
  bool is_on = true;
  for (auto& step : steps_) {
    if (step.grad != is_on) at::GradMode::set_enabled(is_on = step.grad);
    stack_.clear();
    std::vector<at::Tensor> written;
    try {
      for (const auto& given : step.given) push(step, given);
      if (digests) {
        for (size_t i = 0; i < step.given.size(); i++) {
          if (!step.op->written[i]) continue;
          for (uint32_t slot : step.given[i].slots) {
            if (slot != kNone) written.push_back(value(slot));
          }
        }
      }
      call(step);
      take(step, stack_.size() - step.gave.size());
    } catch (const GuardFailure&) {
      throw;
    } catch (const ShapeFailure&) {
      throw;
    } catch (const c10::Error& error) {
      throw OpFailure{step.index, error.what_without_backtrace()};
    } catch (const std::exception& error) {
      throw OpFailure{step.index, error.what()};
    }
    if (digests) note_digests(step, written);
    for (uint32_t slot : step.frees) values_[slot].reset();
  }
  stack_.clear();
  apply_bindings();
}

}  // namespace torchreel::tape
