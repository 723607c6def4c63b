/* Selects the AMX kernels if this machine has AMX. The dot product of AVX-512 BF16 was tried for the same tiles and
 * dropped: a whole step of tutorial-cnn was slower than with oneDNN and our filter gradient, by 1.4 on an EPYC and
 * by 2 on a Xeon. */
#include "device/cpu/isa/blocks.h"

#include <stddef.h>

#include "device/cpu/isa/instruction_sets.h"

const cpu_blocks *cpu_blocks_for_this_machine(void) {
    return cpu_isa_in_use() >= CPU_AMX ? cpu_blocks_amx() : NULL;
}
