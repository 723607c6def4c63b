/* The CPU device's elementary functions compared with libm in f64: errors in units in the last place over the whole
 * range of f32, for every instruction set of this machine, and special values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "device/cpu/isa/loops.h"
#include "test.h"

typedef struct function {
    const char *name;
    tu__opcode op;
    double (*exact)(double x);
    double max_error; /* units in the last place */
    double low, high; /* the range in which max_error applies */
} function;

static const function functions[] = {
    {"exp", TU__OP_EXP, exp, 2, -INFINITY, INFINITY},
    {"expm1", TU__OP_EXPM1, expm1, 2, -INFINITY, INFINITY},
    {"log", TU__OP_LOG, log, 2, -INFINITY, INFINITY},
    {"log1p", TU__OP_LOG1P, log1p, 2, -INFINITY, INFINITY},
    {"tanh", TU__OP_TANH, tanh, 3, -INFINITY, INFINITY},
    {"erf", TU__OP_ERF, erf, 2, -INFINITY, INFINITY},
    {"sin", TU__OP_SIN, sin, 1, -0x1p30, 0x1p30},
    {"cos", TU__OP_COS, cos, 1, -0x1p30, 0x1p30},
    {"tan", TU__OP_TAN, tan, 1, -0x1p30, 0x1p30},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, N = 4096 };

/* Returns the error in units of the distance between adjacent f32 numbers at the exact value. */
static double error_in_units(float actual, double exact) {
    float nearest = (float)exact;
    if (actual == nearest || (actual != actual && exact != exact)) return 0;
    if (isinf(nearest) || !isfinite(actual) || exact != exact) {
        /* infinity and the largest finite number are one unit apart */
        return isinf(nearest) && fabsf(actual) == 0x1.fffffep127f && (actual > 0) == (nearest > 0) ? 1 : 1e9;
    }
    double magnitude = fabs(exact) < 0x1p-126 ? 0x1p-126 : fabs(exact);
    int exponent;
    frexp(magnitude, &exponent);
    return fabs((double)actual - exact) / ldexp(1, exponent - 24);
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static const cpu_loops *loops_of(const char *isa) {
    setenv("TUTTI_ISA", isa, 1);
    const cpu_loops *loops = cpu_loops_for_this_machine();
    unsetenv("TUTTI_ISA");
    return strcmp(loops->isa, isa) == 0 ? loops : NULL;
}

static void check_function(const cpu_loops *loops, const function *f) {
    static float x[N], y[N];
    double max_seen = 0;
    float x_of_max = 0;
    uint32_t bits = 0;
    for (int round = 0; round < 1024; round++) {
        for (int i = 0; i < N; i++, bits += 1021) x[i] = float_of(bits); /* every 1021st f32 number */
        loops->pointwise[f->op](N, x, x, x, 0, 0, y);
        for (int i = 0; i < N; i++) {
            if (x[i] < f->low || x[i] > f->high) continue;
            double error = error_in_units(y[i], f->exact((double)x[i]));
            if (error <= max_seen) continue;
            max_seen = error;
            x_of_max = x[i];
        }
    }
    if (max_seen > f->max_error)
        fail_msg("%s (%s) is off by %.2f units at %.9g (%a): expected at most %g", f->name, loops->isa,
                 max_seen, (double)x_of_max, (double)x_of_max, f->max_error);
    print_message("    %-8s %-6s %.2f units at %.9g\n", loops->isa, f->name, max_seen, (double)x_of_max);
}

static void check_isa(const char *isa) {
    const cpu_loops *loops = loops_of(isa);
    for (int i = 0; loops && i < FUNCTIONS; i++) check_function(loops, &functions[i]);
}

static void functions_are_accurate_to_a_few_units(void **state) {
    (void)state;
    check_isa("baseline");
    check_isa("avx2");
    check_isa("avx512");
}

static void check_power(const cpu_loops *loops, float x, float y) {
    float z;
    loops->pointwise[TU__OP_POW](1, &x, &y, &x, 0, 0, &z);
    double error = error_in_units(z, pow((double)x, (double)y));
    if (error > 2)
        fail_msg("pow(%.9g, %.9g) is %.9g: off by %.2f units (%s)", (double)x, (double)y, (double)z, error,
                 loops->isa);
}

static void powers_are_accurate_to_two_units(void **state) {
    (void)state;
    static const float special[] = {0,        -0.0f,     1,         -1,       2,        -2,
                                    0.5f,     -0.5f,     3,         -3,       1e30f,    -1e30f,
                                    1e-40f,   0x1p24f,   0x1.8p23f, 8388607,  -8388607, 4194303.5f,
                                    INFINITY, -INFINITY, NAN,       0.99999f, 1.00001f};
    const cpu_loops *loops = cpu_loops_for_this_machine();
    int count = sizeof special / sizeof *special;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) check_power(loops, special[i], special[k]);
    uint32_t random = 1;
    for (int i = 0; i < 200000; i++) {
        random = random * 1664525u + 1013904223u;
        float x = float_of(random & 0x7fffffffu);
        random = random * 1664525u + 1013904223u;
        float y = ldexpf((float)(int32_t)random, -24 - (int)(random % 9));
        if (x == x) check_power(loops, x, y);
    }
}

/* Compares conversions with src/base/number.h, in both directions, for every f16 and bf16 and every 1021st f32
 * number. */
static void check_conversion(const cpu_loops *loops, tu_dtype dtype) {
    static float x[N], y[N];
    static uint16_t stored[N];
    for (uint32_t first = 0; first < 65536; first += N) {
        for (int i = 0; i < N; i++) stored[i] = (uint16_t)(first + (uint32_t)i);
        loops->convert->load[dtype](N, stored, y);
        for (int i = 0; i < N; i++) {
            double expected = tu__load(dtype, stored, i);
            assert_true((double)y[i] == expected || (y[i] != y[i] && expected != expected));
        }
    }
    uint32_t bits = 0;
    for (int round = 0; round < 1024; round++) {
        for (int i = 0; i < N; i++, bits += 1021) x[i] = float_of(bits);
        loops->convert->store[dtype](N, x, stored);
        memcpy(y, x, sizeof y);
        loops->convert->round[dtype](N, y);
        for (int i = 0; i < N; i++) {
            double expected = tu__round_to(dtype, (double)x[i]), actual = tu__load(dtype, stored, i);
            assert_true(expected == actual || (expected != expected && actual != actual));
            assert_true(expected == (double)y[i] || (expected != expected && y[i] != y[i]));
        }
    }
}

static void conversions_round_like_the_reference_device(void **state) {
    (void)state;
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        const cpu_loops *loops = loops_of(isas[i]);
        if (!loops) continue;
        check_conversion(loops, TU_BF16);
        check_conversion(loops, TU_F16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_accurate_to_a_few_units),
        cmocka_unit_test(powers_are_accurate_to_two_units),
        cmocka_unit_test(conversions_round_like_the_reference_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
