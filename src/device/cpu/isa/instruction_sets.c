/* Detects instruction sets: see instruction_sets.h. */
#include "device/cpu/isa/instruction_sets.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#if defined(TU_ISA_X86)
#include <cpuid.h>
#endif
#if defined(TU_ISA_X86) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[CPU_ISA_COUNT] = {
    [CPU_BASELINE] = "baseline",
    [CPU_AVX2] = "avx2",
    [CPU_AVX_VNNI] = "avx_vnni",
    [CPU_AVX512] = "avx512",
    [CPU_AVX512_VNNI] = "avx512_vnni",
    [CPU_AVX512_BF16] = "avx512_bf16",
    [CPU_AMX] = "amx",
};

const char *cpu_isa_name(cpu_isa isa) {
    return names[isa];
}

/* ---- Decoding: Intel's manual, volume 2A, CPUID; volume 1, chapters 13 and 18 ---- */

enum { EAX, EBX, ECX, EDX, REGISTERS };
enum { /* bits of XCR0 */
       XMM_AND_YMM = 0x6,
       MASKS_AND_ZMM = 0xe0,
       TILES = 0x60000
};

typedef struct feature { /* a bit of a CPUID leaf */
    unsigned char leaf, subleaf, reg, bit;
} feature;

static const feature osxsave = {1, 0, ECX, 27};
static const feature avx2[] = {
    {1, 0, ECX, 28}, {7, 0, EBX, 5}, {1, 0, ECX, 12}, {1, 0, ECX, 29}}; /* +FMA, F16C */
static const feature avx512[] = {
    {7, 0, EBX, 16}, {7, 0, EBX, 17}, {7, 0, EBX, 30}, {7, 0, EBX, 31}}; /* F DQ BW VL */
static const feature avx_vnni[] = {{7, 1, EAX, 4}};
static const feature avx512_vnni[] = {{7, 0, ECX, 11}};
static const feature avx512_bf16[] = {{7, 1, EAX, 5}};
static const feature amx[] = {{7, 0, EDX, 24}, {7, 0, EDX, 22}}; /* tiles, bf16 */
static const feature amx_int8 = {7, 0, EDX, 25};

static bool has_feature(const cpu_isa_source *source, feature f) {
    unsigned registers[REGISTERS] = {0};
    source->cpuid(f.leaf, f.subleaf, registers);
    return registers[f.reg] >> f.bit & 1;
}

static bool has_all(const cpu_isa_source *source, size_t count, const feature *features) {
    for (size_t i = 0; i < count; i++)
        if (!has_feature(source, features[i])) return false;
    return true;
}
#define HAS_ALL(source, features) has_all(source, sizeof(features) / sizeof *(features), features)

/* True for palette 1 as all processors with AMX have it: eight tiles of 16 rows of 64 bytes. */
static bool describes_tiles(const cpu_isa_source *source) {
    unsigned palettes[REGISTERS] = {0}, palette[REGISTERS] = {0};
    source->cpuid(0x1d, 0, palettes);
    if (palettes[EAX] < 1) return false;
    source->cpuid(0x1d, 1, palette);
    return palette[EAX] >> 16 == 1024 && (palette[EBX] & 0xffff) == 64 && palette[EBX] >> 16 == 8 &&
           (palette[ECX] & 0xffff) == 16;
}

static const char *tiles_unusable_reason(const cpu_isa_source *source, uint64_t saved_registers) {
    if ((saved_registers & TILES) != TILES) return "the operating system does not save the AMX tiles (XCR0)";
    if (!describes_tiles(source))
        return "CPUID leaf 0x1D does not describe the AMX tiles, as in some virtual machines";
    if (!source->tiles_granted()) return "Linux does not grant the AMX tiles to this process (arch_prctl)";
    return NULL;
}

