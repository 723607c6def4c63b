/* An instruction set is used only if processor, operating system and Linux permit it; TUTTI_ISA limits it further. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "device/cpu/isa/blocks.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops.h"

#if defined(__x86_64__) && defined(__linux__)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

/* ---- A simulated processor ---- */

static struct {
    unsigned leaf_1_ecx, leaf_7_ebx, leaf_7_ecx, leaf_7_edx, leaf_7_1_eax;
    unsigned palettes, tile_bytes, row_bytes, tiles, rows;
    uint64_t saved_registers;
    bool grants_tiles, has_requested_tiles;
} machine;

static void simulate_cpuid(unsigned leaf, unsigned subleaf, unsigned registers[4]) {
    memset(registers, 0, 4 * sizeof *registers);
    if (leaf == 1) registers[2] = machine.leaf_1_ecx;
    if (leaf == 7 && subleaf == 0) registers[1] = machine.leaf_7_ebx;
    if (leaf == 7 && subleaf == 0) registers[2] = machine.leaf_7_ecx;
    if (leaf == 7 && subleaf == 0) registers[3] = machine.leaf_7_edx;
    if (leaf == 7 && subleaf == 1) registers[0] = machine.leaf_7_1_eax;
    if (leaf == 0x1d && subleaf == 0) registers[0] = machine.palettes;
    if (leaf == 0x1d && subleaf == 1) {
        registers[0] = machine.tile_bytes << 16 | 8192;
        registers[1] = machine.tiles << 16 | machine.row_bytes;
        registers[2] = machine.rows;
    }
}

static uint64_t simulate_xcr0(void) {
    return machine.saved_registers;
}

static bool simulate_tile_request(void) {
    machine.has_requested_tiles = true;
    return machine.grants_tiles;
}

static const cpu_isa_source source = {simulate_cpuid, simulate_xcr0, simulate_tile_request};

/* Simulates a fourth-generation Xeon without virtualisation. */
static void reset_machine(void) {
    machine.leaf_1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
    machine.leaf_7_ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    machine.leaf_7_ecx = 1u << 11;
    machine.leaf_7_edx = 1u << 22 | 1u << 24;
    machine.leaf_7_1_eax = 1u << 4 | 1u << 5;
    machine.palettes = 1;
    machine.tile_bytes = 1024;
    machine.row_bytes = 64;
    machine.tiles = 8;
    machine.rows = 16;
    machine.saved_registers = 0x600e7;
    machine.grants_tiles = true;
    machine.has_requested_tiles = false;
}

static void assert_best(cpu_isa best, cpu_isa unusable, const char *why) {
    cpu_isa_facts facts = cpu_isa_probe(&source);
    assert_int_equal(facts.best, best);
    if (!why) {
        for (int i = 0; i < CPU_ISA_COUNT; i++) assert_null(facts.unusable_reason[i]);
        return;
    }
    assert_non_null(facts.unusable_reason[unusable]);
    assert_non_null(strstr(facts.unusable_reason[unusable], why));
}

static void a_fully_supported_processor_uses_amx(void **state) {
    (void)state;
    reset_machine();
    assert_best(CPU_AMX, CPU_AMX, NULL);
}

static void tiles_need_cpuid_leaf_1d(void **state) {
    (void)state;
    reset_machine();
    machine.palettes = 0;
    assert_best(CPU_AVX512_BF16, CPU_AMX, "0x1D");
    assert_true(cpu_isa_probe(&source).reports_amx);
    assert_false(machine.has_requested_tiles);
    reset_machine();
    machine.row_bytes = 32;
    assert_best(CPU_AVX512_BF16, CPU_AMX, "0x1D");
}

static void tiles_need_permission_and_saved_registers(void **state) {
    (void)state;
    reset_machine();
    machine.grants_tiles = false;
    assert_best(CPU_AVX512_BF16, CPU_AMX, "Linux");
    reset_machine();
    machine.saved_registers = 0xe7;
    assert_best(CPU_AVX512_BF16, CPU_AMX, "XCR0");
    assert_false(machine.has_requested_tiles);
}

