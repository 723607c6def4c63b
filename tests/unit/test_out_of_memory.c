/* Running out of memory is an error, never a crash or a leak: the Nth allocation fails, for every N, while a
 * network is built, differentiated, compiled, initialised, run, printed, written and read. */
#include "test.h"

#include <stdio.h>

#include <tutti/tutti.h>

#include "base/alloc.h"

typedef struct work {
    tu_graph *graph, *copy;
    tu_program *program;
    tu_state *state;
    void *bytes;
} work;

static tu_status build(work *w, tu_model_graph *model) {
    TU_TRY(tu_graph_new(&w->graph));
    TU_TRY(
        tu_model_build(w->graph, "mlp", model, .batch = 2, .height = 3, .width = 3, .base = 4, .classes = 3));
    return tu_add_sgd(model->loss, 0.1, 0.9);
}

static tu_status run(work *w, const tu_model_graph *model) {
    TU_TRY(tu_compile(w->graph, &w->program, .fetch = &model->loss, .fetch_count = 1, .updates = true));
    TU_TRY(tu_state_new(w->graph, &w->state, .seed = 1));
    static const float images[2 * 9] = {1, 2, 3};
    static const int labels[2] = {0, 2};
    float loss;
    return tu_run(w->program, w->state, 2, (tu_feed[]){{model->images, images}, {model->labels, labels}},
                  (void *[]){&loss});
}

static tu_status look(work *w, FILE *sink) {
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

static tu_status everything(FILE *sink) {
    work w = {0};
    tu_model_graph model;
    tu_status status = build(&w, &model);
    if (status == TU_OK) status = run(&w, &model);
    if (status == TU_OK) status = look(&w, sink);
    tu_bytes_free(w.bytes);
    tu_graph_free(w.copy);
    tu_program_free(w.program);
    tu_state_free(w.state);
    tu_graph_free(w.graph);
    return status;
}

static void every_allocation_may_fail(void **unused) {
    (void)unused;
    FILE *sink = fopen("/dev/null", "w");
    assert_non_null(sink);
    int64_t live = tu__alloc_live();
    uint64_t before = tu__alloc_count();
    assert_int_equal(everything(sink), TU_OK);
    uint64_t count = tu__alloc_count() - before;
    assert_true(count > 100);
    for (uint64_t n = 1; n <= count; n++) {
        tu__alloc_fail_at(n);
        tu_status status = everything(sink);
        tu__alloc_fail_at(0);
        if (status != TU_NO_MEMORY)
            fail_msg("allocation %lu failed: status %d, '%s'", (unsigned long)n, status, tu_message());
        if (tu__alloc_live() != live)
            fail_msg("allocation %lu failed: %ld blocks leaked", (unsigned long)n,
                     (long)(tu__alloc_live() - live));
    }
    assert_int_equal(everything(sink), TU_OK);
    print_message("%lu allocations, each failed once\n", (unsigned long)count);
    fclose(sink);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
