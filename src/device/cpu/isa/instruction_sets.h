/* Which instruction sets this process may use, and why not more.
 *
 * A set is used when everybody who has a say agrees: CPUID reports it, XCR0 shows that the operating system saves its
 * registers, and for AMX leaf 0x1D describes the tiles and Linux has granted them to the process. Virtual machines
 * often report a part of that, and the first instruction of a set that is not there kills the process. So nothing is
 * tried out: no signal handler, no instruction before its probe.
 *
 * TUTTI_ISA holds the process below what was found: our own loops, the blocks of bf16 and oneDNN alike. */
#ifndef TU__DEVICE_CPU_ISA_INSTRUCTION_SETS_H
#define TU__DEVICE_CPU_ISA_INSTRUCTION_SETS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/status.h>

/* Each includes those before it. */
typedef enum cpu_isa { CPU_BASELINE, CPU_AVX2, CPU_AVX512, CPU_AVX512_BF16, CPU_AMX, CPU_ISA_COUNT } cpu_isa;

/* "avx512_bf16": what TUTTI_ISA calls it. */
const char *cpu_isa_name(cpu_isa isa);

/* Who is asked. Tests put processors together that they do not run on. */
typedef struct cpu_isa_source {
    /* eax, ebx, ecx, edx; all zero for a leaf that the processor does not have. */
    void (*cpuid)(unsigned leaf, unsigned subleaf, unsigned registers[4]);
    uint64_t (*xcr0)(void); /* register states that the system saves; asked only where CPUID has OSXSAVE */
    bool (*tiles_granted)(void); /* asks Linux for AMX's tiles; only where the processor has them */
} cpu_isa_source;

typedef struct cpu_isa_facts {
    cpu_isa best;                   /* that can be used */
    bool reports_amx;               /* by CPUID, usable or not: Intel's processors with AVX512_BF16 */
    const char *why[CPU_ISA_COUNT]; /* NULL, or why a set that the processor reports cannot be used */
} cpu_isa_facts;

cpu_isa_facts cpu_isa_probe(const cpu_isa_source *source);

/* Of this machine, probed once. */
const cpu_isa_facts *cpu_isa_of_machine(void);

/* The set in use: the best that can be used, or what TUTTI_ISA limits it to. */
cpu_isa cpu_isa_in_use(void);

/* Whether oneDNN has no instructions for bf16 under the set in use, and emulates them. */
bool cpu_isa_emulates_bf16(void);

/* Refuses a TUTTI_ISA that names no instruction set. */
tu_status cpu_isa_check_limit(void);

#endif
