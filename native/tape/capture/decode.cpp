#include "tape/capture/decode.h"

#include <pybind11/stl.h>

#include <cstring>
#include <unordered_map>

#include "base/clock.h"
#include "tape/capture/where.h"
#include "tape/steps/enums.h"

namespace py = pybind11;

namespace torchreel::tape {

namespace {

double as_double(uint64_t word) {
  double value;
  memcpy(&value, &word, 8);
  return value;
}

class Decoder {
 public:
  Decoder(Capture& capture, const py::dict& model) : capture_(capture) {
    for (const char* name :
         {"Ref", "StorageOf", "Complex", "Device", "Named", "Generator", "Object", "Op", "Slot", "Digest"}) {
      classes_.push_back(model[name]);
    }
  }

  py::dict decode() {
    find_indices();
    py::list ops;
    aliases_.assign(capture_.slots.all().size(), false);
    for (size_t i = 0; i < capture_.ops.size(); i++) {
      const auto& record = capture_.ops[i];
      if (record.results == nullptr) continue;
      for (uint32_t slot : alias_at_[i]) ops.append(alias(slot, record));
      ops.append(op(record));
    }
    py::dict all;
    all["ops"] = ops;
    all["slots"] = slots();
    all["alias_problem"] = alias_problem_;
    all["indices"] = indices_;
    return all;
  }

 private:
  enum Class { kRef, kStorageOf, kComplex, kDevice, kNamed, kGeneratorClass, kObjectClass, kOp, kSlot, kDigest };

  // The index of each record in the program, with aliases inserted before it; and the op of each node of autograd.
  void find_indices() {
    alias_at_.assign(capture_.ops.size() + 1, {});
    const auto& slots = capture_.slots.all();
    for (uint32_t slot = 0; slot < slots.size(); slot++) {
      if (slots[slot].alias_at == kNone) continue;
      size_t at = slots[slot].alias_at;
      while (at < capture_.ops.size() && capture_.ops[at].results == nullptr) at++;  // one that failed
      alias_at_[std::min(at, capture_.ops.size())].push_back(slot);
    }
    indices_.assign(capture_.ops.size(), -1);
    int64_t index = 0;
    std::unordered_map<uint32_t, uint64_t> last = {{0, capture_.begin_sequence}};
    for (size_t i = 0; i < capture_.ops.size(); i++) {
      const auto& record = capture_.ops[i];
      if (record.results == nullptr) continue;
      index += static_cast<int64_t>(alias_at_[i].size());
      indices_[i] = index++;
      if (record.inserted) continue;
      // Autograd makes a node before it calls the op: the first op after that belongs to the node.
      uint64_t& before = last[record.thread];
      if (record.sequence > before && record.sequence > 0) forward_.emplace(record.sequence, indices_[i]);
      before = record.sequence;
    }
  }

  py::object make(Class which, py::object value) { return classes_[which](std::move(value)); }

  py::object value(const uint64_t*& at, Meaning meaning) {
    uint64_t word = *at++;
    uint64_t rest = word >> 8;
    switch (static_cast<Tag>(word & 0xff)) {
      case kNothing: return py::none();
      case kTensor: return ref(rest);
      case kStorage: return make(kStorageOf, py::int_(rest));
      case kFalse: return py::bool_(false);
      case kTrue: return py::bool_(true);
      case kInt: return number(static_cast<int64_t>(*at++), meaning);
      case kDouble: return py::float_(as_double(*at++));
      case kComplexNumber: {
        double real = as_double(*at++);
        double imaginary = as_double(*at++);
        return classes_[kComplex](real, imaginary);
      }
      case kText: {
        py::str text(reinterpret_cast<const char*>(at), rest);
        at += (rest + 7) / 8;
        return text;
      }
      case kDeviceName: {
        auto type = static_cast<c10::DeviceType>(rest & 0xff);
        auto index = static_cast<c10::DeviceIndex>(static_cast<int64_t>(rest >> 8) - 1);
        return make(kDevice, py::str(c10::Device(type, index).str()));
      }
      case kList: {
        py::list values(rest);
        for (size_t i = 0; i < rest; i++) values[i] = value(at, meaning);
        return values;
      }
      case kGenerator: return make(kGeneratorClass, py::int_(rest));
      case kObject: return make(kObjectClass, py::int_(rest));
    }
    throw std::runtime_error("the tape holds a word of no meaning");
  }

  py::object number(int64_t value, Meaning meaning) {
    switch (meaning) {
      case Meaning::kDtype: return classes_[kNamed]("dtype", dtype_name(static_cast<c10::ScalarType>(value)));
      case Meaning::kLayout: return classes_[kNamed]("layout", name_in(kLayouts, static_cast<c10::Layout>(value)));
      case Meaning::kMemoryFormat:
        return classes_[kNamed]("memory_format", name_in(kMemoryFormats, static_cast<c10::MemoryFormat>(value)));
      default: return py::int_(value);
    }
  }

  py::object ref(uint64_t slot) {
    if (refs_.size() <= slot) refs_.resize(capture_.slots.all().size());
    if (!refs_[slot]) refs_[slot] = make(kRef, py::int_(slot));
    return refs_[slot];
  }

