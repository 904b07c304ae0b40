#include "tensor.hpp"

#include <nanobind/ndarray.h>

#include <array>
#include <cstring>
#include <string>

#include "flashoverlap/error.hpp"

namespace nb = nanobind;

namespace flashoverlap::python {
namespace {

constexpr std::int32_t host_device = 1;
constexpr std::int32_t cuda_device = 2;
constexpr std::int32_t pinned_host_device = 3;

/// What the capsule `__dlpack_c_exchange_api__` of a tensor's Python type points to: DLPack's ABI, version 1
/// (dmlc.github.io/dlpack). Twenty times faster than `__dlpack__`.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  ExchangeApi* previous;
  void* allocate;
  void* managed_tensor_from_object;
  void* object_from_managed_tensor;
  /// 0, or −1 with a Python exception. The tensor belongs to the object.
  int (*tensor_from_object)(void* object, nb::dlpack::dltensor* tensor);
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** stream);
};

/// Null where the type has none.
const ExchangeApi* exchange_api(nb::handle object) {
  // Of the type that was asked for last, which is nearly always the next one's too.
  static PyObject* last_type = nullptr;
  static const ExchangeApi* last = nullptr;
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (type == last_type) return last;
  const nb::object capsule = nb::getattr(nb::handle(type), "__dlpack_c_exchange_api__", nb::none());
  const ExchangeApi* found = nullptr;
  if (!capsule.is_none()) {
    found = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (found == nullptr) PyErr_Clear();
    if (found != nullptr && found->major != 1) found = nullptr;
  }
  Py_INCREF(type);  // so that no other type takes its address; there are few
  last_type = type;
  return last = found;
}

/// As NumPy and PyTorch call it.
std::string name_of(const nb::dlpack::dtype& type) {
  constexpr std::array names{"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  if (type.code >= names.size()) return fmt::format("float{}", type.bits);  // in one of many formats
  const std::string_view name = names[type.code];
  return name == "bool" ? "bool" : fmt::format("{}{}", name, type.bits);
}

DataType data_type_of(const nb::dlpack::dtype& type, std::string_view name) {
  constexpr auto floating = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float);
  constexpr auto bfloat = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat);
  if (type == nb::dlpack::dtype{bfloat, 16, 1}) return DataType::bf16;
  if (type == nb::dlpack::dtype{floating, 16, 1}) return DataType::fp16;
  if (type == nb::dlpack::dtype{floating, 32, 1}) return DataType::fp32;
  throw nb::type_error(
      fmt::format("data type of {} = {}: must be bfloat16, float16 or float32", name, name_of(type)).c_str());
}

std::string text_of(const nb::object& object) { return nb::str(object).c_str(); }

/// For an object that shows no memory. `reason`: what it says itself, in many lines.
[[noreturn]] void refuse(nb::handle object, std::string_view name, std::string reason) {
  if (nb::hasattr(object, "layout") && nb::hasattr(object, "device")) {  // PyTorch's
    const std::string layout = text_of(object.attr("layout"));
    const std::string device = text_of(object.attr("device").attr("type"));
    const bool is_strided = layout == "torch.strided";
    if (!is_strided || (device != "cpu" && device != "cuda"))
      reason = "must be dense, in the memory of a CPU or GPU, not " +
               (is_strided ? device : layout.substr(layout.find('.') + 1));
  }
  throw nb::type_error(fmt::format("{}: {}", name, reason.substr(0, reason.find('\n'))).c_str());
}

/// Why an object has no DLPack.
std::string reason_of(nb::handle object) {
  try {
    if (nb::hasattr(object, "__dlpack__")) object.attr("__dlpack__")();
  } catch (const nb::python_error& error) {
    return text_of(nb::borrow(error.value()));
  }
  return "must be a matrix that speaks DLPack, as of NumPy, PyTorch or CuPy, not " +
         text_of(nb::handle(object.type()).attr("__name__"));
}

