#include "record/inputs.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <bit>
#include <cstring>

#include "record/names.h"
#include "record/recording.h"
#include "record/spool.h"

namespace torchreel {

using namespace layout;

namespace {

// Writes arguments up to a limit; what does not fit is replaced by kCut.
class Encoder {
 public:
  explicit Encoder(uint64_t* words) : begin_(words), at_(words), end_(words + kMaxInlineWords) {}

  void value(const c10::IValue& value) {
    if (at_ >= end_) return cut();
    if (value.isTensor()) return tensor(value.toTensor());
    if (value.isNone()) return head(kNothing);
    if (value.isInt()) return head(kInt), word(static_cast<uint64_t>(value.toInt()));
    if (value.isDouble()) return head(kDouble), word(bits(value.toDouble()));
    if (value.isBool()) return head(kBool, 0, 0, 0, value.toBool());
    if (value.isString()) return text(value.toStringRef());
    if (value.isIntList()) return list(kIntList, value.toIntVector());
    if (value.isDoubleList()) return list(kDoubleList, value.toDoubleVector());
    if (value.isBoolList()) return bools(value.toBoolList());
    if (value.isList()) return tensors(value.toListRef());
    head(kUnknown);
  }

  void keyword(const std::string& name, const c10::IValue& value) {
    size_t bytes = std::min<size_t>(name.size(), 256);
    if (at_ + bytes / 8 + 3 >= end_) return cut();
    padded(kKeyword, name, bytes);
    this->value(value);
  }

  size_t size() const { return at_ - begin_; }

 private:
  static uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

  void word(uint64_t value) { *at_++ = value; }

  void head(uint64_t what, uint64_t dtype = 0, uint64_t dims = 0, uint64_t wide = 0, uint64_t count = 0) {
    word(what | dtype << 8 | dims << 16 | wide << 24 | count << 32);
  }

  void cut() {
    if (at_ == begin_ || at_[-1] != kCut) word(kCut);
  }

  void tensor(const at::Tensor& tensor) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (!tensor.defined()) return head(kUndefined);
    uint64_t dtype = static_cast<uint8_t>(c10::typeMetaToScalarType(impl->dtype()));
    bool plain = impl->layout() == c10::kStrided;
    bool sizeless = impl->has_symbolic_sizes_strides() || tensor.is_nested() || (!plain && !impl->is_mkldnn());
    if (TORCHREEL_UNLIKELY(sizeless)) return head(kOpaque, dtype);
    auto sizes = impl->sizes();
    bool strided = plain && !impl->is_contiguous();
    if (sizes.size() > 255 || at_ + 2 * sizes.size() + 1 >= end_) return cut();
    auto strides = strided ? impl->strides() : c10::IntArrayRef();
    uint64_t all = 0;
    for (int64_t size : sizes) all |= static_cast<uint64_t>(size);
    for (int64_t stride : strides) all |= static_cast<uint64_t>(stride);
    bool wide = all > 0x7fffffff;
    head(strided ? kStrided : kTensor, dtype, sizes.size(), wide);
    numbers(sizes, wide);
    if (strided) numbers(strides, wide);
  }

  void numbers(c10::IntArrayRef values, bool wide) {
    size_t count = values.size();
    if (wide) {
      for (int64_t value : values) word(static_cast<uint64_t>(value));
      return;
    }
    size_t i = 0;
    for (; i + 1 < count; i += 2) {
      word(static_cast<uint32_t>(values[i]) | static_cast<uint64_t>(values[i + 1]) << 32);
    }
    if (i < count) word(static_cast<uint32_t>(values[i]));
  }

  void text(const std::string& text) {
    size_t bytes = std::min<size_t>(text.size(), 256);
    if (at_ + bytes / 8 + 2 >= end_) return cut();
    padded(kText, text, bytes);
  }

  void padded(uint64_t what, const std::string& text, size_t bytes) {
    head(what, 0, 0, 0, bytes);
    at_[bytes / 8] = 0;
    memcpy(at_, text.data(), bytes);
    at_ += (bytes + 7) / 8;
  }

