/* Attention: its arguments are checked, its memory grows with the length of a sequence, and a causal one does not look ahead.
 * The sweep compares its kernels with the reference. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

static void assert_rejected(tu_dtype dtype, tu_shape shape, double scale, const char *part) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_false(tu_ok(tu_attention(tu_input(g, "x", dtype, shape), .scale = scale)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in '%s'", part, tu_message());
    tu_graph_free(g);
}

static void wrong_operands_are_rejected(void **state) {
    (void)state;
    const tu_shape x = TU_SHAPE(2, 5, 3, 2, 4);
    assert_rejected(TU_I32, x, 0, "x (input 0) has type i32, expected a float type");
    assert_rejected(TU_F32, TU_SHAPE(2, 5, 3, 8), 0, "expected [batch, time, 3, heads, width]");
    assert_rejected(TU_F32, TU_SHAPE(2, 5, 2, 2, 4), 0,
                    "x (input 0) has shape [2,5,2,2,4], expected [batch, time, 3");
    assert_rejected(TU_F32, x, -2, "scale is -2, expected 0 (1/sqrt(width)) to 1e30");
    assert_rejected(TU_F32, x, NAN, "scale is nan");
    assert_rejected(TU_F32, x, INFINITY, "scale is inf");
}

static void operands_of_the_gradient_must_agree(void **state) {
    (void)state;
    const tu_shape y = TU_SHAPE(2, 5, 2, 4), l = TU_SHAPE(2, 2, 5);
    const struct {
        tu_type y, l, dy;
        const char *part;
    } list[] = {
        {{TU_F32, l}, {TU_F32, l}, {TU_F32, y}, "y (input 1) is f32[2,2,5], expected f32[2,5,2,4]"},
        {{TU_F32, y}, {TU_F32, y}, {TU_F32, y}, "l (input 2) is f32[2,5,2,4], expected f32[2,2,5]"},
        {{TU_F32, y}, {TU_BF16, l}, {TU_F32, y}, "l (input 2) is bf16[2,2,5], expected f32[2,2,5]"},
        {{TU_F32, y}, {TU_F32, l}, {TU_F64, y}, "dy (input 3) is f64[2,5,2,4], expected f32[2,5,2,4]"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        tu_graph *g;
        const struct tu__attention_grad_attrs a = {0};
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value in[] = {tu_input(g, "x", TU_F32, TU_SHAPE(2, 5, 3, 2, 4)),
                         tu_input(g, "y", list[i].y.dtype, list[i].y.shape),
                         tu_input(g, "l", list[i].l.dtype, list[i].l.shape),
                         tu_input(g, "dy", list[i].dy.dtype, list[i].dy.shape)};
        assert_false(tu_ok(tu__apply_list(TU__OP_ATTENTION_GRAD, &a, 4, in)));
        if (!strstr(tu_message(), list[i].part)) fail_msg("'%s' is not in '%s'", list[i].part, tu_message());
        tu_graph_free(g);
    }
}

/* Returns the planned bytes of an attention and its gradient. */
static uint64_t planned_bytes(int64_t time) {
    tu_graph *g;
    tu_program *p;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(1, time, 3, 2, 32)), dx;
    assert_int_equal(tu_gradients(tu_sum(tu_square(tu_attention(x, .causal = true))), 1, &x, &dx), TU_OK);
    assert_int_equal(tu_compile(g, &p, .devices = "cpu:0", .threads = 2, .fetch = &dx, .fetch_count = 1,
                                .plan_only = true),
                     TU_OK);
    assert_int_equal(tu_program_memory(p, 0, &report), TU_OK);
    tu_program_free(p);
    tu_graph_free(g);
    return report.need_bytes;
}

static void memory_grows_with_the_length(void **state) {
    (void)state;
    uint64_t before = planned_bytes(2048);
    for (int64_t time = 4096; time <= 32768; time *= 2) {
        uint64_t now = planned_bytes(time);
        assert_true(now > before && (double)now < 2.1 * (double)before);
        before = now;
    }
}

/* Changing the last position changes the last result only. */
static void a_causal_attention_does_not_look_ahead(void **state) {
    (void)state;
    enum { TIME = 130, ROW = 3 * 2 * 8, COUNT = TIME * ROW, OUT = TIME * 16 };
    float *x = calloc(COUNT, sizeof *x), *before = calloc(OUT, sizeof *before),
          *after = calloc(OUT, sizeof *after);
    tu_graph *g;
    tu_program *p;
    tu_state *s;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value in = tu_input(g, "x", TU_F32, TU_SHAPE(1, TIME, 3, 2, 8)), y = tu_attention(in, .causal = true);
    assert_int_equal(tu_compile(g, &p, .devices = "cpu:0", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &s), TU_OK);
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i * 7919 % 101) / 50 - 1;
    assert_int_equal(tu_run(p, s, 1, (tu_feed[]){{in, x}}, (void *[]){before}), TU_OK);
    for (int i = COUNT - ROW; i < COUNT; i++) x[i] += 1;
    assert_int_equal(tu_run(p, s, 1, (tu_feed[]){{in, x}}, (void *[]){after}), TU_OK);
    assert_memory_equal(before, after, (OUT - 16) * sizeof *before);
    assert_true(memcmp(before + OUT - 16, after + OUT - 16, 16 * sizeof *before) != 0);
    tu_state_free(s);
    tu_program_free(p);
    tu_graph_free(g);
    free(x);
    free(before);
    free(after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_operands_are_rejected),
        cmocka_unit_test(operands_of_the_gradient_must_agree),
        cmocka_unit_test(memory_grows_with_the_length),
        cmocka_unit_test(a_causal_attention_does_not_look_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