/// On which the object's framework works now; null, the default stream, where that is not known.
void* current_stream(nb::handle object, int device) {
  const auto number = [](const nb::object& of_stream) {
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(of_stream));
  };
  if (nb::hasattr(object, "is_cuda"))  // PyTorch's, before it had the exchange API
    return number(nb::module_::import_("torch.cuda").attr("current_stream")(device).attr("cuda_stream"));
  const auto module = nb::cast<std::string>(nb::handle(object.type()).attr("__module__"));
  if (module.starts_with("cupy"))
    return number(nb::module_::import_("cupy.cuda").attr("get_current_stream")().attr("ptr"));
  return nullptr;
}

Tensor tensor_of(const nb::dlpack::dltensor& source, std::string_view name) {
  if (source.ndim != 2)
    throw nb::value_error(fmt::format("{}: must have 2 dimensions, not {}", name, source.ndim).c_str());
  const std::int32_t device = source.device.device_type;
  if (device != host_device && device != cuda_device && device != pinned_host_device)
    throw nb::type_error(fmt::format("{}: must be in host memory or on an NVIDIA GPU", name).c_str());
  if (source.data == nullptr && source.shape[0] * source.shape[1] > 0) {
    throw nb::type_error(
        fmt::format("{}: must have memory, which fake and wrapping tensors lack", name).c_str());
  }
  return {.data = static_cast<std::byte*>(source.data) + source.byte_offset,
          .rows = source.shape[0],
          .cols = source.shape[1],
          .row_stride = source.strides == nullptr ? source.shape[1] : source.strides[0],
          .col_stride = source.strides == nullptr ? 1 : source.strides[1],
          .data_type = data_type_of(source.dtype, name),
          .on_gpu = source.device.device_type == cuda_device,
          .device = source.device.device_id};
}

}  // namespace

Tensor tensor_of(nb::handle object, std::string_view name) {
  if (const ExchangeApi* const api = exchange_api(object)) {
    nb::dlpack::dltensor source;
    if (api->tensor_from_object(object.ptr(), &source) != 0) {
      const nb::python_error error;
      refuse(object, name, text_of(nb::borrow(error.value())));
    }
    Tensor tensor = tensor_of(source, name);
    if (tensor.on_gpu && api->current_stream(cuda_device, tensor.device, &tensor.stream) != 0)
      throw nb::python_error();
    return tensor;
  }
  nb::ndarray<> writable;
  nb::ndarray<nb::ro> array;
  const bool is_read_only = !nb::try_cast(object, writable);
  if (!nb::try_cast(object, array)) refuse(object, name, reason_of(object));
  nb::dlpack::dltensor source;
  std::int64_t shape[2]{};
  std::int64_t strides[2]{};
  for (std::size_t dimension = 0; dimension < 2 && dimension < array.ndim(); ++dimension) {
    shape[dimension] = static_cast<std::int64_t>(array.shape(dimension));
    strides[dimension] = array.stride(dimension);
  }
  source.data = const_cast<void*>(array.data());
  source.ndim = static_cast<std::int32_t>(array.ndim());
  source.shape = shape;
  source.strides = strides;
  source.dtype = array.dtype();
  source.device = {array.device_type(), array.device_id()};
  Tensor tensor = tensor_of(source, name);
  tensor.is_read_only = is_read_only;
  if (tensor.on_gpu) tensor.stream = current_stream(object, tensor.device);
  return tensor;
}

TensorLayout layout_of(const Tensor& tensor, std::string_view name, OperandLayout preferred) {
  if (tensor.rows == 0 || tensor.cols == 0)  // whose strides may be anything
    return {preferred, preferred == OperandLayout::k_contiguous ? tensor.cols : tensor.rows};
  const bool one_row = tensor.rows <= 1;
  const bool one_col = tensor.cols <= 1;
  const bool by_row = (tensor.col_stride == 1 || one_col) && (one_row || tensor.row_stride >= tensor.cols);
  const bool by_col = (tensor.row_stride == 1 || one_row) && (one_col || tensor.col_stride >= tensor.rows);
  if (by_row && !(by_col && preferred == OperandLayout::row_contiguous))
    return {OperandLayout::k_contiguous, one_row ? tensor.cols : tensor.row_stride};
  if (by_col) return {OperandLayout::row_contiguous, one_col ? tensor.rows : tensor.col_stride};
  throw InvalidArgument(fmt::format("strides of {}", name),
                        fmt::format("({}, {})", tensor.row_stride, tensor.col_stride),
                        "must be 1 along one dimension");
}

