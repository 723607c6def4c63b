/* Graph files that no writer wrote: intact, with a size and a digest that fit, and wrong inside. They are refused, saying
 * where, before any room is made for what they claim; or they are read to a sound graph. */
#include "graph_file.h"

#include "base/alloc.h"
#include "graph/op.h"

/* ---- Files that were changed ---- */

/* Every bit changed and signed again: read to a sound graph or refused, never anything else. */
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
    unsigned char *place = memmem(f.bytes, f.size, text, strlen(text));
    if (!place) fail_msg("'%s' is not in the file", text);
    return place;
}

/* The rich graph with one text in it replaced by another of the same length. */
static void assert_replaced(const char *old, const char *fresh, tu_status status, const char *part) {
    file f = write_and_free(rich_graph());
    assert_int_equal(strlen(old), strlen(fresh));
    unsigned char *place = find(f, old);
    for (size_t i = 0; fresh[i]; i++) place[i] = (unsigned char)fresh[i];
    sign(f);
    assert_refused(f, status, part);
    tu_bytes_free(f.bytes);
}

static void unknown_things_are_named(void **state) {
    (void)state;
    assert_replaced("matmul", "matmuX", TU_UNSUPPORTED, "operation 'matmuX' is unknown");
    assert_replaced("transpose_b", "transpose_x", TU_UNSUPPORTED, "'matmul' has no attribute 'transpose_x'");
    assert_replaced("file_test_twice", "file_test_thric", TU_NOT_FOUND, "custom operation 'file_test_thric'");
}

static void bad_names_are_refused(void **state) {
    (void)state;
    assert_replaced("a/b/w", "/ab/w", TU_CORRUPT, "no name");
    assert_replaced("a/b/w", "a//bw", TU_CORRUPT, "no name");
    assert_replaced("a/b/w", "a/bw/", TU_CORRUPT, "no name");
    assert_replaced("a/b/w", "a/b\nw", TU_CORRUPT, "no name");
    assert_replaced("a/b/neg", "a/bneg/", TU_CORRUPT, "no name");
    assert_replaced("first", "fi st", TU_CORRUPT, "no name");
    assert_replaced("constant_3", "constant_2", TU_CORRUPT, "'constant_2': the name is taken already");
    assert_replaced("cpu:0.1", "cpu 0.1", TU_CORRUPT, "the device of 'a/b/matmul' is no name of a device");
    assert_replaced("clipped", "indices", TU_CORRUPT, "'indices' is named twice");
}

/* ---- Files made by hand, piece by piece ---- */

typedef struct rule {
    unsigned char bytes[1024];
    size_t size;
} rule;

