/* The pass `replicate`: a batch divided among several devices gives the same results as on one device. */
#include "replicated.h"

#include "base/alloc.h"

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return graph;
}

/* ---- Networks with an optimizer step ---- */

typedef struct network {
    tu_graph *graph;
    tu_value fetch[2]; /* logits, which are sharded, and the loss, which is replicated */
} network;

static network make_network(const char *name, int64_t batch, tu_dtype dtype) {
    network n;
    tu_network_graph model = TU_SIZED(tu_network_graph);
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    bool is_residual = strcmp(name, "resnet20") == 0;
    assert_int_equal(tu_graph_new(&n.graph), TU_OK);
    int64_t side = strcmp(name, "tutorial-cnn") == 0 ? 12 : 8;
    if (tu_network_build(n.graph, name, &model, .batch = batch, .height = side, .width = side, .base = 4,
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

static void networks_work_mirrored(void **state) {
    (void)state;
    assert_replicates("mlp", TU__MIRRORED, 2, 6);
    assert_replicates("tutorial-cnn", TU__MIRRORED, 2, 4);
    assert_replicates("resnet20", TU__MIRRORED, 2, 4);
}

static void networks_work_with_a_central_device(void **state) {
    (void)state;
    assert_replicates("mlp", TU__CENTRAL, 2, 6);
    assert_replicates("tutorial-cnn", TU__CENTRAL, 2, 4);
    assert_replicates("resnet20", TU__CENTRAL, 2, 4);
}

static void networks_train_in_half_precision(void **state) {
    (void)state;
    network n = make_network("resnet20", 4, TU_F32);
    tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, TU__MIRRORED, 2);
    unit.precision = TU__PRECISION_BF16;
    run_all_passes(&unit);
    size_t statistics = 0;
    for (uint32_t i = 0; i < unit.graph->node_count; i++) { /* all sums of gradients and statistics are f32 */
        const tu__node *node = unit.graph->nodes[i];
        bool statistic = node->op->code == TU__OP_SUM && strstr(node->name, "/global/");
        if (statistic) assert_int_equal(tu_edge_type(unit.graph, node->inputs[0]).dtype, TU_F32);
        statistics += statistic;
        if (node->op->code == TU__OP_ALL_REDUCE) assert_int_equal(node->outputs[0].dtype, TU_F32);
    }
    assert_int_equal(statistics, 2 * 4 * count_nodes(n.graph, TU__OP_BATCH_NORM));
    interpretation before = interpret(n.graph), after = interpret(unit.graph);
    assert_true(distance(value_in(&before, (tu__edge){n.fetch[1].node, n.fetch[1].output}),
                         value_in(&after, unit.fetch[1])) < 0.02);
    interpretation_free(&before);
    interpretation_free(&after);
    tu__unit_end(&unit);
    tu_graph_free(n.graph);
}

/* ---- Shards ---- */

static const tu__node *find_node(const tu__unit *unit, const char *name) {
    const tu__node *node = tu__find_node(unit->graph, name);
    if (!node) fail_msg("there is no '%s'", name);
    return node;
}

static void shards_refer_to_the_original_nodes(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(8, 2)),
             rate = tu_input(g, "rate", TU_F32, TU_SCALAR);
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2));
    tu_assign(w, tu_sub(w, tu_mul(rate, tu_sum(tu_mul(x, w), .axes = TU_AXES(0)))));
    tu__unit unit = unit_to_replicate(g, 0, NULL, TU__MIRRORED, 3);
    run_all_passes(&unit);
    static const int64_t rows[] = {3, 3, 2}, first[] = {0, 3, 6};
    for (int i = 0; i < 3; i++) {
        char name[24];
        snprintf(name, sizeof name, "x@%d", i);
        const tu__node *shard = find_node(&unit, name);
        assert_string_equal(shard->stands_for, "x");
        assert_int_equal(shard->first_row, first[i]);
        assert_int_equal(shard->outputs[0].shape.dim[0], rows[i]);
        assert_string_equal(shard->device, replica_names[i]);
    }
    assert_null(find_node(&unit, "w")->stands_for);
    assert_string_equal(find_node(&unit, "w@2")->stands_for, "w");
    assert_string_equal(find_node(&unit, "w@2")->device, "cpu:0.2");
    assert_string_equal(find_node(&unit, "rate@1")->stands_for, "rate");
    assert_int_equal(count_nodes(unit.graph, TU__OP_ASSIGN), 3);
    assert_int_equal(count_nodes(unit.graph, TU__OP_COPY), 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void the_central_device_has_the_variables(void **state) {
    (void)state;
    network n = make_network("mlp", 6, TU_F32);
    tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, TU__CENTRAL, 3);
    run_all_passes(&unit);
    assert_int_equal(count_nodes(unit.graph, TU__OP_ALL_REDUCE), 0);
    for (uint32_t i = 0; i < unit.graph->node_count; i++) {
        const tu__node *node = unit.graph->nodes[i];
        bool is_variable = node->op->code == TU__OP_VARIABLE || node->op->code == TU__OP_ASSIGN;
        if (is_variable) assert_string_equal(node->device, central_name);
        if (node->op->code == TU__OP_MATMUL) assert_string_not_equal(node->device, central_name);
        assert_true(node->op->code != TU__OP_VARIABLE || !node->stands_for);
    }
    tu__unit_end(&unit);
    tu_graph_free(n.graph);
}

