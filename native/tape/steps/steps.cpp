#include "tape/steps/steps.h"

#include <ATen/EmptyTensor.h>
#include <pybind11/stl.h>

#include "tape/capture/slots.h"
#include "tape/steps/enums.h"

namespace py = pybind11;

namespace torchreel::tape {

namespace {

std::string kind_of(const py::handle& value) { return py::str(py::type::of(value).attr("__name__")); }

uint32_t slot_number(const py::handle& value) { return value.is_none() ? kNone : value.attr("slot").cast<uint32_t>(); }

c10::IValue number_of(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (kind_of(value) == "Complex") {
    return c10::complex<double>(value.attr("real").cast<double>(), value.attr("imag").cast<double>());
  }
  throw std::runtime_error("A number was expected, not " + kind_of(value) + ".");
}

Formula formula_of(const py::handle& value) {
  Formula formula;
  if (kind_of(value) != "Formula") {
    formula.steps.push_back({Formula::kNumber, value.cast<double>()});
    return formula;
  }
  int depth = 0;
  for (const auto& word : value.attr("postfix")) {
    if (!py::isinstance<py::str>(word)) {
      formula.steps.push_back({Formula::kNumber, word.cast<double>()});
      depth++;
    } else {
      auto text = word.cast<std::string>();
      Formula::Kind kind = text == "sub"    ? Formula::kSub
                           : text == "mul"  ? Formula::kMul
                           : text == "div"  ? Formula::kDiv
                           : text == "pow"  ? Formula::kPow
                           : text == "neg"  ? Formula::kNeg
                           : text == "sqrt" ? Formula::kSqrt
                                            : Formula::kItem;
      double number = 0;
      if (kind == Formula::kItem) {
        if (!text.starts_with("item:")) throw std::runtime_error("A formula has no word " + text + ".");
        number = std::stod(text.substr(5));
        depth++;
      } else if (kind != Formula::kNeg && kind != Formula::kSqrt) {
        depth--;
      }
      formula.steps.push_back({kind, number});
    }
    if (depth < 1 || depth > 15) throw std::runtime_error("A formula of the program makes no sense.");
  }
  if (depth != 1) throw std::runtime_error("A formula of the program makes no sense.");
  return formula;
}

class Reader {
 public:
  explicit Reader(const Kept& kept) : kept_(kept) {}

  Given read(const py::handle& value, const c10::TypePtr& type, Meaning meaning) {
    if (type->kind() == c10::TypeKind::OptionalType) {
      if (value.is_none()) return constant(c10::IValue());
      return read(value, type->expectRef<c10::OptionalType>().getElementType(), meaning);
    }
    std::string kind = kind_of(value);
    if (kind == "Formula") {
      bool tensor = type->kind() == c10::TypeKind::TensorType;
      return {.kind = tensor ? Given::kFormulaTensor : Given::kFormula, .formulas = {formula_of(value)}};
    }
    if (type->kind() == c10::TypeKind::ListType && !value.is_none()) {
      return list(value, type->expectRef<c10::ListType>().getElementType(), meaning);
    }
    if (kind == "Ref") return {.kind = Given::kSlot, .slots = {slot_number(value)}};
    if (kind == "StorageOf") return {.kind = Given::kStorage, .slots = {slot_number(value)}};
    if (type->kind() == c10::TypeKind::TensorType && value.is_none()) return constant(at::Tensor());
    return constant(plain(value, kind, meaning));
  }

 private:
  static Given constant(c10::IValue value) { return {.kind = Given::kConstant, .constant = std::move(value)}; }

  c10::IValue plain(const py::handle& value, const std::string& kind, Meaning) {
    if (value.is_none()) return c10::IValue();
    if (py::isinstance<py::str>(value)) return value.cast<std::string>();
    if (kind == "Named") {
      auto name = value.attr("name").cast<std::string>();
      auto what = value.attr("kind").cast<std::string>();
      if (what == "dtype") return dtype_code(name);
      return what == "layout" ? code_in(kLayouts, name) : code_in(kMemoryFormats, name);
    }
    if (kind == "Device") return c10::Device(value.attr("name").cast<std::string>());
    if (kind == "Generator") return kept_.generators.at(value.attr("index").cast<size_t>());
    if (kind == "Object") {
      auto index = value.attr("index").cast<size_t>();
      if (index >= kept_.objects.size()) {
        throw std::runtime_error(
            "An argument is neither tensor nor plain data, and only the process that traced it has it.");
      }
      return kept_.objects[index];
    }
    return number_of(value);
  }

