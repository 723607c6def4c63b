/* The public view of nodes: choices, constants and errors; and that devices can generate kernels from the expressions
 * of pointwise operations. tests/ops/test_case_view.c compares the view of every operation with graph files.
 *
 * The last test writes a C function for every pointwise operation, knowing only what node.h says about expressions,
 * compiles all of them with cc, and compares each with the reference kernel. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"
#include "temp_folder.h"
#include "test.h"

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

/* ---- Attributes ---- */

static void integers_that_are_choices_have_names(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(1, 4, 4, 1)), y = tu_resize(x, 2, 3, TU_NEAREST);
    tu_attribute a = TU_SIZED(tu_attribute);
    assert_int_equal(tu_node_attribute_count(g, y.node), 2);
    assert_int_equal(tu_node_find_attribute(g, y.node, "method", &a), TU_OK);
    assert_string_equal(a.choice, "nearest");
    assert_int_equal(a.integers[0], TU_NEAREST);
    assert_int_equal(tu_node_find_attribute(g, y.node, "size", &a), TU_OK);
    assert_null(a.choice);
    assert_true(a.count == 2 && a.integers[0] == 2 && a.integers[1] == 3);
    tu_graph_free(g);
}

static void a_missing_attribute_is_an_error_that_names_it(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_softmax(tu_input(g, "x", TU_F32, TU_SHAPE(4)), 0);
    tu_attribute a = TU_SIZED(tu_attribute), unset = {0};
    assert_int_equal(tu_node_find_attribute(g, x.node, "axes", &a), TU_NOT_FOUND);
    assert_string_equal(tu_message(), "softmax 'softmax' has no attribute 'axes'");
    assert_int_equal(tu_node_attribute_at(g, x.node, 1, &a), TU_NOT_FOUND);
    assert_string_equal(tu_message(), "softmax 'softmax' has no attribute 1: it has 1");
    assert_int_equal(tu_node_attribute_at(g, x.node, 0, &unset), TU_INVALID);
    assert_non_null(strstr(tu_message(), "TU_SIZED(tu_attribute)"));
    assert_int_equal(tu_node_find_attribute(g, x.node, "axis", &unset), TU_INVALID);
    tu_graph_free(g);
}

static void copying_an_attribute_writes_no_more_than_it_has(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_resize(tu_input(g, "x", TU_F32, TU_SHAPE(1, 4, 4, 1)), 2, 3, TU_NEAREST);
    int64_t size[3] = {7, 7, 7};
    assert_int_equal(tu_node_attribute(g, x.node, "size", 1, size), TU_OK);
    assert_true(size[0] == 2 && size[1] == 7);
    assert_int_equal(tu_node_attribute(g, x.node, "size", 3, size), TU_OK);
    assert_true(size[0] == 2 && size[1] == 3 && size[2] == 7);
    tu_graph_free(g);
}

/* ---- Constants ---- */

static void constants_have_data_and_fills_have_a_number(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    static const int32_t numbers[3] = {4, -5, 6};
    tu_value c = tu_constant(g, TU_I32, TU_SHAPE(3), numbers), f = tu_fill(g, TU_F32, TU_SHAPE(3), 0.5);
    size_t bytes;
    const void *data = tu_node_constant(g, c.node, &bytes);
    assert_int_equal(bytes, sizeof numbers);
    assert_memory_equal(data, numbers, sizeof numbers);
    assert_null(tu_node_constant(g, f.node, &bytes));
    assert_int_equal(bytes, 0);
    tu_attribute a = TU_SIZED(tu_attribute);
    assert_int_equal(tu_node_find_attribute(g, f.node, "number", &a), TU_OK);
    assert_true(a.kind == TU_ATTRIBUTE_F64 && a.reals[0] == 0.5);
    tu_graph_free(g);
}

/* ---- Expressions ---- */

enum { NUMBERS = 16 }; /* elements of an input */

/* Values inside and outside of the functions' domains, ties and a zero; the second and third input start elsewhere. */
static const double numbers[NUMBERS] = {-2.5, 0.25, 1, -0.5, 3, -1,     0.75, 0,
                                        1.5,  -3,   2, 0.5,  7, -0.125, 100,  -90};

/* A node with one pointwise operation. */
typedef struct subject {
    tu_graph *graph;
    uint32_t node;
} subject;

