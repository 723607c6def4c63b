/* A function of your own decides where operations go: here by weight. Large matrix products go to one device, everything
 * that is asked about otherwise stays with the engine.
 *
 * The function sees the graph as the passes have left it, node by node: operation, name, types. It returns a device's name,
 * or NULL. Afterwards the program tells what was decided and why; what a pattern (.place) says would overrule it.
 *
 *     placement_function [DEVICES FOR_LARGE]       as in: "cpu:0,gpu:0" gpu:0 */
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

typedef struct rule {
    const char *device;
    int64_t elements; /* from so many in the result on */
} rule;

static const char *large_products(const tu_graph *graph, uint32_t node, void *context) {
    const rule *r = context;
    if (strcmp(tu_node_operation(graph, node), "matmul") != 0) return NULL;
    tu_type type = tu_edge_type(graph, (tu_edge){node, 0});
    return tu_shape_elements(type.shape) >= r->elements ? r->device : NULL;
}

int main(int argc, char **argv) {
    const char *devices = argc > 2 ? argv[1] : "cpu:0/2";
    rule r = {.device = argc > 2 ? argv[2] : "cpu:0.1", .elements = 100 * 100};
    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(32, 784));
    tu_value h = tu_dense(x, .units = 512, .act = TU_RELU, .name = "large");
    h = tu_dense(h, .units = 10, .name = "small");

    tu_program *program;
    if (tu_compile(g, &program, .devices = devices, .place_by = large_products, .place_context = &r,
                   .fetch = &h, .fetch_count = 1, .plan_only = true) != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        tu_graph_free(g);
        return 1;
    }
    int large = 0, small = 0;
    tu_placement p;
    for (size_t i = 0; tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (p.from) continue;
        printf("%-16s %-10s %-8s %s\n", p.node, p.operation, p.device, p.reason);
        if (strcmp(p.operation, "matmul") != 0) continue;
        bool told = strcmp(p.reason, "placed by the placement function") == 0;
        large += told && strcmp(p.device, r.device) == 0;
        small += !told;
    }
    tu_program_free(program);
    tu_graph_free(g);
    return large == 1 && small == 1 ? 0 : 1;
}
