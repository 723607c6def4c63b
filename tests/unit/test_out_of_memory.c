/* Running out of memory is an error, never a crash or a leak: the Nth allocation fails, for every N, while a network
 * is built, differentiated, compiled, initialized, run, printed, written and read. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "graph/graph.h"

typedef struct work {
    tu_graph *graph, *copy;
    tu_program *program;
    tu_state *state;
    void *bytes;
} work;

static tu_status build(work *w, tu_network_graph *model) {
    TU_TRY(tu_graph_new(&w->graph));
    TU_TRY(tu_network_build(w->graph, "mlp", model, .batch = 2, .height = 3, .width = 3, .base = 4,
                            .classes = 3));
    return tu_add_sgd(model->loss, 0.1, 0.9);
}

static tu_status compile_and_run(work *w, const tu_network_graph *model, const char *device) {
    TU_TRY(tu_compile(w->graph, &w->program, .devices = device, .threads = 1, .fetch = &model->loss,
                      .fetch_count = 1, .updates = true));
    TU_TRY(tu_state_new(w->graph, &w->state, .seed = 1));
    static const float images[2 * 9] = {1, 2, 3};
    static const int labels[2] = {0, 2};
    float loss;
    return tu_run(w->program, w->state, 2, (tu_feed[]){{model->images, images}, {model->labels, labels}},
                  (void *[]){&loss});
}

static tu_status print_and_write(work *w, FILE *sink) {
    char digest[TU_DIGEST_TEXT];
    size_t size;
    TU_TRY(tu_graph_verify(w->graph));
    TU_TRY(tu_graph_print(w->graph, TU_GRAPH_TEXT, sink));
    TU_TRY(tu_graph_print(w->graph, TU_GRAPH_DOT, sink));
    TU_TRY(tu_graph_print(w->graph, TU_GRAPH_JSON, sink));
    TU_TRY(tu_graph_summary(w->graph, sink));
    TU_TRY(tu_graph_digest(w->graph, digest));
    TU_TRY(tu_graph_write(w->graph, &w->bytes, &size));
    return tu_graph_read(w->bytes, size, &w->copy);
}

static tu_status build_run_and_print(const char *device, FILE *sink) {
    work w = {0};
    tu_network_graph model = TU_SIZED(tu_network_graph);
    tu_status status = build(&w, &model);
    if (status == TU_OK) status = compile_and_run(&w, &model, device);
    if (status == TU_OK) status = print_and_write(&w, sink);
    tu_bytes_free(w.bytes);
    tu_graph_free(w.copy);
    tu_program_free(w.program);
    tu_state_free(w.state);
    tu_graph_free(w.graph);
    return status;
}

static void fail_every_allocation(const char *device) {
    FILE *sink = fopen("/dev/null", "w");
    assert_non_null(sink);
    assert_int_equal(build_run_and_print(device, sink),
                     TU_OK); /* libraries make their permanent allocations here */
    int64_t live = tu__alloc_live();
    uint64_t before = tu__alloc_count();
    assert_int_equal(build_run_and_print(device, sink), TU_OK);
    uint64_t count = tu__alloc_count() - before;
    assert_true(count > 100);
    for (uint64_t n = 1; n <= count; n++) {
        tu__alloc_fail_at(n);
        tu_status status = build_run_and_print(device, sink);
        tu__alloc_fail_at(0);
        if (status != TU_NO_MEMORY)
            fail_msg("allocation %lu failed: status %d, '%s'", (unsigned long)n, status, tu_message());
        if (tu__alloc_live() != live)
            fail_msg("allocation %lu failed: %ld blocks leaked", (unsigned long)n,
                     (long)(tu__alloc_live() - live));
    }
    assert_int_equal(build_run_and_print(device, sink), TU_OK);
    print_message("%lu allocations, each failed once\n", (unsigned long)count);
    fclose(sink);
}

static void every_allocation_may_fail_on_the_reference(void **unused) {
    (void)unused;
    fail_every_allocation("ref");
}

static void every_allocation_may_fail_on_the_cpu(void **unused) {
    (void)unused;
    fail_every_allocation("cpu");
}

/* ---- A backward pass ---- */

/* Returns a value whose gradient needs a recomputed forward pass, gradient rules, and, since it is a gradient itself,
 * the decomposition of an operation without a rule. */
static tu_value gradient_norm(tu_graph *g, tu_value x) {
    tu_value h = x, dx;
    tu_recompute(g) h = tu_layer_norm(tu_dense(x, .units = 3, .act = TU_TANH));
    assert_int_equal(tu_gradients(tu_mean(tu_exp(h)), 1, &x, &dx), TU_OK);
    return tu_mean(tu_square(dx));
}

/* Differentiates with the Nth allocation failing (0: none) inside a scope, a recompute block and a device block.
 * These must be unchanged afterwards, and the graph must keep the error. */
static tu_status differentiate(uint64_t nth, const char *scope) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 4)), loss = gradient_norm(g, x), dx;
    assert_int_equal(tu_graph_status(g), TU_OK);
    tu_status status = TU_OK;
    if (scope) tu_scope_begin(g, scope);
    tu_recompute(g) tu_with_device(g, "cpu:0") {
        const struct tu__device_scope *device = g->device_scope;
        tu__alloc_fail_at(nth);
        status = tu_gradients(loss, 1, &x, &dx);
        tu__alloc_fail_at(0);
        assert_int_equal(g->recompute_depth, 1);
        assert_ptr_equal(g->device_scope, device);
        if (scope) assert_int_equal(strncmp(g->scope, scope, strlen(scope)), 0);
        assert_true(scope ? strcmp(g->scope + strlen(scope), "/") == 0 : !g->scope || !*g->scope);
        assert_int_equal(tu_graph_status(g), status);
    }
    tu_graph_free(g);
    return status;
}

static void a_failed_backward_pass_restores_the_scopes(void **unused) {
    (void)unused;
    for (int scoped = 0; scoped < 2; scoped++) {
        const char *scope = scoped ? "around" : NULL;
        int64_t live = tu__alloc_live();
        tu_status status = TU_NO_MEMORY;
        uint64_t n = 0;
        while (status == TU_NO_MEMORY && n < 10000) {
            status = differentiate(++n, scope);
            assert_int_equal(tu__alloc_live(), live);
        }
        assert_int_equal(status, TU_OK); /* n is larger than the number of allocations */
        assert_true(n > 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail_on_the_reference),
        cmocka_unit_test(every_allocation_may_fail_on_the_cpu),
        cmocka_unit_test(a_failed_backward_pass_restores_the_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