/* Nothing is sharded: every replica computes the same. */
static void a_graph_without_samples_is_replicated_unchanged(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(3)), next = tu_tanh(w);
    tu_assign(w, next);
    tu__unit unit = unit_to_replicate(g, 1, &next, TU__MIRRORED, 2);
    run_all_passes(&unit);
    assert_int_equal(count_nodes(unit.graph, TU__OP_TANH), 2);
    assert_int_equal(count_nodes(unit.graph, TU__OP_ASSIGN), 2);
    assert_same_results(g, &next, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void a_graph_for_one_device_is_not_changed(void **state) {
    (void)state;
    network n = make_network("mlp", 4, TU_F32);
    tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, TU__MIRRORED, 1);
    run_all_passes(&unit);
    assert_non_null(tu__find_node(unit.graph, "images"));
    assert_same_results(n.graph, n.fetch, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(n.graph);
}

/* A fill of the batch's size is built with the shard's size, and so is a broadcast over the samples. */
static void fills_and_broadcasts_are_built_with_the_shards_size(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 2, 3));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(3));
    tu_value y = tu_mul(x, tu_broadcast(w, TU_SHAPE(4, 2, 3)));
    tu_value rows = tu_reshape(tu_broadcast(tu_tanh(w), TU_SHAPE(8, 3)), TU_SHAPE(4, 2, 3));
    tu_value fetch = tu_add(tu_mul(y, rows), tu_random_uniform(g, TU_F32, TU_SHAPE(4, 1, 1), 0, 1));
    tu__unit unit = unit_to_replicate(g, 1, &fetch, TU__MIRRORED, 2);
    run_all_passes(&unit);
    assert_same_results(g, &fetch, &unit, 0);
    /* Slices of the random numbers, which are generated once per step for all replicas. */
    assert_int_equal(count_nodes(unit.graph, TU__OP_SLICE), 2);
    for (uint32_t i = 0; i < unit.graph->node_count; i++) {
        const tu__node *node = unit.graph->nodes[i];
        if (node->op->code == TU__OP_BROADCAST) assert_true(tu_shape_elements(node->outputs[0].shape) == 12);
    }
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* ---- Control dependencies and colocation ---- */

static void control_dependencies_connect_shards_of_one_replica(void **state) {
    (void)state;
    for (tu__strategy strategy = TU__CENTRAL; strategy <= TU__MIRRORED; strategy++) {
        tu_graph *g = new_graph();
        tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 2));
        tu_value a = tu_name(tu_tanh(x), "a"), b = tu_name(tu_exp(x), "b");
        tu_value total = tu_name(tu_sum(a), "total"), late = tu_name(tu_square(tu_sin(x)), "late");
        tu_colocate(a, b);
        tu_after(b, a);
        tu_after(late, total);
        tu_value fetch[] = {b, late, total};
        tu__unit unit = unit_to_replicate(g, 3, fetch, strategy, 2);
        run_all_passes(&unit);
        assert_same_results(g, fetch, &unit, 1e-6);
        const tu__node *second = find_node(&unit, "b@1");
        assert_int_equal(second->after_count, 1);
        assert_int_equal(second->after[0], find_node(&unit, "a@1")->id);
        assert_int_equal(find_node(&unit, "late@1")->after_count, 1);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

