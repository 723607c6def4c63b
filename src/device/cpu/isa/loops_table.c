/* The table of inner loops of one instruction set. */
#include "device/cpu/isa/loops.h"

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

extern struct cpu_loops_convert LOOP(cpu_loops_convert);
extern struct cpu_loops_kernels LOOP(cpu_loops_kernels);
extern struct cpu_loops_gemm LOOP(cpu_loops_gemm);
extern struct cpu_loops_int8 LOOP(cpu_loops_int8);
extern struct cpu_loops_blocks LOOP(cpu_loops_blocks);

#define OP(...)
#define POINTWISE(id, name, ...)                                                                             \
    void LOOP(cpu_tile_f32_##name)(int64_t n, const float *x, const float *y, const float *z, float a,       \
                                   float b, float *out);                                                     \
    void LOOP(cpu_tile_f64_##name)(int64_t n, const double *x, const double *y, const double *z, double a,   \
                                   double b, double *out);
#include "graph/ops.def"

extern const cpu_loops LOOP(cpu_loops);
const cpu_loops LOOP(cpu_loops) = {
    .isa = TEXT(TU_ISA),
    .pointwise =
        {
#define OP(...)
#define POINTWISE(id, name, ...) [TU__OP_##id] = LOOP(cpu_tile_f32_##name),
#include "graph/ops.def"
        },
    .pointwise_f64 =
        {
#define OP(...)
#define POINTWISE(id, name, ...) [TU__OP_##id] = LOOP(cpu_tile_f64_##name),
#include "graph/ops.def"
        },
    .convert = &LOOP(cpu_loops_convert),
    .kernels = &LOOP(cpu_loops_kernels),
    .gemm = &LOOP(cpu_loops_gemm),
    .int8 = &LOOP(cpu_loops_int8),
    .blocks = &LOOP(cpu_loops_blocks),
};