  py::list values(const uint64_t* at, const std::vector<c10::Argument>& arguments) {
    py::list all(arguments.size());
    for (size_t i = 0; i < arguments.size(); i++) all[i] = value(at, meaning_of(arguments[i]));
    return all;
  }

  int64_t time_ns(uint64_t tick) {
    return static_cast<int64_t>(end_.ns) +
           static_cast<int64_t>((static_cast<double>(tick) - static_cast<double>(end_.tick)) / ticks_per_ns());
  }

  double ticks_per_ns() {
    if (ticks_per_ns_ == 0) {
      ticks_per_ns_ =
          static_cast<double>(end_.tick - capture_.begin.tick) / static_cast<double>(end_.ns - capture_.begin.ns);
    }
    return ticks_per_ns_;
  }

  py::object op(const OpRecord& record) {
    const auto& schema = record.op->handle.schema();
    int64_t forward = -1;
    if (record.node > 0) {
      auto known = forward_.find(record.node);
      if (known != forward_.end()) forward = known->second;
    }
    py::object digests = py::none();
    if (record.digests != nullptr) {
      py::list all;
      for (const auto& digest : *record.digests) all.append(digest_row(digest));
      digests = all;
    }
    return classes_[kOp](record.op->name, values(record.arguments, schema.arguments()),
                         values(record.results, schema.returns()), record.stack,
                         record.module == kNone ? -1 : static_cast<int64_t>(record.module), forward, record.backward,
                         record.thread, time_ns(record.time), record.inserted, true, digests, record.grad);
  }

  py::object digest_row(const std::optional<Digest>& digest) {
    if (!digest.has_value()) return py::none();
    return classes_[kDigest](digest->hash, digest->norm, py::tuple(py::cast(digest->samples)));
  }

  // A view that no op made, of a storage that the tape knows.
  py::object alias(uint32_t slot, const OpRecord& record) {
    const auto& slots = capture_.slots.all();
    const auto& wanted = slots[slot];
    uint32_t base = kNone;
    for (uint32_t other = capture_.slots.storages()[wanted.storage].slots; other != kNone; other = slots[other].next) {
      bool known = other < slot && (slots[other].alias_at == kNone || aliases_[other]);
      if (known && slots[other].kind == wanted.kind) base = other;  // the oldest
    }
    if (base == kNone) {
      alias_problem_ = py::int_(slot);
      base = slot;
    }
    aliases_[slot] = true;
    py::list arguments;
    arguments.append(ref(base));
    arguments.append(numbers(wanted.geometry, wanted.dimensions));
    arguments.append(numbers(wanted.geometry + wanted.dimensions, wanted.dimensions));
    arguments.append(wanted.offset);
    py::list results;
    results.append(ref(slot));
    return classes_[kOp]("aten::as_strided", arguments, results, record.stack, -1, -1, record.backward, record.thread,
                         time_ns(record.time), true);
  }

  py::list numbers(const int64_t* first, size_t count) {
    py::list all(count);
    for (size_t i = 0; i < count; i++) all[i] = py::int_(first[i]);
    return all;
  }

  // Nested tensors claim to be strided, and have no strides.
  static std::string layout_name(const SlotRecord& slot, bool strided) {
    auto layout = static_cast<c10::Layout>(slot.layout);
    return !strided && layout == c10::kStrided ? "nested" : name_in(kLayouts, layout);
  }

  py::list slots() {
    py::list all;
    int64_t without_storage = static_cast<int64_t>(capture_.slots.storages().size());
    for (const auto& slot : capture_.slots.all()) {
      bool strided = slot.storage != kNone;
      uint64_t bytes = strided ? capture_.slots.storages()[slot.storage].bytes : 0;
      py::object number = py::none();
      bool is_number = (slot.kind & kWrappedNumber) != 0;
      bool requires_grad = false;
      if (slot.external != kNone) requires_grad = capture_.slots.externals()[slot.external].requires_grad();
      all.append(classes_[kSlot](
          strided ? static_cast<int64_t>(slot.storage) : without_storage++,
          dtype_name(static_cast<c10::ScalarType>(slot.kind & 0xff)),
          py::tuple(numbers(slot.geometry, slot.dimensions)),
          strided ? py::tuple(numbers(slot.geometry + slot.dimensions, slot.dimensions)) : py::tuple(), slot.offset,
          slot.device.str(), layout_name(slot, strided), slot.external == kNone ? "made" : "captured", "", number,
          is_number, (slot.kind & kConjugate) != 0, (slot.kind & kNegative) != 0, requires_grad, bytes));
    }
    return all;
  }

  Capture& capture_;
  std::vector<py::object> classes_;
  std::vector<py::object> refs_;
  std::vector<std::vector<uint32_t>> alias_at_;
  std::vector<bool> aliases_;
  std::vector<int64_t> indices_;
  std::unordered_map<uint64_t, int64_t> forward_;  // sequence of the next node -> op
  Moment end_ = moment(CLOCK_REALTIME);
  double ticks_per_ns_ = 0;
  py::object alias_problem_ = py::none();
};

}  // namespace

py::dict decode(Capture& capture, const py::dict& model) { return Decoder(capture, model).decode(); }

}  // namespace torchreel::tape