/* A control dependency is computed even if nothing reads it, but its partial sums are not added. */
static void control_dependencies_on_unread_partial_sums_are_kept(void **state) {
    (void)state;
    for (tu__strategy strategy = TU__CENTRAL; strategy <= TU__MIRRORED; strategy++) {
        tu_graph *g = new_graph();
        tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 2));
        tu_value total = tu_name(tu_sum(tu_tanh(x)), "total"), late = tu_name(tu_sin(x), "late");
        tu_after(late, total);
        tu__unit unit = unit_to_replicate(g, 1, &late, strategy, 2);
        run_all_passes(&unit);
        const tu__node *second = find_node(&unit, "late@1");
        assert_int_equal(second->after_count, 1);
        assert_int_equal(second->after[0], find_node(&unit, "total@1")->id);
        assert_int_equal(count_nodes(unit.graph, TU__OP_ALL_REDUCE), 0);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

/* ---- Batch-norm ---- */

/* Checks y, and the new moving mean, for images whose shards are normalised separately. */
static void check_separate_normalisation(tu_batch_scope scope, int invariant) {
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F64, TU_SHAPE(5, 3, 2)), y = x;
    tu_scope(g, "norm") y = tu_batch_norm(x, .name = "one", .scope = scope);
    tu_value w = tu_find(g, "norm/one/gamma"), dw;
    assert_int_equal(tu_gradients(tu_sum(tu_mul(y, tu_square(x))), 1, &w, &dw), TU_OK);
    tu_value fetch[] = {y, dw};
    tu__unit unit = unit_to_replicate(g, 2, fetch, TU__MIRRORED, 2);
    unit.replication.invariant = invariant;
    run_all_passes(&unit);
    assert_int_equal(count_nodes(unit.graph, TU__OP_BATCH_NORM), 2);
    interpretation it = interpret(unit.graph);
    const tu__tensor *in[] = {value_in(&it, (tu__edge){find_node(&unit, "x@0")->id, 0}),
                              value_in(&it, (tu__edge){find_node(&unit, "x@1")->id, 0})};
    double mean[2] = {0}; /* per channel, weighted by samples: the mean of all rows */
    for (int shard = 0; shard < 2; shard++)
        for (int64_t i = 0; i < tu_shape_elements(in[shard]->type.shape); i++)
            mean[i % 2] += in[shard]->data[i] / 15;
    const tu__tensor *moved = assigned_in(&it, "norm/one/moving_mean"),
                     *before = value_in(&it, (tu__edge){find_node(&unit, "norm/one/moving_mean")->id, 0});
    for (int c = 0; c < 2; c++)
        assert_true(fabs(moved->data[c] - (0.9 * before->data[c] + 0.1 * mean[c])) < 1e-14);
    const tu__tensor *last = value_in(&it, unit.fetch[0]); /* the last shard has rows 3 and 4 of the batch */
    double sum = 0;
    for (int64_t i = 18; i < 30; i += 2) sum += last->data[i];
    const tu__tensor *beta = value_in(&it, (tu__edge){find_node(&unit, "norm/one/beta")->id, 0});
    assert_true(fabs(sum - 6 * beta->data[0]) < 1e-13);
    interpretation_free(&it);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void batch_norm_can_be_per_shard(void **state) {
    (void)state;
    check_separate_normalisation(TU_SCOPE_REPLICA, 0);
    check_separate_normalisation(TU_SCOPE_SHARD, 0);
    check_separate_normalisation(TU_SCOPE_GLOBAL, 2);
}

static size_t count_collectives(const tu_graph *g) {
    int64_t last = -1; /* they are numbered from 0 on */
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_ALL_REDUCE &&
            tu__attrs(g->nodes[i], all_reduce)->collective > last)
            last = tu__attrs(g->nodes[i], all_reduce)->collective;
    return (size_t)(last + 1);
}

/* Two collectives forward, for mean and variance; one backward, for the two gradients that dx depends on. */
static void global_batch_norm_needs_three_collectives(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 3));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(3)), dw;
    tu_value y = tu_batch_normalize(tu_mul(x, w), w, w);
    assert_int_equal(tu_gradients(tu_sum(tu_square(y)), 1, &w, &dw), TU_OK);
    tu__unit unit = unit_to_replicate(g, 1, &dw, TU__MIRRORED, 2);
    run_all_passes(&unit);
    assert_int_equal(count_collectives(unit.graph), 4); /* and one for the gradient of w */
    assert_same_results(g, &dw, &unit, 1e-4);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* ---- Collectives ---- */

