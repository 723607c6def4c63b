/* Generates C code for the pointwise nodes of a graph from the public view of its nodes (tutti/node.h), as a device
 * plug-in for other hardware would do. It prints one function for each pointwise node, and a comment with the attributes
 * for each other node.
 *
 *     pointwise_source > kernels.c && cc -c kernels.c
 *
 * All values are f32 here; node.h says in which type expressions of other types are computed. */
#include <inttypes.h>
#include <stdio.h>

#include <tutti/tutti.h>

static void print_element(const tu_attribute *a, uint32_t index) {
    if (a->choice)
        printf(" %s", a->choice);
    else if (a->kind == TU_ATTRIBUTE_DTYPE)
        printf(" %s", tu_dtype_name((tu_dtype)a->integers[index]));
    else if (a->reals)
        printf(" %.9g", a->reals[index]);
    else if (a->integers)
        printf(" %" PRId64, a->integers[index]);
    else
        for (int64_t i = 0; i < a->shapes[index].rank; i++) printf(" %" PRId64, a->shapes[index].dim[i]);
}

static tu_status describe(const tu_graph *graph, uint32_t node) {
    size_t bytes;
    printf("/* %s: %s", tu_node_name(graph, node), tu_node_operation(graph, node));
    for (uint32_t i = 0; i < tu_node_attribute_count(graph, node); i++) {
        tu_attribute a = TU_SIZED(tu_attribute);
        TU_TRY(tu_node_attribute_at(graph, node, i, &a));
        printf(", %s", a.name);
        for (uint32_t k = 0; k < a.count; k++) print_element(&a, k);
    }
    if (tu_node_constant(graph, node, &bytes)) printf(", %zu bytes of data", bytes);
    if (tu_node_traits(graph, node) & TU_TRAIT_VIEW) printf(", needs no kernel");
    printf(" */\n");
    return TU_OK;
}

/* Prints the index of the element of an input that belongs to element i of the output: axes are aligned at the last, and
 * an axis of size 1 is repeated. */
static void print_index(tu_shape in, tu_shape out) {
    int64_t out_stride = 1, in_stride = 1;
    printf("[0");
    for (int64_t axis = out.rank - 1, k = in.rank - 1; k >= 0; axis--, k--) {
        if (in.dim[k] != 1)
            printf(" + i / %" PRId64 " %% %" PRId64 " * %" PRId64, out_stride, out.dim[axis], in_stride);
        out_stride *= out.dim[axis];
        in_stride *= in.dim[k];
    }
    printf("]");
}

static tu_status print_function(const tu_graph *graph, uint32_t node) {
    tu_edge inputs[3];
    uint32_t input_count = tu_node_inputs(graph, node, 3, inputs);
    tu_shape shape = tu_edge_type(graph, (tu_edge){node, 0}).shape;
    printf("void node_%" PRIu32 "(const float *const *in, float *out) {\n", node);
    printf("    for (long i = 0; i < %" PRId64 "; i++) {\n", tu_shape_elements(shape));
    for (uint32_t i = 0; i < input_count; i++) {
        printf("        const float %c = in[%" PRIu32 "]", "xyz"[i], i);
        print_index(tu_edge_type(graph, inputs[i]).shape, shape);
        printf(";\n");
    }
    for (uint32_t i = 0; i < tu_node_attribute_count(graph, node) && i < 2; i++) {
        tu_attribute a = TU_SIZED(tu_attribute);
        TU_TRY(tu_node_attribute_at(graph, node, i, &a));
        if (a.kind == TU_ATTRIBUTE_F64) printf("        const float %c = %.9g;\n", "ab"[i], a.reals[0]);
    }
    printf("        out[i] = %s;\n    }\n}\n", tu_node_expression(graph, node));
    return TU_OK;
}

static tu_status print_source(const tu_graph *graph) {
    printf("#include <tgmath.h>\n#define K(n) ((float)(n))\n");
    for (uint32_t node = 0; node < tu_node_count(graph); node++) {
        TU_TRY(describe(graph, node));
        if (tu_node_expression(graph, node)) TU_TRY(print_function(graph, node));
    }
    return TU_OK;
}

int main(void) {
    static const float offsets[8] = {0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4};
    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4, 6, 6, 8));
    tu_value y = tu_convolve(x, tu_input(g, "filter", TU_F32, TU_SHAPE(8, 3, 3, 8)), .stride = {2, 2});
    y = tu_add(y, tu_constant(g, TU_F32, TU_SHAPE(8), offsets));
    y = tu_clip(tu_gelu(y), -1, 6);
    tu_mul(tu_reshape(y, TU_SHAPE(4, -1)), tu_input(g, "rows", TU_F32, TU_SHAPE(4, 1)));
    tu_status status = tu_graph_status(g);
    if (status == TU_OK) status = print_source(g);
    if (status != TU_OK) fprintf(stderr, "%s\n", tu_message());
    tu_graph_free(g);
    return status == TU_OK ? 0 : 2;
}
