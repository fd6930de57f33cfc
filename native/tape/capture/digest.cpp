#include "tape/capture/digest.h"

#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cmath>
#include <cstring>

namespace torchreel::tape {

namespace {

constexpr uint64_t kMix = 0x9fb21c651e98df25;

uint64_t fold(uint64_t a, uint64_t b) {
  auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t word(const unsigned char* at) {
  uint64_t value;
  memcpy(&value, at, 8);
  return value;
}

constexpr int64_t kSamples = 8;

template <class T>
void values_of(const at::Tensor& dense, Digest& digest) {
  const T* data = static_cast<const T*>(dense.const_data_ptr());
  int64_t count = dense.numel();
  double squares = 0;
  for (int64_t i = 0; i < count; i++) {
    auto value = static_cast<double>(data[i]);
    squares += value * value;
  }
  digest.norm = std::sqrt(squares);
  int64_t wanted = std::min(count, kSamples);
  for (int64_t i = 0; i < wanted; i++) digest.samples.push_back(static_cast<double>(data[i * count / wanted]));
}

void numbers_of(const at::Tensor& dense, Digest& digest) {
  switch (dense.scalar_type()) {
    case c10::kFloat: return values_of<float>(dense, digest);
    case c10::kDouble: return values_of<double>(dense, digest);
    case c10::kHalf: return values_of<c10::Half>(dense, digest);
    case c10::kBFloat16: return values_of<c10::BFloat16>(dense, digest);
    case c10::kLong: return values_of<int64_t>(dense, digest);
    case c10::kInt: return values_of<int32_t>(dense, digest);
    case c10::kShort: return values_of<int16_t>(dense, digest);
    case c10::kChar: return values_of<int8_t>(dense, digest);
    case c10::kByte: return values_of<uint8_t>(dense, digest);
    case c10::kBool: return values_of<bool>(dense, digest);
    default: return;  // the hash alone
  }
}

}  // namespace

uint64_t hash_bytes(const void* bytes, size_t count, uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  uint64_t a = seed ^ kMix;
  uint64_t b = seed + count * 0x9e3779b97f4a7c15;
  size_t left = count;
  for (; left >= 16; left -= 16, at += 16) {
    a = fold(a ^ word(at), 0xa0761d6478bd642f);
    b = fold(b ^ word(at + 8), 0xe7037ed1a0b428db);
  }
  unsigned char rest[16] = {};
  memcpy(rest, at, left);
  a = fold(a ^ word(rest), kMix);
  b = fold(b ^ word(rest + 8), kMix);
  return fold(a ^ (b << 1 | b >> 63), kMix) >> 1;  // fits a signed integer of 64 bits
}

std::optional<Digest> digest_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.is_nested()) return std::nullopt;
  if (!tensor.device().is_cpu() || !tensor.has_storage() || tensor.is_quantized()) return std::nullopt;
  if (tensor._is_zerotensor() || (tensor.numel() > 0 && tensor.storage().data() == nullptr)) return std::nullopt;
  at::AutoDispatchBelowADInplaceOrView guard;
  auto plain = tensor;
  if (plain.is_conj()) plain = plain.resolve_conj();
  if (plain.is_neg()) plain = plain.resolve_neg();
  at::Tensor dense = plain.is_contiguous() ? plain : plain.contiguous();
  Digest digest{};
  auto sizes = dense.sizes();
  uint64_t seed = hash_bytes(sizes.data(), sizes.size() * 8, static_cast<uint64_t>(dense.scalar_type()));
  digest.hash = hash_bytes(dense.const_data_ptr(), dense.nbytes(), seed);
  numbers_of(dense, digest);
  return digest;
}

}  // namespace torchreel::tape