/* If shards are normalised separately, nothing depends on the sums of their statistics. */
static void statistics_per_shard_share_the_gradients_collective(void **state) {
    (void)state;
    network n = make_network("resnet20", 4, TU_F32);
    tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, TU__MIRRORED, 2);
    unit.replication.invariant = 2;
    run_all_passes(&unit);
    assert_int_equal(count_collectives(unit.graph), 1);
    tu__unit_end(&unit);
    tu_graph_free(n.graph);
}

/* Returns, per node, the highest collective that it depends on; -1: none. The caller must free it. */
static int64_t *highest_collectives(const tu_graph *g) {
    int64_t *highest = calloc(g->node_count, sizeof *highest);
    assert_non_null(highest);
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        highest[id] = -1;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (highest[node->inputs[i].node] > highest[id]) highest[id] = highest[node->inputs[i].node];
        if (node->op->code != TU__OP_ALL_REDUCE) continue;
        int64_t collective = tu__attrs(node, all_reduce)->collective;
        if (highest[id] >= collective)
            fail_msg("'%s' of collective %d depends on collective %d", node->name, (int)collective,
                     (int)highest[id]);
        highest[id] = collective;
    }
    return highest;
}

static void check_collective_order(const char *name) {
    network n = make_network(name, 6, TU_F32);
    tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, TU__MIRRORED, 3);
    run_all_passes(&unit);
    free(highest_collectives(unit.graph));
    for (uint32_t i = 0; i < unit.graph->node_count; i++) /* all ranks contribute the same shapes */
        if (unit.graph->nodes[i]->op->code == TU__OP_ALL_REDUCE)
            for (int64_t rank = 0; rank < 3; rank++) {
                const tu__node *other = collective_of_rank(unit.graph, unit.graph->nodes[i], rank);
                assert_true(tu_shape_equal(other->outputs[0].shape, unit.graph->nodes[i]->outputs[0].shape));
            }
    tu__unit_end(&unit);
    tu_graph_free(n.graph);
}

static void collectives_depend_only_on_earlier_ones(void **state) {
    (void)state;
    check_collective_order("mlp");
    check_collective_order("resnet20");
}

static void gradients_share_collectives_up_to_the_bucket_size(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 1024)), w[5], dw[5];
    for (int i = 0; i < 5; i++) { /* the last three have 4 MiB each */
        char name[24];
        snprintf(name, sizeof name, "w%d", i);
        w[i] = tu_variable(g, name, TU_F32, i < 2 ? TU_SHAPE(1024) : TU_SHAPE(1024, 1024));
        x = i < 2 ? tu_mul(x, w[i]) : tu_matmul(x, w[i]);
    }
    assert_int_equal(tu_gradients(tu_sum(tu_square(x)), 5, w, dw), TU_OK);
    tu__unit unit = unit_to_replicate(g, 5, dw, TU__MIRRORED, 2);
    run_all_passes(&unit);
    static const int64_t collective[] = {3, 3, 2, 1, 0}; /* the backward pass starts at the last layer */
    for (int i = 0; i < 5; i++) {
        const tu__node *sum = unit.graph->nodes[unit.fetch[i].node];
        if (sum->op->code == TU__OP_RESHAPE) sum = unit.graph->nodes[sum->inputs[0].node];
        assert_int_equal(sum->op->code, TU__OP_ALL_REDUCE);
        assert_int_equal(tu__attrs(sum, all_reduce)->collective, collective[i]);
    }
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* Statistics with enough channels to be sent as bf16, if they were gradients. */
static void statistics_are_not_sent_as_bf16(void **state) {
    (void)state;
    for (tu__strategy strategy = TU__CENTRAL; strategy <= TU__MIRRORED; strategy++) {
        tu_graph *g = new_graph();
        tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 1024));
        tu_value gamma = tu_variable(g, "gamma", TU_F32, TU_SHAPE(1024)), dx;
        tu_value y = tu_batch_normalize(x, gamma, gamma);
        assert_int_equal(tu_gradients(tu_sum(tu_square(y)), 1, &x, &dx), TU_OK);
        tu__unit unit = unit_to_replicate(g, 1, &dx, strategy, 2);
        unit.replication.bf16_gradients = true;
        run_all_passes(&unit);
        for (uint32_t i = 0; i < unit.graph->node_count; i++)
            assert_int_not_equal(unit.graph->nodes[i]->outputs[0].dtype, TU_BF16);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