static void tiles_are_not_requested_without_amx(void **state) {
    (void)state;
    reset_machine();
    machine.leaf_7_edx = 0;
    assert_best(CPU_AVX512_BF16, CPU_AMX, NULL);
    assert_false(machine.has_requested_tiles);
    machine.leaf_7_1_eax = 0;
    assert_best(CPU_AVX512_VNNI, CPU_AMX, NULL);
}

static void later_sets_do_not_require_vnni(void **state) {
    (void)state;
    reset_machine();
    machine.leaf_7_ecx = 0;
    machine.leaf_7_1_eax &= ~(1u << 4);
    assert_best(CPU_AMX, CPU_AMX, NULL);
    cpu_isa_facts facts = cpu_isa_probe(&source);
    assert_false(facts.usable[CPU_AVX_VNNI]);
    assert_false(facts.usable[CPU_AVX512_VNNI]);
    assert_true(facts.usable[CPU_AVX512_BF16]);
    reset_machine();
    machine.leaf_7_ebx &= ~(1u << 16); /* AVX2 and AVX-VNNI without AVX-512, as in processors of laptops */
    machine.leaf_7_ecx = machine.leaf_7_edx = 0;
    machine.leaf_7_1_eax &= ~(1u << 5);
    assert_best(CPU_AVX_VNNI, CPU_AMX, NULL);
}

static void unsaved_registers_are_not_used(void **state) {
    (void)state;
    reset_machine();
    machine.saved_registers = 0x7;
    assert_best(CPU_AVX_VNNI, CPU_AVX512, "XCR0");
    machine.saved_registers = 0x3;
    assert_best(CPU_BASELINE, CPU_AVX2, "XCR0");
    machine.saved_registers = 0x600e7;
    machine.leaf_1_ecx &= ~(1u << 27); /* no XGETBV: the system saves none of these registers */
    assert_best(CPU_BASELINE, CPU_AVX2, "XCR0");
}

static void an_instruction_set_is_unusable_without_the_sets_it_requires(void **state) {
    (void)state;
    reset_machine();
    machine.leaf_7_ebx &= ~(1u << 31); /* AVX-512 without VL */
    assert_best(CPU_AVX_VNNI, CPU_AMX, "that it requires");
    reset_machine();
    machine.leaf_1_ecx &= ~(1u << 12); /* AVX2 without FMA */
    assert_best(CPU_BASELINE, CPU_AVX512, "that it requires");
}

/* ---- TUTTI_ISA ---- */

static void tutti_isa_limits_loops_and_amx(void **state) {
    (void)state;
    cpu_isa best = cpu_isa_of_machine()->best;
    for (cpu_isa isa = CPU_BASELINE; isa < CPU_ISA_COUNT; isa++) {
        setenv("TUTTI_ISA", cpu_isa_name(isa), 1);
        assert_int_equal(cpu_isa_check_limit(), TU_OK);
        cpu_isa expected = isa < best ? isa : best;
        while (!cpu_isa_of_machine()->usable[expected]) expected--;
        assert_int_equal(cpu_isa_in_use(), expected);
        for (cpu_isa other = CPU_BASELINE; other < CPU_ISA_COUNT; other++)
            assert_int_equal(cpu_isa_allows(other), other <= isa && cpu_isa_of_machine()->usable[other]);
        if (isa < CPU_AMX) assert_null(cpu_blocks_for_this_machine());
        if (isa < CPU_AVX512_BF16) assert_false(cpu_loops_has_bf16_dot());
        if (isa == CPU_BASELINE) assert_string_equal(cpu_loops_for_this_machine()->isa, "baseline");
    }
    unsetenv("TUTTI_ISA");
    assert_int_equal(cpu_isa_in_use(), best);
}

static void an_unknown_tutti_isa_is_rejected(void **state) {
    (void)state;
    setenv("TUTTI_ISA", "sse9", 1);
    assert_int_equal(cpu_isa_check_limit(), TU_INVALID);
    assert_non_null(strstr(tu_message(), "sse9"));
    unsetenv("TUTTI_ISA");
}

