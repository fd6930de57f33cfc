#include "decode/tables/inputs_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/spool_format.h"
#include "base/text.h"

namespace torchreel {

using namespace layout;

namespace {

// The names that torch.profiler gives the types of tensors, by c10::ScalarType.
const char* dtype_name(uint8_t dtype) {
  static const char* names[] = {"unsigned char",
                                "signed char",
                                "short int",
                                "int",
                                "long int",
                                "c10::Half",
                                "float",
                                "double",
                                "c10::complex<c10::Half>",
                                "c10::complex<float>",
                                "c10::complex<double>",
                                "bool",
                                "c10::qint8",
                                "c10::quint8",
                                "c10::qint32",
                                "c10::BFloat16",
                                "c10::quint4x2",
                                "c10::quint2x4",
                                "c10::bits1x8",
                                "c10::bits2x4",
                                "c10::bits4x2",
                                "c10::bits8",
                                "c10::bits16",
                                "c10::Float8_e5m2",
                                "c10::Float8_e4m3fn",
                                "c10::Float8_e5m2fnuz",
                                "c10::Float8_e4m3fnuz",
                                "unsigned short",
                                "unsigned int",
                                "unsigned long"};
  return dtype < std::size(names) ? names[dtype] : "tensor";
}

void append_json(std::string& out, const std::string& text) {
  out += '"';
  for (unsigned char c : valid_text(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += static_cast<char>(c);
    }
  }
  out += '"';
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[32];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

// Lists that grow item by item, as JSON.
struct Item {
  std::string dims = "[]";
  std::string strides = "[]";
  std::string dtype;
  std::string scalar;
};

class Reader {
 public:
  explicit Reader(const std::vector<uint64_t>& words) : at_(words.data()), end_(words.data() + words.size()) {}

  bool more() const { return ok_ && at_ < end_; }
  bool at_keyword() const { return (*at_ & 0xff) == kKeyword; }

  std::string keyword() { return text(*at_++ >> 32); }

  // The next argument as one JSON value; null for what has none.
  std::string value() {
    if (!more()) return "null";
    uint64_t what = *at_ & 0xff;
    if (what == kTensorList) return values();
    std::string text = item(true).scalar;
    if (what == kInt || what == kIntList) return text;
    if (what == kBool || what == kBoolList) return lower(text);
    if (what == kDouble && text != "nan" && text != "inf" && text != "-inf") return text;
    if (what == kDoubleList && text.find('n') == std::string::npos) return text;
    if (what != kText && what != kDouble && what != kDoubleList) return "null";
    std::string out;
    append_json(out, text);
    return out;
  }

  Item item(bool within_list = false) {
    uint64_t head = *at_++;
    uint64_t what = head & 0xff;
    uint8_t dtype = head >> 8 & 0xff;
    size_t dims = head >> 16 & 0xff;
    bool wide = head >> 24 & 1;
    size_t count = head >> 32;
    switch (what) {
      case kTensor:
      case kStrided: return tensor(what == kStrided, dtype, dims, wide);
      case kOpaque: return {"[]", "[]", dtype_name(dtype), ""};
      case kInt: return scalar(std::to_string(static_cast<int64_t>(word())));
      case kDouble: return scalar(number(std::bit_cast<double>(word())));
      case kBool: return scalar(count ? "True" : "False");
      case kText: return {"[]", "[]", "", text(count)};
      case kIntList: return list(count, [](uint64_t value) { return std::to_string(static_cast<int64_t>(value)); });
      case kDoubleList: return list(count, [](uint64_t value) { return number(std::bit_cast<double>(value)); });
      case kBoolList: return list(count, [](uint64_t value) { return std::string(value ? "True" : "False"); });
      case kTensorList:
        if (!within_list) return tensors(count);
        ok_ = false;
        return {};
      case kCut: return {"[]", "[]", "", "..."};
      case kUndefined:
      case kNothing:
      case kUnknown: return {};
      default: ok_ = false; return {};
    }
  }

 private:
  std::string values() {
    size_t count = *at_++ >> 32;
    std::string out = "[";
    for (size_t i = 0; i < count && more(); i++) {
      bool nested = (*at_ & 0xff) == kTensorList;
      if (nested) ok_ = false;
      out += (i > 0 ? ", " : "") + (nested ? "null" : value());
    }
    return out + "]";
  }

  // True and False as JSON has them.
  static std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return text;
  }

  uint64_t word() {
    if (at_ >= end_) {
      ok_ = false;
      return 0;
    }
    return *at_++;
  }

  static Item scalar(std::string value) { return {"[]", "[]", "Scalar", std::move(value)}; }

  std::vector<uint64_t> numbers(size_t count, bool wide) {
    std::vector<uint64_t> values;
    for (size_t i = 0; i < count && ok_; i += wide ? 1 : 2) {
      uint64_t pair = word();
      if (wide) {
        values.push_back(pair);
      } else {
        values.push_back(pair & 0xffffffff);
        if (i + 1 < count) values.push_back(pair >> 32);
      }
    }
    return values;
  }

  static std::string json(const std::vector<uint64_t>& values) {
    std::string out = "[";
    for (size_t i = 0; i < values.size(); i++) {
      if (i > 0) out += ", ";
      out += std::to_string(static_cast<int64_t>(values[i]));
    }
    return out + "]";
  }

  Item tensor(bool strided, uint8_t dtype, size_t dims, bool wide) {
    auto sizes = numbers(dims, wide);
    std::vector<uint64_t> strides;
    if (strided) {
      strides = numbers(dims, wide);
    } else {
      strides.resize(sizes.size());
      uint64_t stride = 1;
      for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = stride;
        stride *= std::max<uint64_t>(sizes[i], 1);
      }
    }
    return {json(sizes), json(strides), dtype_name(dtype), ""};
  }

