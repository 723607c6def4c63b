/* Whether blocks of bf16 are multiplied on this machine. AVX-512's dot product of pairs was tried for the same blocks and
 * left out: slower than what there is without (oneDNN, and our filter's gradient), by 1.4 in a whole step of
 * tutorial-cnn on an EPYC and by 2 on a Xeon. */
#include "device/cpu/isa/blocks.h"

#include <stddef.h>

#include "device/cpu/isa/instruction_sets.h"

const cpu_blocks *cpu_blocks_for_this_machine(void) {
    return cpu_isa_in_use() >= CPU_AMX ? cpu_blocks_amx() : NULL;
}