cpu_isa_facts cpu_isa_probe(const cpu_isa_source *source) {
    cpu_isa_facts facts = {
        .best = CPU_BASELINE, .usable = {[CPU_BASELINE] = true}, .reports_amx = HAS_ALL(source, amx)};
    facts.amx_multiplies_bytes = facts.reports_amx && has_feature(source, amx_int8);
    const bool reported[CPU_ISA_COUNT] = {
        [CPU_BASELINE] = true,
        [CPU_AVX2] = HAS_ALL(source, avx2),
        [CPU_AVX_VNNI] = HAS_ALL(source, avx_vnni),
        [CPU_AVX512] = HAS_ALL(source, avx512),
        [CPU_AVX512_VNNI] = HAS_ALL(source, avx512_vnni),
        [CPU_AVX512_BF16] = HAS_ALL(source, avx512_bf16),
        [CPU_AMX] = facts.reports_amx,
    };
    uint64_t saved_registers = has_feature(source, osxsave) ? source->xcr0() : 0;
    if ((saved_registers & XMM_AND_YMM) != XMM_AND_YMM)
        facts.unusable_reason[CPU_AVX2] = "the operating system does not save its registers (XCR0)";
    if ((saved_registers & MASKS_AND_ZMM) != MASKS_AND_ZMM)
        facts.unusable_reason[CPU_AVX512] = "the operating system does not save its registers (XCR0)";
    bool is_missing = false;
    for (cpu_isa isa = CPU_AVX2; isa < CPU_ISA_COUNT; isa++) {
        if (!reported[isa]) {
            facts.unusable_reason[isa] = NULL; /* not reported, so not explained */
            is_missing |= isa != CPU_AVX_VNNI && isa != CPU_AVX512_VNNI;
            continue;
        }
        if (!facts.unusable_reason[isa] && is_missing)
            facts.unusable_reason[isa] = "the processor lacks an instruction set that it requires";
        if (!facts.unusable_reason[isa] && isa == CPU_AMX)
            facts.unusable_reason[isa] = tiles_unusable_reason(source, saved_registers);
        if (facts.unusable_reason[isa])
            is_missing = true;
        else
            facts.usable[facts.best = isa] = true;
    }
    return facts;
}

/* ---- This machine ---- */

#if defined(TU_ISA_X86)

static void read_cpuid(unsigned leaf, unsigned subleaf, unsigned registers[4]) {
    if (!__get_cpuid_count(leaf, subleaf, &registers[EAX], &registers[EBX], &registers[ECX], &registers[EDX]))
        memset(registers, 0, REGISTERS * sizeof *registers);
}

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Tiles are 8 KB of registers, saved at every thread switch: Linux grants them to a process on request. */
static bool request_tiles(void) {
#ifdef __linux__
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static const cpu_isa_source machine = {read_cpuid, read_xcr0, request_tiles};

static cpu_isa_facts probe_machine(void) {
    return cpu_isa_probe(&machine);
}

#else

static cpu_isa_facts probe_machine(void) {
    return (cpu_isa_facts){.best = CPU_BASELINE, .usable = {[CPU_BASELINE] = true}};
}

#endif

static cpu_isa_facts facts_of_machine;

static void probe_once(void) {
    facts_of_machine = probe_machine();
}

const cpu_isa_facts *cpu_isa_of_machine(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, probe_once);
    return &facts_of_machine;
}

/* ---- TUTTI_ISA ---- */

/* Returns CPU_ISA_COUNT if TUTTI_ISA is not set or unknown. */
static cpu_isa isa_limit(void) {
    const char *limit_name = getenv("TUTTI_ISA");
    cpu_isa isa = CPU_BASELINE;
    while (limit_name && isa < CPU_ISA_COUNT && strcmp(limit_name, names[isa]) != 0) isa++;
    return limit_name ? isa : CPU_ISA_COUNT;
}

cpu_isa cpu_isa_in_use(void) {
    const cpu_isa_facts *facts = cpu_isa_of_machine();
    cpu_isa isa = isa_limit();
    if (isa > facts->best) return facts->best;
    while (!facts->usable[isa]) isa--;
    return isa;
}

bool cpu_isa_allows(cpu_isa isa) {
    return cpu_isa_of_machine()->usable[isa] && isa <= isa_limit();
}

bool cpu_isa_emulates_bf16(void) {
#ifdef TU_ISA_X86
    return cpu_isa_in_use() < CPU_AVX512_BF16;
#else
    return false; /* instruction sets of other processors are not distinguished */
#endif
}

tu_status cpu_isa_check_limit(void) {
    const char *limit_name = getenv("TUTTI_ISA");
    if (!limit_name || !*limit_name || isa_limit() < CPU_ISA_COUNT) return TU_OK;
    return tu_fail(TU_INVALID,
                   "TUTTI_ISA is '%s': expected baseline, avx2, avx_vnni, avx512, "
                   "avx512_vnni, avx512_bf16 or amx",
                   limit_name);
}