void require_operand(const Tensor& tensor, const Shape& shape, OperandLayout layout, std::int64_t least_rows,
                     DataType data_type, std::string_view name) {
  if (tensor.data_type != data_type) {
    throw InvalidArgument(fmt::format("data type of {}", name), flashoverlap::name(tensor.data_type),
                          fmt::format("must be {}", flashoverlap::name(data_type)));
  }
  const bool by_row = layout == OperandLayout::k_contiguous;
  const std::int64_t rows = by_row ? shape.rows : shape.cols;
  const std::int64_t cols = by_row ? shape.cols : shape.rows;
  const std::int64_t least = by_row ? least_rows : rows;
  if (tensor.rows < least || tensor.rows > rows || tensor.cols != cols) {
    throw InvalidArgument(fmt::format("shape of {}", name), fmt::format("({}, {})", tensor.rows, tensor.cols),
                          least < rows ? fmt::format("must be ({} to {}, {})", least, rows, cols)
                                       : fmt::format("must be ({}, {})", rows, cols));
  }
}

Matrix copy_to_host_matrix(const Tensor& tensor, DataType data_type, OperandLayout layout,
                           std::string_view name) {
  require(!tensor.on_gpu, name, "a matrix on a GPU", "must be in host memory for ranks on the host");
  require(tensor.data_type == data_type, fmt::format("data type of {}", name),
          flashoverlap::name(tensor.data_type), fmt::format("must be {}", flashoverlap::name(data_type)));
  const auto [found, pitch] = layout_of(tensor, name, layout);
  require(found == layout, fmt::format("strides of {}", name),
          fmt::format("({}, {})", tensor.row_stride, tensor.col_stride),
          fmt::format("must be those that the operator was made for: {}", flashoverlap::name(layout)));
  const bool by_row = layout == OperandLayout::k_contiguous;
  Matrix matrix(data_type, by_row ? tensor.rows : tensor.cols, by_row ? tensor.cols : tensor.rows);
  const std::int64_t pitch_bytes = pitch * size_of(data_type);
  for (std::int64_t row = 0; row < matrix.rows(); ++row) {
    std::memcpy(matrix.row(row), static_cast<const std::byte*>(tensor.data) + row * pitch_bytes,
                static_cast<std::size_t>(matrix.row_bytes()));
  }
  return matrix;
}

void require_row_major(const Tensor& matrix, const Shape& shape, DataType data_type, std::string_view name) {
  require(matrix.rows == shape.rows && matrix.cols == shape.cols, fmt::format("shape of {}", name),
          fmt::format("({}, {})", matrix.rows, matrix.cols),
          fmt::format("must be ({}, {})", shape.rows, shape.cols));
  require(matrix.data_type == data_type, fmt::format("data type of {}", name),
          flashoverlap::name(matrix.data_type), fmt::format("must be {}", flashoverlap::name(data_type)));
  const bool rows_are_apart = matrix.rows <= 1 || matrix.row_stride >= matrix.cols;
  require((matrix.col_stride == 1 || matrix.cols <= 1) && rows_are_apart, fmt::format("strides of {}", name),
          fmt::format("({}, {})", matrix.row_stride, matrix.col_stride),
          "must be those of a row-major matrix");
}

void require_result(const Tensor& out, const Shape& shape, DataType data_type, std::string_view name) {
  require_row_major(out, shape, data_type, name);
  require(!out.is_read_only, name, "a read-only matrix", "must be one that can be written");
}

}  // namespace flashoverlap::python