static void put(rule *m, const void *bytes, size_t size) {
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_u8(rule *m, uint8_t value) {
    put(m, &value, 1);
}
static void put_u32(rule *m, uint32_t value) {
    put(m, &value, 4);
}
static void put_i64(rule *m, int64_t value) {
    put(m, &value, 8);
}

static void put_string(rule *m, const char *string) {
    put_u32(m, (uint32_t)strlen(string));
    put(m, string, strlen(string) + 1);
}

/* Bytes that are never reached: the mistake comes before. */
static void put_filler(rule *m) {
    memset(m->bytes + m->size, 0x11, 100);
    m->size += 100;
}

static rule begin(uint32_t nodes) {
    rule m = {.size = TU__FILE_HEADER};
    memcpy(m.bytes, TU__FILE_MAGIC, 8);
    m.bytes[TU__FILE_AT_VERSION] = TU__FILE_VERSION;
    put_u32(&m, nodes);
    return m;
}

/* Operation, name, flags, no device; then attributes, inputs and outputs are up to the test. */
static void put_head(rule *m, const char *op, const char *name, uint32_t flags) {
    put_string(m, op);
    put_string(m, name);
    put_u32(m, flags);
    put_string(m, "");
}

/* A scalar input of f32: all its attributes are zero and left out. */
static void put_scalar_input(rule *m, const char *name) {
    put_head(m, "input", name, 0);
    put_u32(m, 0);
    put_u32(m, 0);
    put_u32(m, 1);
    put_u8(m, TU_F32);
    put_u8(m, 0);
}

static file finish(rule *m) {
    m->size += TU__FILE_TRAILER;
    file f = {m->bytes, m->size};
    sign(f);
    return f;
}

static void assert_made_refused(rule m, tu_status status, const char *part) {
    assert_refused(finish(&m), status, part);
}

static void a_missing_attribute_is_zero(void **state) {
    (void)state;
    rule m = begin(1);
    put_scalar_input(&m, "x");
    put_u32(&m, 0);
    file f = finish(&m);
    tu_graph *g;
    assert_int_equal(tu_graph_read(f.bytes, f.size, &g), TU_OK);
    tu_type type = tu_value_type(tu_find(g, "x"));
    assert_int_equal(type.dtype, TU_F32);
    assert_int_equal(type.shape.rank, 0);
    tu_graph_free(g);
}

static void counts_beyond_the_file_are_refused_before_room_is_made(void **state) {
    (void)state;
    int64_t live = tu__alloc_live();
    rule m = begin(UINT32_MAX);
    put_u32(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "byte 24: the number of nodes is 4294967295, more than");

    m = begin(1);
    put_u32(&m, UINT32_MAX);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "byte 28: an operation's name is 4294967295");

    m = begin(1);
    put_head(&m, "neg", "n", 0);
    put_u32(&m, 0);
    put_u32(&m, 0x10000000);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "a number of inputs is 268435456");

    m = begin(1);
    put_head(&m, "neg", "n", 0);
    put_u32(&m, 1000);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "a number of attributes is 1000");

    m = begin(0);
    put_u32(&m, 5000);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "the number of results is 5000");
    assert_int_equal(tu__alloc_live(), live);
}

static void bad_strings_are_refused(void **state) {
    (void)state;
    rule m = begin(1);
    put_head(&m, "input", "x", 0);
    m.bytes[TU__FILE_HEADER + 4 + 4 + 5] = 'y'; /* the zero after "input" */
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "does not end with a zero");

    m = begin(1);
    put_head(&m, "input", "x", 0);
    m.bytes[TU__FILE_HEADER + 4 + 4 + 2] = 0;
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "has a zero inside");
}

static void bad_attributes_are_refused(void **state) {
    (void)state;
    rule m = begin(1);
    put_head(&m, "input", "x", 0);
    put_u32(&m, 1);
    rule base = m;

    put_string(&m, "dtype");
    put_u8(&m, TU__ATTR_DTYPE);
    put_u32(&m, 1);
    put_u8(&m, 200);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "'dtype' is 200");

    m = base;
    put_string(&m, "dtype");
    put_u8(&m, TU__ATTR_I64);
    put_u32(&m, 1);
    put_i64(&m, 0);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT,
                        "'dtype' of operation 'input' has kind 0 with 1 elements: expected kind 3 with 1");

    m = base;
    put_string(&m, "shape");
    put_u8(&m, TU__ATTR_SHAPE);
    put_u32(&m, 1);
    put_u8(&m, 9);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "shape of rank 9");

    m = base;
    put_string(&m, "shape");
    put_u8(&m, TU__ATTR_SHAPE);
    put_u32(&m, 1);
    put_u8(&m, 2);
    put_i64(&m, INT64_MAX);
    put_i64(&m, INT64_MAX);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "expected dimensions of at least 1, 2^48 elements at most");

    m = begin(1);
    put_head(&m, "input", "x", 0);
    put_u32(&m, 2);
    for (int i = 0; i < 2; i++) {
        put_string(&m, "dtype");
        put_u8(&m, TU__ATTR_DTYPE);
        put_u32(&m, 1);
        put_u8(&m, TU_F64);
    }
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "'dtype' is given twice");
}

