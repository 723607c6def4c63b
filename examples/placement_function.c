/* A placement function: assigns large matrix products to one device and leaves all other operations to the engine.
 *
 * The engine calls the function for each node. The function reads the node's operation, name and types (tutti/node.h), and
 * returns the name of a device, or NULL to leave the choice to the engine. A pattern (.place) overrides it. The program then
 * prints the device of each operation, and the reason.
 *
 *     placement_function [DEVICES FOR_LARGE]       for example: "cpu:0,gpu:0" gpu:0 */
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

typedef struct rule {
    const char *device;
    int64_t min_elements; /* of the result */
} rule;

static const char *place_large_products(const tu_graph *graph, uint32_t node, void *context) {
    const rule *r = context;
    if (strcmp(tu_node_operation(graph, node), "matmul") != 0) return NULL;
    tu_type type = tu_edge_type(graph, (tu_edge){node, 0});
    return tu_shape_elements(type.shape) >= r->min_elements ? r->device : NULL;
}

int main(int argc, char **argv) {
    const char *devices = argc > 2 ? argv[1] : "cpu:0/2";
    rule r = {.device = argc > 2 ? argv[2] : "cpu:0.1", .min_elements = 100 * 100};
    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(32, 784));
    tu_value h = tu_dense(x, .units = 512, .act = TU_RELU, .name = "large");
    h = tu_dense(h, .units = 10, .name = "small");

    tu_program *program;
    if (tu_compile(g, &program, .devices = devices, .place_by = place_large_products, .place_context = &r,
                   .fetch = &h, .fetch_count = 1, .plan_only = true) != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        tu_graph_free(g);
        return 1;
    }
    int large = 0, small = 0;
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (p.from) continue;
        printf("%-16s %-10s %-8s %s\n", p.node, p.operation, p.device, p.reason);
        if (strcmp(p.operation, "matmul") != 0) continue;
        bool by_function = strstr(p.reason, "by the placement function") != NULL;
        large += by_function && strcmp(p.device, r.device) == 0;
        small += !by_function;
    }
    tu_program_free(program);
    tu_graph_free(g);
    return large == 1 && small == 1 ? 0 : 1;
}