  std::string text(size_t bytes) {
    size_t words = (bytes + 7) / 8;
    if (words > static_cast<size_t>(end_ - at_)) {
      ok_ = false;
      return "";
    }
    std::string value = valid_text({reinterpret_cast<const char*>(at_), bytes});
    at_ += words;
    return value;
  }

  template <typename Text>
  Item list(size_t count, Text text) {
    std::string out = "[";
    for (size_t i = 0; i < count && ok_; i++) {
      if (i > 0) out += ", ";
      out += text(word());
    }
    return {"[]", "[]", "ScalarList", out + "]"};
  }

  Item tensors(size_t count) {
    Item all{"[", "[", "TensorList", ""};
    for (size_t i = 0; i < count && more(); i++) {
      Item one = item(true);
      if (i > 0) {
        all.dims += ", ";
        all.strides += ", ";
      }
      all.dims += one.dims;
      all.strides += one.strides;
    }
    all.dims += "]";
    all.strides += "]";
    return all;
  }

  const uint64_t* at_;
  const uint64_t* end_;
  bool ok_ = true;
};

}  // namespace

InputsText inputs_text(const std::vector<uint64_t>& words) {
  InputsText text{"[", "[", "[", "[", ""};
  Reader reader(words);
  for (bool first = true; reader.more(); first = false) {
    if (reader.at_keyword()) {
      text.keywords += text.keywords.empty() ? "{" : ", ";
      append_json(text.keywords, reader.keyword());
      text.keywords += ": " + reader.value();
      continue;
    }
    Item item = reader.item();
    const char* comma = first ? "" : ", ";
    text.dims += comma + item.dims;
    text.strides += comma + item.strides;
    text.dtypes += comma;
    append_json(text.dtypes, item.dtype);
    text.scalars += comma;
    append_json(text.scalars, item.scalar);
  }
  text.dims += "]";
  text.strides += "]";
  text.dtypes += "]";
  text.scalars += "]";
  if (!text.keywords.empty()) text.keywords += "}";
  return text;
}

}  // namespace torchreel
