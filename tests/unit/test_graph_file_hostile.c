/* Malicious graph files: size and digest are correct, but the contents are not. Reading them fails with the byte
 * offset, before memory is allocated for the claimed sizes, or gives a valid graph. */
#include "graph_file.h"

#include "base/alloc.h"
#include "graph/op.h"

/* ---- Modified files ---- */

/* Flips every bit and corrects the digest: reading fails or gives a valid graph. */
static void a_signed_change_of_any_bit_is_harmless(void **state) {
    (void)state;
    file f = write_and_free(rich_graph());
    size_t accepted = 0;
    for (size_t bit = 8 * TU__FILE_HEADER; bit < 8 * (f.size - TU__FILE_TRAILER); bit++) {
        f.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        sign(f);
        tu_graph *g;
        if (tu_graph_read(f.bytes, f.size, &g) == TU_OK) {
            assert_round_trip(g);
            accepted++;
        }
        tu_graph_free(g);
        f.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(accepted > 0); /* data and names can change */
    tu_bytes_free(f.bytes);
}

static unsigned char *find(file f, const char *text) {
    unsigned char *match = memmem(f.bytes, f.size, text, strlen(text));
    if (!match) fail_msg("'%s' is not in the file", text);
    return match;
}

/* The rich graph with one text in it replaced by another of the same length. */
static void assert_replaced(const char *old, const char *replacement, tu_status status, const char *part) {
    file f = write_and_free(rich_graph());
    assert_int_equal(strlen(old), strlen(replacement));
    unsigned char *match = find(f, old);
    for (size_t i = 0; replacement[i]; i++) match[i] = (unsigned char)replacement[i];
    sign(f);
    assert_read_error(f, status, part);
    tu_bytes_free(f.bytes);
}

static void the_error_names_unknown_operations_and_attributes(void **state) {
    (void)state;
    assert_replaced("matmul", "matmuX", TU_UNSUPPORTED, "operation 'matmuX' does not exist");
    assert_replaced("transpose_b", "transpose_x", TU_UNSUPPORTED, "'matmul' has no attribute 'transpose_x'");
    assert_replaced("file_test_twice", "file_test_thric", TU_NOT_FOUND, "custom operation 'file_test_thric'");
}

static void invalid_names_are_rejected(void **state) {
    (void)state;
    assert_replaced("a/b/w", "/ab/w", TU_CORRUPT, "is not valid: expected visible characters");
    assert_replaced("a/b/w", "a//bw", TU_CORRUPT, "is not valid: expected visible characters");
    assert_replaced("a/b/w", "a/bw/", TU_CORRUPT, "is not valid: expected visible characters");
    assert_replaced("a/b/w", "a/b\nw", TU_CORRUPT, "is not valid: expected visible characters");
    assert_replaced("a/b/neg", "a/bneg/", TU_CORRUPT, "is not valid: expected visible characters");
    assert_replaced("first", "fi st", TU_CORRUPT, "is not valid: expected visible characters");
    assert_replaced("constant_3", "constant_2", TU_CORRUPT, "'constant_2': the name is already used");
    assert_replaced("cpu:0.1", "cpu 0.1", TU_CORRUPT, "the device name of 'a/b/matmul' is not valid");
    assert_replaced("clipped", "indices", TU_CORRUPT, "already has a result 'indices'");
}

/* ---- Files built field by field ---- */

typedef struct file_builder {
    unsigned char bytes[1024];
    size_t size;
} file_builder;

static void put(file_builder *m, const void *bytes, size_t size) {
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_u8(file_builder *m, uint8_t value) {
    put(m, &value, 1);
}
static void put_u32(file_builder *m, uint32_t value) {
    put(m, &value, 4);
}
static void put_i64(file_builder *m, int64_t value) {
    put(m, &value, 8);
}

static void put_string(file_builder *m, const char *string) {
    put_u32(m, (uint32_t)strlen(string));
    put(m, string, strlen(string) + 1);
}

/* Appends bytes that are never read because the error comes before them. */
static void put_filler(file_builder *m) {
    memset(m->bytes + m->size, 0x11, 100);
    m->size += 100;
}

static file_builder new_file(uint32_t nodes) {
    file_builder m = {.size = TU__FILE_HEADER};
    memcpy(m.bytes, TU__FILE_MAGIC, 8);
    m.bytes[TU__FILE_AT_VERSION] = TU__FILE_VERSION;
    put_u32(&m, nodes);
    return m;
}

/* Appends operation, name, flags and an empty device. Attributes, inputs and outputs must follow. */
static void put_head(file_builder *m, const char *op, const char *name, uint32_t flags) {
    put_string(m, op);
    put_string(m, name);
    put_u32(m, flags);
    put_string(m, "");
}

/* Appends a scalar f32 input, all of whose attributes are zero and therefore omitted. */
static void put_scalar_input(file_builder *m, const char *name) {
    put_head(m, "input", name, 0);
    put_u32(m, 0);
    put_u32(m, 0);
    put_u32(m, 1);
    put_u8(m, TU_F32);
    put_u8(m, 0);
}

static file finish_file(file_builder *m) {
    m->size += TU__FILE_TRAILER;
    file f = {m->bytes, m->size};
    sign(f);
    return f;
}

static void assert_built_file_fails(file_builder m, tu_status status, const char *part) {
    assert_read_error(finish_file(&m), status, part);
}

static void a_missing_attribute_is_zero(void **state) {
    (void)state;
    file_builder m = new_file(1);
    put_scalar_input(&m, "x");
    put_u32(&m, 0);
    file f = finish_file(&m);
    tu_graph *g;
    assert_int_equal(tu_graph_read(f.bytes, f.size, &g), TU_OK);
    tu_type type = tu_value_type(tu_find(g, "x"));
    assert_int_equal(type.dtype, TU_F32);
    assert_int_equal(type.shape.rank, 0);
    tu_graph_free(g);
}

static void counts_beyond_the_file_are_rejected_before_allocating(void **state) {
    (void)state;
    int64_t live = tu__alloc_live();
    file_builder m = new_file(UINT32_MAX);
    put_u32(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "byte 24: the number of nodes is 4294967295, too many");

    m = new_file(1);
    put_u32(&m, UINT32_MAX);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "byte 28: an operation's name is 4294967295");

    m = new_file(1);
    put_head(&m, "neg", "n", 0);
    put_u32(&m, 0);
    put_u32(&m, 0x10000000);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "a number of inputs is 268435456");

    m = new_file(1);
    put_head(&m, "neg", "n", 0);
    put_u32(&m, 1000);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "a number of attributes is 1000");

    m = new_file(0);
    put_u32(&m, 5000);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "the number of results is 5000");
    assert_int_equal(tu__alloc_live(), live);
}

