#include "flashoverlap/data_type.hpp"

#include "data_type/gpu_types.hpp"
#include "flashoverlap/error.hpp"

// Each switch names every data type, so that a new one does not compile until it is known here.
namespace flashoverlap {

int size_of(DataType data_type) {
  switch (data_type) {
    case DataType::bf16:
    case DataType::fp16: return 2;
    case DataType::fp32: return 4;
  }
  return 0;
}

bool runs_on_gpus(DataType data_type) {
  switch (data_type) {
    case DataType::bf16:
    case DataType::fp16: return true;
    case DataType::fp32: return false;
  }
  return false;
}

std::string_view name(DataType data_type) {
  switch (data_type) {
    case DataType::bf16: return "bf16";
    case DataType::fp16: return "fp16";
    case DataType::fp32: return "fp32";
  }
  return "?";
}

void refuse_on_gpus(DataType data_type) {
  throw InvalidArgument("data_type", name(data_type), "must be bf16 or fp16 on GPUs");
}

}  // namespace flashoverlap
