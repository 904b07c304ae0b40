#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace flashoverlap::sm90 {

/// High half of the descriptor of a 128-byte swizzled operand: the swizzle, and 1024 bytes between patterns.
inline constexpr std::uint32_t descriptor_high = 1u << 30 | 1024 >> 4;

/// D[64,N] (+)= A[64,16] · B[N,16]ᵀ, both operands in shared memory, issued by the 128 threads of a
/// warpgroup. The accumulator's element (8j + 2(lane % 4) + c) of row (16 warp + lane / 4 + 8h) is d[4j + 2h
/// + c]. PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate operation".
///
/// `a` and `b` are the low halves of the operands' descriptors.
template <typename Element, int N, bool AIsRowContiguous, bool BIsRowContiguous>
struct Wgmma;

// The instruction names every accumulator register: lists of 8, 16, ... 128 of them, as text and as operands.
// clang-format off
#define FLASHOVERLAP_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FLASHOVERLAP_NAMES_16 FLASHOVERLAP_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FLASHOVERLAP_NAMES_24 FLASHOVERLAP_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FLASHOVERLAP_NAMES_32 FLASHOVERLAP_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FLASHOVERLAP_NAMES_40 FLASHOVERLAP_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FLASHOVERLAP_NAMES_48 FLASHOVERLAP_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASHOVERLAP_NAMES_56 FLASHOVERLAP_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FLASHOVERLAP_NAMES_64 FLASHOVERLAP_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASHOVERLAP_NAMES_72 FLASHOVERLAP_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FLASHOVERLAP_NAMES_80 FLASHOVERLAP_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FLASHOVERLAP_NAMES_88 FLASHOVERLAP_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FLASHOVERLAP_NAMES_96 FLASHOVERLAP_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASHOVERLAP_NAMES_104 FLASHOVERLAP_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FLASHOVERLAP_NAMES_112 FLASHOVERLAP_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FLASHOVERLAP_NAMES_120 FLASHOVERLAP_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FLASHOVERLAP_NAMES_128 FLASHOVERLAP_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FLASHOVERLAP_OPERANDS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define FLASHOVERLAP_OPERANDS_16 FLASHOVERLAP_OPERANDS_8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define FLASHOVERLAP_OPERANDS_24 FLASHOVERLAP_OPERANDS_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define FLASHOVERLAP_OPERANDS_32 FLASHOVERLAP_OPERANDS_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define FLASHOVERLAP_OPERANDS_40 FLASHOVERLAP_OPERANDS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define FLASHOVERLAP_OPERANDS_48 FLASHOVERLAP_OPERANDS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define FLASHOVERLAP_OPERANDS_56 FLASHOVERLAP_OPERANDS_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define FLASHOVERLAP_OPERANDS_64 FLASHOVERLAP_OPERANDS_56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define FLASHOVERLAP_OPERANDS_72 FLASHOVERLAP_OPERANDS_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define FLASHOVERLAP_OPERANDS_80 FLASHOVERLAP_OPERANDS_72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define FLASHOVERLAP_OPERANDS_88 FLASHOVERLAP_OPERANDS_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define FLASHOVERLAP_OPERANDS_96 FLASHOVERLAP_OPERANDS_88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define FLASHOVERLAP_OPERANDS_104 FLASHOVERLAP_OPERANDS_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define FLASHOVERLAP_OPERANDS_112 FLASHOVERLAP_OPERANDS_104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define FLASHOVERLAP_OPERANDS_120 FLASHOVERLAP_OPERANDS_112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define FLASHOVERLAP_OPERANDS_128 FLASHOVERLAP_OPERANDS_120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

#define FLASHOVERLAP_WGMMA_OF(ELEMENT, TYPE, N, COUNT, A, B, SCALE, A_MAJOR, B_MAJOR, HIGH)                              \
  template <bool AIsRowContiguous, bool BIsRowContiguous>                                                        \
  struct Wgmma<ELEMENT, N, AIsRowContiguous, BIsRowContiguous> {                                                 \
    static __device__ void run(float (&d)[COUNT], std::uint32_t a, std::uint32_t b, bool accumulate) {           \
      asm volatile(                                                                                              \
          "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, " SCALE ", 0;\n"                                        \
          "mov.b64 a, {" A ", " HIGH "};\nmov.b64 b, {" B ", " HIGH "};\n"                                         \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                                        \
          " {" FLASHOVERLAP_NAMES_##COUNT "}, a, b, p, 1, 1, " A_MAJOR ", " B_MAJOR ";\n}\n"             \
          : FLASHOVERLAP_OPERANDS_##COUNT                                                                        \
          : "r"(a), "r"(b), "r"(static_cast<int>(accumulate)), "n"(int{AIsRowContiguous}), "n"(int{BIsRowContiguous}), "n"(descriptor_high)); \
    }                                                                                                            \
  };
#define FLASHOVERLAP_WGMMA(N, COUNT, A, B, SCALE, A_MAJOR, B_MAJOR, HIGH)                                              \
  FLASHOVERLAP_WGMMA_OF(__nv_bfloat16, "bf16", N, COUNT, A, B, SCALE, A_MAJOR, B_MAJOR, HIGH)                          \
  FLASHOVERLAP_WGMMA_OF(__half, "f16", N, COUNT, A, B, SCALE, A_MAJOR, B_MAJOR, HIGH)

// Columns, accumulators (half as many), and the numbers of the operands that follow the accumulators.
FLASHOVERLAP_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
FLASHOVERLAP_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45")
FLASHOVERLAP_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
FLASHOVERLAP_WGMMA(112, 56, "%56", "%57", "%58", "%59", "%60", "%61")
FLASHOVERLAP_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
FLASHOVERLAP_WGMMA(144, 72, "%72", "%73", "%74", "%75", "%76", "%77")
FLASHOVERLAP_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85")
FLASHOVERLAP_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93")
FLASHOVERLAP_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
FLASHOVERLAP_WGMMA(208, 104, "%104", "%105", "%106", "%107", "%108", "%109")
FLASHOVERLAP_WGMMA(224, 112, "%112", "%113", "%114", "%115", "%116", "%117")
FLASHOVERLAP_WGMMA(240, 120, "%120", "%121", "%122", "%123", "%124", "%125")
FLASHOVERLAP_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
// clang-format on

}  // namespace flashoverlap::sm90