static void invalid_strings_are_rejected(void **state) {
    (void)state;
    file_builder m = new_file(1);
    put_head(&m, "input", "x", 0);
    m.bytes[TU__FILE_HEADER + 4 + 4 + 5] = 'y'; /* the NUL after "input" */
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "does not end with a NUL byte");

    m = new_file(1);
    put_head(&m, "input", "x", 0);
    m.bytes[TU__FILE_HEADER + 4 + 4 + 2] = 0;
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "contains a NUL byte");
}

static void invalid_attributes_are_rejected(void **state) {
    (void)state;
    file_builder m = new_file(1);
    put_head(&m, "input", "x", 0);
    put_u32(&m, 1);
    file_builder base = m;

    put_string(&m, "dtype");
    put_u8(&m, TU__ATTR_DTYPE);
    put_u32(&m, 1);
    put_u8(&m, 200);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "'dtype' is 200");

    m = base;
    put_string(&m, "dtype");
    put_u8(&m, TU__ATTR_I64);
    put_u32(&m, 1);
    put_i64(&m, 0);
    put_filler(&m);
    assert_built_file_fails(
        m, TU_CORRUPT, "'dtype' of operation 'input' has kind 0 with 1 elements: expected kind 3 with 1");

    m = base;
    put_string(&m, "shape");
    put_u8(&m, TU__ATTR_SHAPE);
    put_u32(&m, 1);
    put_u8(&m, 9);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "a shape of rank 9");

    m = base;
    put_string(&m, "shape");
    put_u8(&m, TU__ATTR_SHAPE);
    put_u32(&m, 1);
    put_u8(&m, 2);
    put_i64(&m, INT64_MAX);
    put_i64(&m, INT64_MAX);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT,
                            "expected dimensions of at least 1, at most 2^48 elements in total");

    m = new_file(1);
    put_head(&m, "input", "x", 0);
    put_u32(&m, 2);
    for (int i = 0; i < 2; i++) {
        put_string(&m, "dtype");
        put_u8(&m, TU__ATTR_DTYPE);
        put_u32(&m, 1);
        put_u8(&m, TU_F64);
    }
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "'dtype' is given twice");
}

static void invalid_edges_are_rejected(void **state) {
    (void)state;
    file_builder base = new_file(2);
    put_scalar_input(&base, "x");
    put_head(&base, "neg", "n", 0);
    put_u32(&base, 0);
    put_u32(&base, 1);

    file_builder m = base;
    put_u32(&m, 1);
    put_u32(&m, 0);
    put_filler(&m);
    assert_built_file_fails(m, TU_CORRUPT, "input 0 of 'n' is node 1: expected an earlier node");

    m = base;
    put_u32(&m, 0);
    put_u32(&m, 7);
    put_u32(&m, 1);
    put_u8(&m, TU_F32);
    put_u8(&m, 0);
    put_u32(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "(node 0, output 7) does not exist");

    m = base;
    put_u32(&m, 0);
    put_u32(&m, 0);
    put_u32(&m, 1);
    put_u8(&m, TU_F64); /* the shape rule returns f32 */
    put_u8(&m, 0);
    put_u32(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "output 0 of 'n' is f64[]: expected the inferred type f32[]");
}