  template <typename Values>
  void list(uint64_t what, const Values& values) {
    if (at_ + values.size() + 1 >= end_) return cut();
    head(what, 0, 0, 0, values.size());
    for (auto value : values) {
      if constexpr (std::is_same_v<decltype(value), double>) {
        word(bits(value));
      } else {
        word(static_cast<uint64_t>(value));
      }
    }
  }

  void bools(const c10::List<bool>& values) {
    if (at_ + values.size() + 1 >= end_) return cut();
    head(kBoolList, 0, 0, 0, values.size());
    for (size_t i = 0; i < values.size(); i++) word(values.get(i));
  }

  void tensors(c10::ArrayRef<c10::IValue> values) {
    uint64_t* start = at_;
    head(kTensorList, 0, 0, 0, 0);
    size_t count = 0;
    for (const auto& value : values) {
      if (at_ >= end_) break;
      // Lists within lists are not in any operator's schema: they are said to be there, without their content.
      if (value.isList()) {
        head(kUnknown);
      } else {
        this->value(value);
      }
      count++;
    }
    *start |= static_cast<uint64_t>(count) << 32;
  }

  uint64_t* begin_;
  uint64_t* at_;
  uint64_t* end_;
};

}  // namespace

size_t encode_inputs(c10::ArrayRef<const c10::IValue> inputs, const Keywords* keywords, uint64_t* words) {
  Encoder encoder(words);
  for (const auto& input : inputs) encoder.value(input);
  if (TORCHREEL_UNLIKELY(keywords != nullptr)) {
    for (const auto& [name, value] : *keywords) encoder.keyword(name, value);
  }
  return encoder.size();
}

const InputsEntry* InputsTable::find(const uint64_t* words, size_t count, uint64_t hash) {
  std::lock_guard lock(mutex_);
  auto [first, last] = entries_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const InputsEntry& known = *entry->second;
    if (known.count == count && memcmp(known.words.get(), words, count * 8) == 0) return &known;
  }
  if (words_ + count > kMostWords) return nullptr;
  words_ += count + 8;
  auto entry = std::make_unique<InputsEntry>();
  entry->hash = hash;
  entry->id = next_++;
  entry->count = static_cast<uint32_t>(count);
  entry->words = std::make_unique<uint64_t[]>(count);
  memcpy(entry->words.get(), words, count * 8);
  spool_.define(kInputsDef, Payload().u32(entry->id).u32(entry->count).raw(words, count * 8));
  return entries_.emplace(hash, std::move(entry))->second.get();
}

namespace {

bool same(const InputsEntry* entry, const uint64_t* words, size_t count) {
  if (entry == nullptr || entry->count != count) return false;
  // A loop, not memcmp: lists are short, and most are equal.
  for (size_t i = 0; i < count; i++) {
    if (entry->words[i] != words[i]) return false;
  }
  return true;
}

}  // namespace

uint64_t* put_inputs(Stream* stream, uint64_t* at, c10::ArrayRef<const c10::IValue> inputs, const Keywords* keywords,
                     uint32_t name, uint32_t* id) {
  InputsCache* cache = stream->inputs;
  uint64_t* words = at + 2;  // where they stand if they must stand in the stream
  size_t count = encode_inputs(inputs, keywords, words);
  const InputsEntry*& last = cache->last[name % InputsCache::kNames];
  if (TORCHREEL_LIKELY(same(last, words, count))) {
    *id = last->id;
    return at;
  }
  uint64_t hash = hash_words(words, count);
  const InputsEntry* known = cache->entries.find(hash);
  if (known == nullptr || known->hash != hash || !same(known, words, count)) {
    known = stream->recording->inputs.find(words, count, hash);
    if (known == nullptr) {
      *id = kNone;
      at[0] = kInputs;
      at[1] = count;
      return words + count;
    }
    cache->entries.missed(hash) = known;
  }
  last = known;
  *id = known->id;
  return at;
}

void InputsTable::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace torchreel