static void bad_edges_are_refused(void **state) {
    (void)state;
    rule base = begin(2);
    put_scalar_input(&base, "x");
    put_head(&base, "neg", "n", 0);
    put_u32(&base, 0);
    put_u32(&base, 1);

    rule m = base;
    put_u32(&m, 1);
    put_u32(&m, 0);
    put_filler(&m);
    assert_made_refused(m, TU_CORRUPT, "input 0 of 'n' is node 1: expected one before it");

    m = base;
    put_u32(&m, 0);
    put_u32(&m, 7);
    put_u32(&m, 1);
    put_u8(&m, TU_F32);
    put_u8(&m, 0);
    put_u32(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "(node 0, output 7) does not exist");

    m = base;
    put_u32(&m, 0);
    put_u32(&m, 0);
    put_u32(&m, 1);
    put_u8(&m, TU_F64); /* the rule says f32 */
    put_u8(&m, 0);
    put_u32(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "output 0 of 'n' is f64[]: the operation's rule says f32[]");
}

/* Of the last node, "tanh": a list of one, the node waited for; then the group; then the number of results. */
static file bound_graph(size_t *waits_at) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), a = tu_exp(x), b = tu_tanh(x);
    tu_colocate(b, a);
    tu_after(b, a);
    file f = write_and_free(g);
    *waits_at = f.size - TU__FILE_TRAILER - 4 - 4 - 8;
    return f;
}

static void bad_bonds_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t at; /* behind the beginning of the list */
        uint32_t value;
        const char *says;
    } wrong[] = {
        {4, 2, "'tanh' waits for node 2: expected nodes before it (2), in rising order"}, /* itself */
        {4, 7, "'tanh' waits for node 7: expected nodes before it (2), in rising order"},
        {4, 0, "it waits for input 'x', which is not computed"},
        {8, 0, "the group of 'tanh' is 0: expected 1 to"},
        {8, UINT32_MAX, "the group of 'tanh' is 4294967295: expected 1 to"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t at;
        file f = bound_graph(&at);
        memcpy(f.bytes + at + wrong[i].at, &wrong[i].value, sizeof wrong[i].value);
        sign(f);
        tu_graph *graph = NULL;
        assert_int_equal(tu_graph_read(f.bytes, f.size, &graph), TU_CORRUPT);
        assert_null(graph);
        assert_says(wrong[i].says);
        tu_bytes_free(f.bytes);
    }
}

static void bad_results_are_refused(void **state) {
    (void)state;
    rule m = begin(1);
    put_scalar_input(&m, "x");
    put_u32(&m, 1);
    put_string(&m, "y");
    put_u32(&m, 1);
    put_u32(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "result 'y' is output 0 of node 1, which does not exist");

    m = begin(0);
    put_u32(&m, 0);
    put_u8(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "1 bytes follow the last result");
}

static void bad_constants_are_refused(void **state) {
    (void)state;
    rule base = begin(1);
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

    rule m = base;
    put_i64(&m, 4);
    put_u32(&m, 0);
    put_u32(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "constant 'c' has 4 bytes of data: expected 1");

    m = base;
    put_i64(&m, 1);
    put_u8(&m, 9);
    put_u32(&m, 0);
    assert_made_refused(m, TU_CORRUPT, "element 0 of its data is 9");
}

static void a_variable_assigned_twice_is_refused(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SCALAR), v = tu_variable(g, "v", TU_F32, TU_SCALAR);
    tu_assign(w, v);
    tu_assign(v, w);
    file f = write_and_free(g);
    /* The second assignment's first input: its name, flags, device and two counts stand before it. */
    unsigned char *input = find(f, "assign_1") + 9 + 4 + 5 + 4 + 4;
    assert_int_equal(*input, v.node);
    *input = (unsigned char)w.node;
    sign(f);
    assert_refused(f, TU_CORRUPT, "assigns to 'w' a second time");
    tu_bytes_free(f.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signed_change_of_any_bit_is_harmless),
        cmocka_unit_test(unknown_things_are_named),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(a_missing_attribute_is_zero),
        cmocka_unit_test(counts_beyond_the_file_are_refused_before_room_is_made),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(bad_attributes_are_refused),
        cmocka_unit_test(bad_edges_are_refused),
        cmocka_unit_test(bad_bonds_are_refused),
        cmocka_unit_test(bad_results_are_refused),
        cmocka_unit_test(bad_constants_are_refused),
        cmocka_unit_test(a_variable_assigned_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, register_custom, NULL);
}
