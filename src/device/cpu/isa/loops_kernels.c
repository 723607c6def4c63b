/* The tables of isa/kernels.h for one instruction set. */
#include "device/cpu/isa/kernels.h"

struct cpu_loops_kernels LOOP(cpu_loops_kernels) = {
    .pool = &LOOP(cpu_pool_loops),
    .lrn = &LOOP(cpu_lrn_loops),
    .norm = &LOOP(cpu_norm_loops),
    .softmax = &LOOP(cpu_softmax_loops),
    .attention = &LOOP(cpu_attention_loops),
    .reduce = &LOOP(cpu_reduce_loops),
    .random = &LOOP(cpu_random_loops),
    .winograd = &LOOP(cpu_winograd_loops),
    .round = &LOOP(cpu_round_loops),
};