static void gradients_are_sent_as_bf16_if_requested(void **state) {
    (void)state;
    for (tu__strategy strategy = TU__CENTRAL; strategy <= TU__MIRRORED; strategy++) {
        tu_graph *g = new_graph();
        tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 32)), dw[2];
        tu_value w[] = {tu_variable(g, "w", TU_F32, TU_SHAPE(32, 32)),
                        tu_variable(g, "b", TU_F32, TU_SHAPE(32))};
        assert_int_equal(tu_gradients(tu_sum(tu_tanh(tu_add(tu_matmul(x, w[0]), w[1]))), 2, w, dw), TU_OK);
        tu__unit unit = unit_to_replicate(g, 2, dw, strategy, 2);
        unit.replication.bf16_gradients = true;
        run_all_passes(&unit);
        size_t rounded = 0;
        for (uint32_t i = 0; i < unit.graph->node_count; i++) {
            const tu__node *node = unit.graph->nodes[i];
            bool is_transfer = node->op->code == TU__OP_ALL_REDUCE || node->op->code == TU__OP_COPY;
            rounded += is_transfer && node->outputs[0].dtype == TU_BF16;
        }
        assert_int_equal(rounded, 2);
        assert_same_results(g, dw, &unit, 0.01);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

/* ---- The same bits ---- */

static void invariant_sums_do_not_depend_on_the_number_of_devices(void **state) {
    (void)state;
    network n = make_network("resnet20", 9, TU_F32);
    tu__unit one = unit_to_replicate(n.graph, 2, n.fetch, TU__MIRRORED, 1);
    one.replication.invariant = 8;
    run_all_passes(&one);
    interpretation single = interpret(one.graph);
    for (size_t replicas = 2; replicas <= 8; replicas *= 2)
        for (tu__strategy strategy = TU__CENTRAL; strategy <= TU__MIRRORED; strategy++) {
            tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, strategy, replicas);
            unit.replication.invariant = 8;
            run_all_passes(&unit);
            interpretation replicated = interpret(unit.graph);
            for (uint32_t i = 0; i < n.graph->node_count; i++) {
                const tu__tensor *a = assigned_in(&single, n.graph->nodes[i]->name);
                if (a && !same_numbers(a, assigned_in(&replicated, n.graph->nodes[i]->name)))
                    fail_msg("'%s' has different bits on %zu devices", n.graph->nodes[i]->name, replicas);
            }
            interpretation_free(&replicated);
            tu__unit_end(&unit);
        }
    interpretation_free(&single);
    tu__unit_end(&one);
    tu_graph_free(n.graph);
}

/* ---- Invalid requests ---- */

static void assert_rejected(tu__unit *unit, tu_status status, const char *text) {
    assert_int_equal(tu__run_passes(unit, NULL), status);
    if (!strstr(tu_message(), text)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), text);
    tu__unit_end(unit);
}

static const char *no_placement(const tu_graph *graph, uint32_t node, void *context) {
    (void)graph, (void)node, (void)context;
    return NULL;
}

static void placement_options_are_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 2)), y = tu_tanh(x), pinned = x;
    tu__placement_options patterns = {.patterns = "tanh=cpu:0.1"}, function = {.choose_device = no_placement};
    tu__unit unit = unit_to_replicate(g, 1, &y, TU__MIRRORED, 2);
    unit.placement = &patterns;
    assert_rejected(
        &unit, TU_INVALID,
        "strategy 'mirrored' places every operation itself and cannot be combined with placement patterns");
    unit = unit_to_replicate(g, 1, &y, TU__CENTRAL, 2);
    unit.placement = &function;
    assert_rejected(&unit, TU_INVALID, "cannot be combined with a placement function");
    tu_with_device(g, "cpu:0.1") pinned = tu_exp(x);
    unit = unit_to_replicate(g, 1, &pinned, TU__MIRRORED, 2);
    assert_rejected(&unit, TU_INVALID, "but exp 'exp' is placed on 'cpu:0.1' by tu_with_device");
    tu_graph_free(g);
}

static void batches_that_cannot_be_divided_are_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(3, 2)),
             y = tu_batch_input(g, "y", TU_F32, TU_SHAPE(4));
    tu_value z = tu_tanh(x), both[] = {z, tu_tanh(y)};
    tu__unit unit = unit_to_replicate(g, 1, &z, TU__MIRRORED, 4);
    assert_rejected(&unit, TU_INVALID, "a batch of 3 cannot be divided into 4 shards, one per device");
    unit = unit_to_replicate(g, 1, &z, TU__MIRRORED, 2);
    unit.replication.invariant = 8;
    assert_rejected(&unit, TU_INVALID, "a batch of 3 cannot be divided into 8 shards (invariant)");
    unit = unit_to_replicate(g, 2, both, TU__MIRRORED, 2);
    assert_rejected(&unit, TU_UNSUPPORTED,
                    "'x' is f32[3,2] and 'y' is f32[4]: expected the same number of samples in both");
    tu_graph_free(g);
}

