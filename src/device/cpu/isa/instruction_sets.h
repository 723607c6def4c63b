/* Detects which instruction sets this process may use, and why not more.
 *
 * A set is used if CPUID reports it, XCR0 shows that the operating system saves its registers, and, for AMX, leaf
 * 0x1D describes the tiles and Linux has granted them to the process. Virtual machines often satisfy only some of
 * this, and executing an unavailable instruction kills the process. So instructions are never tried out.
 *
 * TUTTI_ISA limits the instruction set of the process further: that of our loops, of the AMX kernels and of
 * oneDNN. */
#ifndef TU__DEVICE_CPU_ISA_INSTRUCTION_SETS_H
#define TU__DEVICE_CPU_ISA_INSTRUCTION_SETS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/status.h>

/* Each set includes those before it, except the VNNI sets (dot products of bytes), which a processor with later sets
 * may lack: AVX-VNNI is for processors without AVX-512. */
typedef enum cpu_isa {
    CPU_BASELINE,
    CPU_AVX2,
    CPU_AVX_VNNI,
    CPU_AVX512,
    CPU_AVX512_VNNI,
    CPU_AVX512_BF16,
    CPU_AMX,
    CPU_ISA_COUNT
} cpu_isa;

/* Returns the name for TUTTI_ISA: "avx512_bf16". */
const char *cpu_isa_name(cpu_isa isa);

/* The source of the information. Tests simulate other processors. */
typedef struct cpu_isa_source {
    /* Returns eax, ebx, ecx, edx; all zero for a leaf that the processor does not have. */
    void (*cpuid)(unsigned leaf, unsigned subleaf, unsigned registers[4]);
    uint64_t (*xcr0)(void); /* register states that the system saves; called only if CPUID reports OSXSAVE */
    /* Requests the AMX tiles from Linux; called only if the processor has them. */
    bool (*tiles_granted)(void);
} cpu_isa_source;

typedef struct cpu_isa_facts {
    cpu_isa best; /* the best set that can be used */
    bool usable[CPU_ISA_COUNT];
    bool amx_multiplies_bytes; /* AMX has instructions for bytes too */
    bool reports_amx;          /* CPUID reports AMX, usable or not: Intel's processors with AVX512_BF16 */
    const char
        *unusable_reason[CPU_ISA_COUNT]; /* NULL, or why a set that the processor reports cannot be used */
} cpu_isa_facts;

cpu_isa_facts cpu_isa_probe(const cpu_isa_source *source);

/* Returns the facts about this machine, which is probed once. */
const cpu_isa_facts *cpu_isa_of_machine(void);

/* Returns the set in use: the best that can be used, up to the limit of TUTTI_ISA. */
cpu_isa cpu_isa_in_use(void);

/* True if a set can be used and TUTTI_ISA allows it. */
bool cpu_isa_allows(cpu_isa isa);

/* True if oneDNN emulates bf16, because the set in use has no instructions for it. */
bool cpu_isa_emulates_bf16(void);

/* Fails if TUTTI_ISA is not the name of an instruction set. */
tu_status cpu_isa_check_limit(void);

#endif
