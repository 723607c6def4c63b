/* The list of squared norms that a partition has for its device. */
#include "test.h"

#include <tutti/tutti.h>

#include "compile/squared_norms.h"
#include "optim/gradients.h"

/* A partition with all nodes of a graph but its inputs. */
typedef struct subject {
    tu_partition partition;
    tu__arena arena;
    uint32_t nodes[128];
    tu_edge exports[4];
} subject;

static void find_norms(subject *s, tu_graph *g, uint32_t export_count, const tu_value *exports) {
    *s = (subject){.partition = {.struct_size = sizeof s->partition, .graph = g, .nodes = s->nodes},
                   .arena = {.purpose = "a test"}};
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code != TU__OP_INPUT) s->nodes[s->partition.node_count++] = i;
    for (uint32_t i = 0; i < export_count; i++) s->exports[i] = (tu_edge){exports[i].node, exports[i].output};
    s->partition.exports = s->exports;
    s->partition.export_count = export_count;
    assert_int_equal(tu__find_squared_norms(&s->partition, &s->arena), TU_OK);
}

static void free_subject(subject *s, tu_graph *g) {
    tu__arena_free(&s->arena);
    tu_graph_free(g);
}

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

static tu_value norm_of(size_t count, tu_value *tensors) {
    return tu__squared_norm(&(tu__gradients){.count = count, .variables = tensors, .gradients = tensors});
}

static void the_norm_of_an_optimizer_is_listed(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value tensors[] = {tu_input(g, "a", TU_F32, TU_SHAPE(3, 4)), tu_input(g, "b", TU_F32, TU_SHAPE(5)),
                          tu_input(g, "c", TU_F32, TU_SHAPE(2, 2, 2))};
    tu_value norm = norm_of(3, tensors), outputs[] = {tu_is_finite(norm), norm};
    subject s;
    find_norms(&s, g, 2, outputs);
    assert_int_equal(s.partition.norm_count, 1);
    const tu_squared_norm *n = s.partition.norms;
    assert_int_equal(n->total, norm.node);
    assert_int_equal(n->tensor_count, 3);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(n->tensors[i].node, tensors[2 - i].node);
    assert_int_equal(n->node_count, 2 + 4 + 3 + 4); /* additions; squares, sums and casts of each tensor */
    free_subject(&s, g);
}

/* Forms: 0: not of squares; 1: another node reads a sum; 2: a sum is exported; 3: a norm. */
static void other_sums_are_not_listed(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        tu_graph *g = new_graph();
        tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4)), y = tu_input(g, "y", TU_F32, TU_SHAPE(6));
        tu_value of_x = tu_sum(form == 0 ? tu_abs(x) : tu_square(x)), of_y = tu_sum(tu_square(y));
        tu_value total = tu_add(tu_cast(of_x, TU_F64), tu_cast(of_y, TU_F64));
        tu_value exports[2] = {total, of_y};
        if (form == 1) tu_neg(of_x);
        subject s;
        find_norms(&s, g, form == 2 ? 2 : 1, exports);
        assert_int_equal(s.partition.norm_count, form == 3 ? 1 : 0);
        free_subject(&s, g);
    }
}

/* A part of a norm that another device computes prevents the list. */
static void norms_over_several_devices_are_not_listed(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value tensors[] = {tu_input(g, "a", TU_F32, TU_SHAPE(3)), tu_input(g, "b", TU_F32, TU_SHAPE(5))};
    tu_value elsewhere = tu_input(g, "c", TU_F64, TU_SCALAR);
    tu_value norm = tu_add(norm_of(2, tensors), elsewhere);
    subject s;
    find_norms(&s, g, 1, &norm);
    assert_int_equal(s.partition.norm_count, 0);
    free_subject(&s, g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_norm_of_an_optimizer_is_listed),
        cmocka_unit_test(other_sums_are_not_listed),
        cmocka_unit_test(norms_over_several_devices_are_not_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