  Given list(const py::handle& value, const c10::TypePtr& element, Meaning meaning) {
    if (kind_of(value) == "Object") return constant(plain(value, "Object", meaning));
    auto kind = element->kind();
    bool optional = kind == c10::TypeKind::OptionalType &&
                    element->expectRef<c10::OptionalType>().getElementType()->kind() == c10::TypeKind::TensorType;
    if (kind == c10::TypeKind::TensorType || optional) {
      Given given{.kind = optional ? Given::kOptionalSlots : Given::kSlots};
      for (const auto& each : value) given.slots.push_back(slot_number(each));
      return given;
    }
    if (kind == c10::TypeKind::ListType) return nested(value, element->expectRef<c10::ListType>().getElementType());
    bool formulas = false;
    for (const auto& each : value) formulas = formulas || kind_of(each) == "Formula";
    if (formulas) {
      Given given{.kind = Given::kFormulas};
      for (const auto& each : value) given.formulas.push_back(formula_of(each));
      return given;
    }
    c10::impl::GenericList all(element->kind() == c10::TypeKind::SymIntType ? c10::IntType::get() : element);
    for (const auto& each : value) all.push_back(plain(each, kind_of(each), meaning));
    if (element->kind() == c10::TypeKind::FloatType) return constant(c10::impl::toTypedList<double>(all));
    if (element->kind() == c10::TypeKind::BoolType) return constant(c10::impl::toTypedList<bool>(all));
    if (element->kind() == c10::TypeKind::IntType || element->kind() == c10::TypeKind::SymIntType) {
      return constant(c10::impl::toTypedList<int64_t>(all));
    }
    return constant(all);
  }

  Given nested(const py::handle& value, const c10::TypePtr& element) {
    if (element->kind() != c10::TypeKind::TensorType || py::len(value) != 1) {
      throw std::runtime_error("An argument is a list of several lists, and none is known that can be replayed.");
    }
    Given given{.kind = Given::kSlots, .nested = true};
    for (const auto& list : value) {
      for (const auto& each : list) given.slots.push_back(slot_number(each));
    }
    return given;
  }

  const Kept& kept_;
};

Gave gave_of(const py::handle& value) {
  if (value.is_none()) return {};
  std::string kind = kind_of(value);
  if (kind == "Ref") return {.kind = Gave::kSlot, .slots = {slot_number(value)}};
  if (py::isinstance<py::list>(value)) {
    Gave gave{.kind = Gave::kSlots};
    for (const auto& each : value) {
      if (!each.is_none() && kind_of(each) != "Ref") return {};  // a list of numbers is not compared
      gave.slots.push_back(slot_number(each));
    }
    return gave;
  }
  if (kind == "Object" || kind == "Named" || kind == "str" || kind == "Device") return {};
  return {.kind = Gave::kNumber, .number = number_of(value)};
}

}  // namespace

Step step_of(const py::handle& op, uint32_t index, const Kept& kept) {
  Step step;
  step.index = index;
  auto name = op.attr("name").cast<std::string>();
  auto dot = name.find('.', name.find("::"));
  c10::OperatorName wanted(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  auto handle = c10::Dispatcher::singleton().findSchema(wanted);
  if (!handle.has_value()) throw std::runtime_error("There is no op " + name + " in this process.");
  step.op = &info_of(*handle);
  step.guarded = op.attr("guarded").cast<bool>();
  step.grad = op.attr("grad").cast<bool>();
  py::list arguments = op.attr("args");
  py::list results = op.attr("results");
  const auto& schema = step.op->handle.schema();
  if (arguments.size() != schema.arguments().size() || results.size() != schema.returns().size()) {
    throw std::runtime_error("The op " + name + " has another schema in this torch: " + c10::toString(schema) + ".");
  }
  Reader reader(kept);
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto& argument = schema.arguments()[i];
    step.given.push_back(reader.read(arguments[i], argument.type(), meaning_of(argument)));
  }
  for (const auto& result : results) step.gave.push_back(gave_of(result));
  if (name == "torchreel::opaque") step.region = arguments[0].cast<int64_t>();
  step.keeps_number = !step.guarded;
  return step;
}

PlanSlot slot_of(const py::handle& slot) {
  PlanSlot made;
  made.storage = slot.attr("storage").cast<uint32_t>();
  auto role = slot.attr("role").cast<std::string>();
  made.external = role != "made";
  made.input = role == "input";
  made.dtype = static_cast<c10::ScalarType>(dtype_code(slot.attr("dtype").cast<std::string>()));
  made.conjugate = slot.attr("conjugate").cast<bool>();
  made.negative = slot.attr("negative").cast<bool>();
  for (const auto& size : slot.attr("sizes")) made.sizes.push_back(size.cast<int64_t>());
  for (const auto& stride : slot.attr("strides")) made.strides.push_back(stride.cast<int64_t>());
  bool dense = slot.attr("layout").cast<std::string>() == "strided" && made.sizes.size() == made.strides.size() &&
               !c10::isQIntType(made.dtype);
  made.strided = dense && !made.conjugate && !made.negative;
  made.unplanned = !dense || slot.attr("device").cast<std::string>() != "cpu";
  made.offset = slot.attr("offset").cast<int64_t>();
  if (dense) {
    made.extent = at::detail::computeStorageNbytes(made.sizes, made.strides, c10::elementSize(made.dtype), made.offset);
  }
  return made;
}

}  // namespace torchreel::tape