/* Makes a node of the operation whose inputs have the type `dtype`; false if the operation does not accept it. */
static bool make_subject(const tu__op *op, tu_dtype dtype, subject *s) {
    bool has_condition = op->code == TU__OP_SELECT;
    double bounds[2] = {-0.5, 0.75};
    struct tu__cast_attrs cast = {.dtype = TU_I32};
    s->graph = new_graph();
    tu_value in[3];
    for (uint32_t i = 0; i < op->inputs; i++) {
        char name[2] = {"xyz"[i], 0};
        in[i] = tu_input(s->graph, name, has_condition && i == 0 ? TU_BOOL : dtype, TU_SHAPE(NUMBERS));
    }
    tu_value value =
        tu__make(s->graph, &(tu__node_request){.op = op->code,
                                               .attrs = op->code == TU__OP_CAST ? (const void *)&cast
                                                                                : (const void *)bounds,
                                               .inputs = in,
                                               .input_count = op->inputs});
    s->node = value.node;
    if (tu_ok(value)) return true;
    tu_graph_free(s->graph);
    return false;
}

/* The names that node.h allows in expressions. */
static const char *const allowed[] = {"x",   "y",     "z",    "a",     "b",    "K",   "pow",
                                      "exp", "expm1", "log",  "log1p", "sqrt", "sin", "cos",
                                      "tan", "erf",   "tanh", "floor", "ceil", "rint"};

static bool is_allowed(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (strlen(allowed[i]) == length && strncmp(allowed[i], name, length) == 0) return true;
    return false;
}

static void expressions_contain_only_the_names_that_node_h_lists(void **state) {
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_",
                      characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    for (int i = 0; i < TU__OP_COUNT; i++) {
        const char *next = tu__op_get((tu__opcode)i)->expression;
        while (next && *(next += strcspn(next, letters))) {
            size_t length = strspn(next, characters);
            if (!is_allowed(next, length)) fail_msg("unknown name at '%s'", next);
            next += length;
        }
    }
}

/* Writes "double NAME(double x, double y, double z, double a, double b)". */
static void write_function(FILE *out, const subject *s) {
    const char *name = tu_node_operation(s->graph, s->node);
    fprintf(out, "double f_%s(double x, double y, double z, double a, double b) {\n", name);
    fprintf(out, "    (void)x, (void)y, (void)z, (void)a, (void)b;\n    return %s;\n}\n",
            tu_node_expression(s->graph, s->node));
}