/* Even on one device an operation cannot read the samples of another shard. */
static void operations_across_shards_are_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value y = tu_max(tu_batch_input(g, "x", TU_F32, TU_SHAPE(8, 2)), .axes = TU_AXES(0));
    tu__unit unit = unit_to_replicate(g, 1, &y, TU__MIRRORED, 1);
    unit.replication.invariant = 4;
    assert_rejected(
        &unit, TU_UNSUPPORTED,
        "takes the maximum over samples (axis 0 of input 0, f32[8,2]), and the samples are in different "
        "shards; use strategy 'single' without invariant");
    tu_graph_free(g);
}

static void invalid_invariant_options_are_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value y = tu_tanh(tu_batch_input(g, "x", TU_F32, TU_SHAPE(24, 2)));
    static const struct {
        int shards;
        size_t replicas;
    } bad[] = {{8, 3}, {12, 3}, {2, 4}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tu__unit unit = unit_to_replicate(g, 1, &y, TU__MIRRORED, bad[i].replicas);
        unit.replication.invariant = bad[i].shards;
        assert_rejected(&unit, TU_INVALID,
                        "expected a number of devices that is a power of two and divides the");
    }
    tu__unit unit = unit_to_replicate(g, 1, &y, TU__MIRRORED, 2);
    unit.replication.invariant = -1;
    assert_rejected(&unit, TU_INVALID, "invariant is -1");
    unit = unit_to_replicate(g, 1, &y, TU__MIRRORED, 2);
    unit.replication.invariant = 4;
    unit.replication.bf16_gradients = true;
    assert_rejected(&unit, TU_INVALID, "invariant 4 cannot be combined with bf16 gradients");
    tu_graph_free(g);
}

/* ---- Out of memory ---- */

static void running_out_of_memory_fails_without_leaks(void **state) {
    (void)state;
    network n = make_network("mlp", 4, TU_F32);
    int64_t live = tu__alloc_live();
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth += 7) {
        tu__unit unit = unit_to_replicate(n.graph, 2, n.fetch, nth % 2 ? TU__MIRRORED : TU__CENTRAL, 2);
        assert_int_equal(tu__run_passes(&unit, "simplify"), TU_OK);
        tu__alloc_fail_at(nth);
        status = tu__pass_replicate(&unit);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        tu__unit_end(&unit);
        assert_int_equal(tu__alloc_live(), live);
    }
    tu_graph_free(n.graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_work_mirrored),
        cmocka_unit_test(networks_work_with_a_central_device),
        cmocka_unit_test(networks_train_in_half_precision),
        cmocka_unit_test(shards_refer_to_the_original_nodes),
        cmocka_unit_test(the_central_device_has_the_variables),
        cmocka_unit_test(a_graph_without_samples_is_replicated_unchanged),
        cmocka_unit_test(a_graph_for_one_device_is_not_changed),
        cmocka_unit_test(fills_and_broadcasts_are_built_with_the_shards_size),
        cmocka_unit_test(control_dependencies_connect_shards_of_one_replica),
        cmocka_unit_test(control_dependencies_on_unread_partial_sums_are_kept),
        cmocka_unit_test(batch_norm_can_be_per_shard),
        cmocka_unit_test(global_batch_norm_needs_three_collectives),
        cmocka_unit_test(collectives_depend_only_on_earlier_ones),
        cmocka_unit_test(gradients_share_collectives_up_to_the_bucket_size),
        cmocka_unit_test(statistics_per_shard_share_the_gradients_collective),
        cmocka_unit_test(gradients_are_sent_as_bf16_if_requested),
        cmocka_unit_test(statistics_are_not_sent_as_bf16),
        cmocka_unit_test(invariant_sums_do_not_depend_on_the_number_of_devices),
        cmocka_unit_test(placement_options_are_rejected),
        cmocka_unit_test(batches_that_cannot_be_divided_are_rejected),
        cmocka_unit_test(operations_across_shards_are_rejected),
        cmocka_unit_test(invalid_invariant_options_are_rejected),
        cmocka_unit_test(running_out_of_memory_fails_without_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
