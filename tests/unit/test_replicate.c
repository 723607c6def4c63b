/* replicate: a batch shared by several devices gives what one device would have given. */
#include "replicated.h"

/* ---- Networks, with a step of an optimizer ---- */

typedef struct network {
    tu_graph *graph;
    tu_value fetch[2]; /* logits, which are cut, and the loss, which is whole */
} network;

static network make_network(const char *name, int64_t batch, tu_dtype dtype) {
    network n;
    tu_model_graph model;
    tu_optimizer_values values;
    bool is_residual = strcmp(name, "resnet20") == 0;
    assert_int_equal(tu_graph_new(&n.graph), TU_OK);
    int64_t side = strcmp(name, "tutorial-cnn") == 0 ? 12 : 8;
    if (tu_model_build(n.graph, name, &model, .batch = batch, .height = side, .width = side, .base = 4,
                       .dtype = dtype) != TU_OK)
        fail_msg("%s", tu_message());
    if (tu_add_optimizer(model.loss, &values, .name = is_residual ? "nesterov" : "sgd", .constant_rate = 0.1,
                         .clip_norm = 1, .weight_decay = 0.01) != TU_OK)
        fail_msg("%s", tu_message());
    n.fetch[0] = model.logits;
    n.fetch[1] = model.loss;
    return n;
}

static void assert_replicates(const char *name, tu__strategy strategy, size_t replicas, int64_t batch) {
    network n = make_network(name, batch, TU_F64);
    tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, strategy, replicas);
    run_all_passes(&unit);
    assert_same_results(n.graph, n.fetch, &unit, 1e-11);
    tu__unit_end(&unit);
    tu_graph_free(n.graph);
}

static void networks_are_mirrored(void **state) {
    (void)state;
    assert_replicates("mlp", TU__MIRRORED, 2, 6);
    assert_replicates("tutorial-cnn", TU__MIRRORED, 2, 4);
    assert_replicates("resnet20", TU__MIRRORED, 2, 4);
}

static void networks_have_a_central_device(void **state) {
    (void)state;
    assert_replicates("mlp", TU__CENTRAL, 2, 6);
    assert_replicates("tutorial-cnn", TU__CENTRAL, 2, 4);
    assert_replicates("resnet20", TU__CENTRAL, 2, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_mirrored),
        cmocka_unit_test(networks_have_a_central_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