/* Compiles the functions of all pointwise operations and loads them. */
static void *compile_expressions(const folder *f) {
    char command[256];
    FILE *out = fopen(f->file, "w");
    assert_non_null(out);
    fprintf(out, "#include <math.h>\n#define K(n) ((double)(n))\n");
    for (int i = 0; i < TU__OP_COUNT; i++) {
        const tu__op *op = tu__op_get((tu__opcode)i);
        subject s;
        if (!(op->traits & TU__POINTWISE)) continue;
        assert_true(make_subject(op, TU_F32, &s) || make_subject(op, TU_BOOL, &s));
        write_function(out, &s);
        tu_graph_free(s.graph);
    }
    assert_int_equal(fclose(out), 0);
    snprintf(command, sizeof command,
             "cc -std=c17 -Wall -Werror -ffp-contract=off -shared -fPIC -o '%s/f.so' '%s' -lm", f->path,
             f->file);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/f.so", f->path);
    void *library = dlopen(command, RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    unlink(command);
    return library;
}

static double load(tu_dtype dtype, const void *data, int index) {
    switch (dtype) {
    case TU_F32: return (double)((const float *)data)[index];
    case TU_F64: return ((const double *)data)[index];
    case TU_I32: return ((const int32_t *)data)[index];
    case TU_I8: return ((const int8_t *)data)[index];
    default: return ((const uint8_t *)data)[index]; /* u8, bool */
    }
}

static double saturate(double x, double low, double high) {
    return isnan(x) ? 0 : trunc(x < low ? low : x > high ? high : x);
}

/* Converts a result as node.h describes. */
static double convert(tu_dtype dtype, double x) {
    switch (dtype) {
    case TU_F32: return (double)(float)x;
    case TU_I32: return saturate(x, INT32_MIN, INT32_MAX);
    case TU_U8: return saturate(x, 0, 255);
    case TU_I8: return saturate(x, -128, 127);
    case TU_BOOL: return x == 0 ? 0 : 1;
    default: return x;
    }
}

static void store(tu_dtype dtype, void *data, int index, double x) {
    x = convert(dtype, x);
    switch (dtype) {
    case TU_F32: ((float *)data)[index] = (float)x; break;
    case TU_F64: ((double *)data)[index] = x; break;
    case TU_I32: ((int32_t *)data)[index] = (int32_t)x; break;
    case TU_I8: ((int8_t *)data)[index] = (int8_t)x; break;
    default: ((uint8_t *)data)[index] = (uint8_t)x; break;
    }
}

/* The value of the attribute that expressions call a or b; 0 if there is none. */
static double attribute_number(const subject *s, uint32_t index) {
    tu_attribute a = TU_SIZED(tu_attribute);
    if (index >= tu_node_attribute_count(s->graph, s->node)) return 0;
    assert_int_equal(tu_node_attribute_at(s->graph, s->node, index, &a), TU_OK);
    return a.kind == TU_ATTRIBUTE_F64 ? a.reals[0] : 0;
}

typedef double (*scalar)(double x, double y, double z, double a, double b);

static void compare_with_reference(const subject *s, scalar f) {
    double in[3][NUMBERS], out[NUMBERS]; /* memory for any type */
    tu_edge inputs[3];
    uint32_t count = tu_node_inputs(s->graph, s->node, 3, inputs);
    tu_dtype types[3] = {TU_F32, TU_F32, TU_F32};
    for (uint32_t i = 0; i < count; i++) {
        types[i] = tu_edge_type(s->graph, inputs[i]).dtype;
        for (int k = 0; k < NUMBERS; k++) store(types[i], in[i], k, numbers[(k + 5 * i) % NUMBERS]);
    }
    assert_int_equal(
        tu_node_evaluate(s->graph, s->node, 0, (const void *[]){in[0], in[1], in[2]}, (void *[]){out}),
        TU_OK);
    tu_dtype result = tu_edge_type(s->graph, (tu_edge){s->node, 0}).dtype;
    double a = attribute_number(s, 0), b = attribute_number(s, 1);
    for (int k = 0; k < NUMBERS; k++) {
        double operand[3] = {0};
        for (uint32_t i = 0; i < count; i++) operand[i] = load(types[i], in[i], k);
        double got = convert(result, f(operand[0], operand[1], operand[2], a, b)),
               expected = load(result, out, k);
        if (got != expected && !(isnan(got) && isnan(expected)))
            fail_msg("%s of %s %.17g, %.17g, %.17g is %.17g, expected %.17g",
                     tu_node_operation(s->graph, s->node), tu_dtype_name(types[count - 1]), operand[0],
                     operand[1], operand[2], got, expected);
    }
}

static void compiled_expressions_compute_what_the_reference_kernels_compute(void **state) {
    (void)state;
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_I32, TU_U8, TU_BOOL, TU_I8};
    folder temporary = new_folder("f.c");
    void *library = compile_expressions(&temporary);
    remove_folder(&temporary);
    int operations = 0;
    for (int i = 0; i < TU__OP_COUNT; i++) {
        const tu__op *op = tu__op_get((tu__opcode)i);
        char name[64];
        snprintf(name, sizeof name, "f_%s", op->name);
        void *symbol = dlsym(library, name);
        assert_int_equal(symbol != NULL, op->expression != NULL);
        if (!symbol) continue;
        scalar f;
        memcpy(&f, &symbol, sizeof f); /* C does not convert data pointers to functions */
        int compared = 0;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            subject s;
            if (!make_subject(op, types[t], &s)) continue;
            compare_with_reference(&s, f);
            tu_graph_free(s.graph);
            compared++;
        }
        assert_true(compared > 0);
        operations++;
    }
    assert_true(operations >= 45);
    dlclose(library);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_that_are_choices_have_names),
        cmocka_unit_test(a_missing_attribute_is_an_error_that_names_it),
        cmocka_unit_test(copying_an_attribute_writes_no_more_than_it_has),
        cmocka_unit_test(constants_have_data_and_fills_have_a_number),
        cmocka_unit_test(expressions_contain_only_the_names_that_node_h_lists),
        cmocka_unit_test(compiled_expressions_compute_what_the_reference_kernels_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