/* Writes a graph whose last node, "tanh", has a list of one control dependency and a group. Sets `*dependencies_at`
 * to the offset of the list. */
static file constrained_graph(size_t *dependencies_at) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), a = tu_exp(x), b = tu_tanh(x);
    tu_colocate(b, a);
    tu_after(b, a);
    file f = write_and_free(g);
    *dependencies_at = f.size - TU__FILE_TRAILER - 4 - 4 - 8;
    return f;
}

static void invalid_control_dependencies_and_groups_are_rejected(void **state) {
    (void)state;
    static const struct {
        size_t offset; /* from the beginning of the list */
        uint32_t value;
        const char *says;
    } wrong[] = {
        {4, 2,
         "'tanh' has a control dependency on node 2: expected nodes below 2 in ascending order"}, /* itself */
        {4, 7, "'tanh' has a control dependency on node 7: expected nodes below 2 in ascending order"},
        {4, 0, "control dependency on input 'x', which is not computed"},
        {8, 0, "the group of 'tanh' is 0: expected 1 to"},
        {8, UINT32_MAX, "the group of 'tanh' is 4294967295: expected 1 to"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t list_offset;
        file f = constrained_graph(&list_offset);
        memcpy(f.bytes + list_offset + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        sign(f);
        tu_graph *graph = NULL;
        assert_int_equal(tu_graph_read(f.bytes, f.size, &graph), TU_CORRUPT);
        assert_null(graph);
        assert_says(wrong[i].says);
        tu_bytes_free(f.bytes);
    }
}

static void invalid_results_are_rejected(void **state) {
    (void)state;
    file_builder m = new_file(1);
    put_scalar_input(&m, "x");
    put_u32(&m, 1);
    put_string(&m, "y");
    put_u32(&m, 1);
    put_u32(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "result 'y' is output 0 of node 1, which does not exist");

    m = new_file(0);
    put_u32(&m, 0);
    put_u8(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "1 bytes follow the last result");
}

static void invalid_constants_are_rejected(void **state) {
    (void)state;
    file_builder base = new_file(1);
    put_head(&base, "constant", "c", 0);
    put_u32(&base, 1);
    put_string(&base, "dtype");
    put_u8(&base, TU__ATTR_DTYPE);
    put_u32(&base, 1);
    put_u8(&base, TU_BOOL);
    put_u32(&base, 0);
    put_u32(&base, 1);
    put_u8(&base, TU_BOOL);
    put_u8(&base, 0);

    file_builder m = base;
    put_i64(&m, 4);
    put_u32(&m, 0);
    put_u32(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "constant 'c' has 4 bytes of data: expected 1");

    m = base;
    put_i64(&m, 1);
    put_u8(&m, 9);
    put_u32(&m, 0);
    assert_built_file_fails(m, TU_CORRUPT, "element 0 of its data is 9");
}

static void a_variable_assigned_twice_is_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SCALAR), v = tu_variable(g, "v", TU_F32, TU_SCALAR);
    tu_assign(w, v);
    tu_assign(v, w);
    file f = write_and_free(g);
    /* The first input of the second assignment follows its name, flags, device and two counts. */
    unsigned char *input = find(f, "assign_1") + 9 + 4 + 5 + 4 + 4;
    assert_int_equal(*input, v.node);
    *input = (unsigned char)w.node;
    sign(f);
    assert_read_error(f, TU_CORRUPT, "variable 'w' is assigned twice");
    tu_bytes_free(f.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signed_change_of_any_bit_is_harmless),
        cmocka_unit_test(the_error_names_unknown_operations_and_attributes),
        cmocka_unit_test(invalid_names_are_rejected),
        cmocka_unit_test(a_missing_attribute_is_zero),
        cmocka_unit_test(counts_beyond_the_file_are_rejected_before_allocating),
        cmocka_unit_test(invalid_strings_are_rejected),
        cmocka_unit_test(invalid_attributes_are_rejected),
        cmocka_unit_test(invalid_edges_are_rejected),
        cmocka_unit_test(invalid_control_dependencies_and_groups_are_rejected),
        cmocka_unit_test(invalid_results_are_rejected),
        cmocka_unit_test(invalid_constants_are_rejected),
        cmocka_unit_test(a_variable_assigned_twice_is_rejected),
    };
    return cmocka_run_group_tests(tests, register_custom, NULL);
}