/* ---- No crash under any limit ---- */

/* Runs a convolution with its gradients, and a matmul, in bf16 or f16. */
static tu_status compute_gradients_in(tu_dtype dtype) {
    tu_graph *g = NULL;
    if (tu_graph_new(&g) != TU_OK) return TU_NO_MEMORY;
    tu_program *program = NULL;
    tu_state *state = NULL;
    tu_value x = tu_input(g, "x", dtype, TU_SHAPE(2, 8, 8, 32));
    tu_value w = tu_variable(g, "w", dtype, TU_SHAPE(32, 3, 3, 32), .init = {.kind = TU_INIT_HE_NORMAL});
    tu_value v = tu_variable(g, "v", dtype, TU_SHAPE(2048, 16), .init = {.kind = TU_INIT_HE_NORMAL});
    tu_value y = tu_matmul(tu_reshape(tu_convolve(x, w, .padding = TU_SAME), TU_SHAPE(2, 2048)), v);
    tu_value wrt[3] = {x, w, v}, fetch[3];
    static uint16_t data[2 * 8 * 8 * 32], results[3][32 * 3 * 3 * 32 + 2048 * 16];
    tu_status status = tu_gradients(tu_sum(y), 3, wrt, fetch);
    if (status == TU_OK)
        status = tu_compile(g, &program, .devices = "cpu", .threads = 2, .fetch = fetch, .fetch_count = 3);
    if (status == TU_OK) status = tu_state_new(g, &state, .seed = 1);
    void *to[3] = {results[0], results[1], results[2]};
    tu_feed feed = {x, data};
    if (status == TU_OK) status = tu_run(program, state, 1, &feed, to);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return status;
}

/* From now on Linux rejects requests for the AMX tiles. */
static void reject_tile_requests(void) {
#if defined(__x86_64__) && defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REQUEST_PERMISSION, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        _exit(3);
#endif
}

/* Runs in a new process, which has not requested anything yet. Returns 0 for a result, 1 for an error with a
 * message. */
static int run_in_child(const char *limit, tu_dtype dtype, bool rejects_tiles) {
    pid_t child = fork();
    if (child == 0) {
        if (limit) setenv("TUTTI_ISA", limit, 1);
        if (rejects_tiles) reject_tile_requests();
        tu_status status = compute_gradients_in(dtype);
        _exit(status == TU_OK ? (rejects_tiles && cpu_isa_in_use() == CPU_AMX ? 4 : 0)
              : *tu_message() ? 1
                              : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void bf16_and_f16_work_under_every_limit(void **state) {
    (void)state;
    static const char *const limits[] = {NULL,     "baseline",    "avx2",        "avx_vnni",
                                         "avx512", "avx512_vnni", "avx512_bf16", "amx"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (int rejects_tiles = 0; rejects_tiles < 2; rejects_tiles++) {
            assert_int_equal(run_in_child(limits[i], TU_BF16, rejects_tiles), 0);
            assert_int_equal(run_in_child(limits[i], TU_F16, rejects_tiles), 0);
        }
    assert_int_equal(run_in_child("avx1024", TU_BF16, false), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            bf16_and_f16_work_under_every_limit), /* first, because a child inherits granted tiles */
        cmocka_unit_test(a_fully_supported_processor_uses_amx),
        cmocka_unit_test(tiles_need_cpuid_leaf_1d),
        cmocka_unit_test(tiles_need_permission_and_saved_registers),
        cmocka_unit_test(tiles_are_not_requested_without_amx),
        cmocka_unit_test(later_sets_do_not_require_vnni),
        cmocka_unit_test(unsaved_registers_are_not_used),
        cmocka_unit_test(an_instruction_set_is_unusable_without_the_sets_it_requires),
        cmocka_unit_test(tutti_isa_limits_loops_and_amx),
        cmocka_unit_test(an_unknown_tutti_isa_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
