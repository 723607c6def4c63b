/* Graph files: what is written is read back, to the same bytes; what is damaged or hostile is refused, saying where.
 * Every operation of the table goes through a file in tests/ops/test_case_files.c. */
#include "fake_disk.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "graph/file.h"
#include "graph/graph.h"

typedef struct file {
    unsigned char *bytes;
    size_t size;
} file;

static file write_graph(const tu_graph *graph) {
    void *bytes;
    size_t size;
    if (tu_graph_write(graph, &bytes, &size) != TU_OK) fail_msg("%s", tu_message());
    return (file){bytes, size};
}

static file write_and_free(tu_graph *graph) {
    file f = write_graph(graph);
    tu_graph_free(graph);
    return f;
}

/* Makes size and trailer fit again after a change by hand: intact, but not what the writer wrote. */
static void sign(file f) {
    uint64_t size = f.size;
    memcpy(f.bytes + TU__FILE_AT_SIZE, &size, sizeof size);
    tu__sha256_of(f.bytes, f.size - TU__FILE_TRAILER, f.bytes + f.size - TU__FILE_TRAILER);
}

static void assert_says(const char *part) {
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not say \"%s\"", tu_message(), part);
}

static void assert_refused(file f, tu_status status, const char *part) {
    tu_graph *graph = (tu_graph *)f.bytes;
    assert_int_equal(tu_graph_read(f.bytes, f.size, &graph), status);
    assert_null(graph);
    assert_says("graph file");
    assert_says(part);
}

static void assert_round_trip(const tu_graph *graph) {
    file first = write_graph(graph);
    tu_graph *copy;
    if (tu_graph_read(first.bytes, first.size, &copy) != TU_OK) fail_msg("%s", tu_message());
    file second = write_graph(copy);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.bytes, second.bytes, first.size);
    char digest[TU_DIGEST_TEXT], copy_digest[TU_DIGEST_TEXT];
    assert_int_equal(tu_graph_digest(graph, digest), TU_OK);
    assert_int_equal(tu_graph_digest(copy, copy_digest), TU_OK);
    assert_string_equal(digest, copy_digest);
    assert_int_equal(tu_training(copy), tu_training(graph));
    tu_graph_free(copy);
    tu_bytes_free(first.bytes);
    tu_bytes_free(second.bytes);
}

/* ---- Graphs ---- */

static tu_status twice_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = outputs[1] = call->inputs[0];
    return TU_OK;
}

static tu_status twice_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    memcpy(out[1], in[0], tu_type_bytes(call->inputs[0]));
    return TU_OK;
}

static const tu_custom_op twice = {.struct_size = sizeof twice,
                                   .name = "file_test_twice",
                                   .outputs = 2,
                                   .shape = twice_shape,
                                   .run = twice_run};

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

/* One of everything that a file holds. */
static tu_graph *rich_graph(void) {
    tu_graph *g = new_graph();
    unsigned char data[8 * 6];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(2, 3)), y = x;
    tu_scope(g, "a") tu_scope(g, "b") {
        tu_value w =
            tu_variable(g, "w", TU_F32, TU_SHAPE(3, 3), .init = {TU_INIT_NORMAL, .a = -0.0, .b = 0.02});
        tu_recompute(g) tu_with_device(g, "cpu:0.1") y = tu_matmul(x, w, .transpose_b = true);
        tu_assign(w, tu_neg(w));
    }
    for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++)
        if (dtype != TU_BOOL) tu_constant(g, (tu_dtype)dtype, TU_SHAPE(3, 1, 2), data);
    tu_constant(g, TU_BOOL, TU_SHAPE(3), (const unsigned char[]){1, 0, 1});
    tu_value k = tu_top_k(tu_add(y, tu_constant(g, TU_F32, TU_SCALAR, &(float){1.5f})), 2, -1);
    tu_value c = tu_name(tu_custom("file_test_twice", 1, &k), "both");
    tu_output(tu_output_of(c, 1), "second");
    tu_output(tu_slice(c, 1, 0, 1, 1), "first");
    tu_output(tu_clip(x, -1.0 / 0.0, 0.1), "clipped");
    tu_output(tu_sum(tu_output_of(k, 1), .axes = TU_AXES(0), .keep = true), "indices");
    tu_set_training(g, false);
    assert_int_equal(tu_graph_status(g), TU_OK);
    return g;
}

/* input x f32[2], neg: the smallest that has an edge, an attribute and a result. */
static tu_graph *small_graph(void) {
    tu_graph *g = new_graph();
    tu_output(tu_neg(tu_input(g, "x", TU_F32, TU_SHAPE(2))), "y");
    return g;
}

/* ---- Round trips ---- */

static void a_graph_is_read_back_to_the_same_bytes(void **state) {
    (void)state;
    tu_graph *g = rich_graph();
    assert_round_trip(g);
    tu_graph_free(g);
}

static void an_empty_graph_is_read_back(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    assert_round_trip(g);
    file f = write_and_free(g);
    assert_int_equal(f.size, TU__FILE_SMALLEST);
    tu_bytes_free(f.bytes);
}

static void everything_is_kept(void **state) {
    (void)state;
    tu_graph *g = rich_graph(), *copy;
    file f = write_graph(g);
    assert_int_equal(tu_graph_read(f.bytes, f.size, &copy), TU_OK);
    assert_int_equal(copy->node_count, g->node_count);
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tu__node *a = g->nodes[i], *b = copy->nodes[i];
        assert_string_equal(a->name, b->name);
        assert_ptr_equal(a->op, b->op);
        assert_int_equal(a->flags, b->flags);
        assert_ptr_equal(a->custom, b->custom);
        assert_string_equal(a->device ? a->device : "", b->device ? b->device : "");
        assert_memory_equal(a->attrs, b->attrs, a->op->attr_bytes);
        if (a->data) assert_memory_equal(a->data, b->data, tu_type_bytes(a->outputs[0]));
    }
    assert_true(tu_ok(tu_find_output(copy, "second")));
    assert_int_equal(tu_find_output(copy, "second").output, 1);
    tu_bytes_free(f.bytes);
    tu_graph_free(copy);
    tu_graph_free(g);
}

static void a_graph_that_was_read_can_grow(void **state) {
    (void)state;
    tu_graph *g;
    file f = write_and_free(rich_graph());
    assert_int_equal(tu_graph_read(f.bytes, f.size, &g), TU_OK);
    tu_value more = tu_exp(tu_find(g, "a/b/w"));
    assert_string_equal(tu_value_name(more), "exp");
    assert_round_trip(g);
    tu_bytes_free(f.bytes);
    tu_graph_free(g);
}

static void names_of_many_scopes_are_read_back(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SCALAR);
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    tu_scope(g, name) tu_scope(g, name) tu_scope(g, name) tu_neg(x);
    assert_round_trip(g);
    tu_graph_free(g);
}

static void a_mistaken_graph_is_not_written(void **state) {
    (void)state;
    tu_graph *g = small_graph();
    tu_find(g, "nothing");
    void *bytes = g;
    size_t size = 1;
    assert_int_equal(tu_graph_write(g, &bytes, &size), TU_NOT_FOUND);
    assert_null(bytes);
    assert_int_equal(size, 0);
    assert_says("'nothing'");
    tu_graph_free(g);
}

/* ---- Damage ---- */

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    file f = write_and_free(rich_graph());
    for (size_t size = 0; size < f.size; size++) {
        unsigned char *cut =
            malloc(size ? size : 1); /* of its own size: the sanitizer sees a read beyond it */
        memcpy(cut, f.bytes, size);
        assert_refused((file){cut, size}, TU_CORRUPT,
                       size < TU__FILE_HEADER ? "ends within its header" : "cut short");
        free(cut);
    }
    tu_bytes_free(f.bytes);
}

static void a_changed_bit_is_found(void **state) {
    (void)state;
    file f = write_and_free(small_graph());
    for (size_t bit = 0; bit < 8 * f.size; bit++) {
        f.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        tu_graph *g;
        tu_status status = tu_graph_read(f.bytes, f.size, &g);
        size_t at = bit / 8;
        bool version =
            at >= TU__FILE_AT_VERSION && at < TU__FILE_AT_SIZE; /* may be a newer one: named as that */
        if (status != TU_CORRUPT && !(version && status == TU_UNSUPPORTED))
            fail_msg("bit %zu: %s", bit, tu_message());
        assert_null(g);
        f.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    tu_bytes_free(f.bytes);
}

static void bytes_after_the_end_are_found(void **state) {
    (void)state;
    file f = write_and_free(small_graph());
    unsigned char *longer = calloc(1, f.size + 1);
    memcpy(longer, f.bytes, f.size);
    assert_refused((file){longer, f.size + 1}, TU_CORRUPT, "1 bytes follow the end of the file");
    free(longer);
    tu_bytes_free(f.bytes);
}

static void another_kind_of_file_is_told(void **state) {
    (void)state;
    char text[100] = "# This is a text";
    assert_refused((file){(unsigned char *)text, sizeof text}, TU_CORRUPT, "no graph file of Tutti");
}

static void a_newer_version_is_refused_by_name(void **state) {
    (void)state;
    file f = write_and_free(small_graph());
    f.bytes[TU__FILE_AT_VERSION] = 9;
    assert_refused(f, TU_UNSUPPORTED, "the file has version 9, but Tutti");
    f.bytes[TU__FILE_AT_VERSION] = 0;
    assert_refused(f, TU_CORRUPT, "version 0");
    f.bytes[TU__FILE_AT_VERSION] = 1;
    f.bytes[TU__FILE_AT_FLAGS] = 2;
    assert_refused(f, TU_UNSUPPORTED, "unknown flags 0x2");
    tu_bytes_free(f.bytes);
}

/* ---- Hostility: intact files that no writer wrote ---- */

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

/* A file made by hand, piece by piece. */
typedef struct maker {
    unsigned char bytes[1024];
    size_t size;
} maker;

static void put(maker *m, const void *bytes, size_t size) {
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_u8(maker *m, uint8_t value) {
    put(m, &value, 1);
}
static void put_u32(maker *m, uint32_t value) {
    put(m, &value, 4);
}
static void put_i64(maker *m, int64_t value) {
    put(m, &value, 8);
}

static void put_string(maker *m, const char *string) {
    put_u32(m, (uint32_t)strlen(string));
    put(m, string, strlen(string) + 1);
}

/* Bytes that are never reached: the mistake comes before. */
static void put_filler(maker *m) {
    memset(m->bytes + m->size, 0x11, 100);
    m->size += 100;
}

static maker begin(uint32_t nodes) {
    maker m = {.size = TU__FILE_HEADER};
    memcpy(m.bytes, TU__FILE_MAGIC, 8);
    m.bytes[TU__FILE_AT_VERSION] = TU__FILE_VERSION;
    put_u32(&m, nodes);
    return m;
}

/* Operation, name, flags, no device; then attributes, inputs and outputs are up to the test. */
static void put_head(maker *m, const char *op, const char *name, uint32_t flags) {
    put_string(m, op);
    put_string(m, name);
    put_u32(m, flags);
    put_string(m, "");
}

/* A scalar input of f32: all its attributes are zero and left out. */
static void put_scalar_input(maker *m, const char *name) {
    put_head(m, "input", name, 0);
    put_u32(m, 0);
    put_u32(m, 0);
    put_u32(m, 1);
    put_u8(m, TU_F32);
    put_u8(m, 0);
}

static file finish(maker *m) {
    m->size += TU__FILE_TRAILER;
    file f = {m->bytes, m->size};
    sign(f);
    return f;
}

static void assert_made_refused(maker m, tu_status status, const char *part) {
    assert_refused(finish(&m), status, part);
}

static void a_missing_attribute_is_zero(void **state) {
    (void)state;
    maker m = begin(1);
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
    maker m = begin(UINT32_MAX);
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
    maker m = begin(1);
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
    maker m = begin(1);
    put_head(&m, "input", "x", 0);
    put_u32(&m, 1);
    maker base = m;

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
    maker base = begin(2);
    put_scalar_input(&base, "x");
    put_head(&base, "neg", "n", 0);
    put_u32(&base, 0);
    put_u32(&base, 1);

    maker m = base;
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

static void bad_results_are_refused(void **state) {
    (void)state;
    maker m = begin(1);
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
    maker base = begin(1);
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

    maker m = base;
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

/* ---- On the disk ---- */

typedef struct folder {
    char path[64], file[80];
} folder;

static folder new_folder(void) {
    folder f;
    strcpy(f.path, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    snprintf(f.file, sizeof f.file, "%s/net.tug", f.path);
    return f;
}

static int count_files(const folder *f) {
    int count = 0;
    DIR *dir = opendir(f->path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return count;
}

static void remove_folder(const folder *f) {
    unlink(f->file);
    assert_int_equal(rmdir(f->path), 0);
}

static void a_graph_is_saved_and_loaded(void **state) {
    (void)state;
    folder f = new_folder();
    tu_graph *g = rich_graph(), *copy;
    assert_int_equal(tu_graph_save(g, f.file), TU_OK);
    assert_int_equal(tu_graph_load(f.file, &copy), TU_OK);
    file a = write_graph(g), b = write_graph(copy);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.bytes, b.bytes, a.size);
    assert_int_equal(count_files(&f), 1);
    tu_bytes_free(a.bytes);
    tu_bytes_free(b.bytes);
    tu_graph_free(copy);
    tu_graph_free(g);
    remove_folder(&f);
}

/* Whatever step of a save fails, the old graph is there, or the new one whole, and nothing beside it. */
static void a_save_that_fails_leaves_the_old_file(void **state) {
    (void)state;
    folder f = new_folder();
    tu_graph *old = small_graph(), *fresh = rich_graph();
    unsigned failures = 0;
    for (unsigned nth = 1;; nth++, failures++) {
        assert_int_equal(tu_graph_save(old, f.file), TU_OK);
        fake_disk_fail_at(nth, ENOSPC);
        tu_status status = tu_graph_save(fresh, f.file);
        fake_disk_remove();
        assert_int_equal(count_files(&f), 1);
        tu_graph *found;
        assert_int_equal(tu_graph_load(f.file, &found), TU_OK);
        bool is_old = found->node_count == old->node_count;
        assert_true(is_old || found->node_count == fresh->node_count);
        tu_graph_free(found);
        if (status == TU_OK) break;
        assert_int_equal(status, TU_IO);
        assert_int_equal(tu_graph_save(old, f.file), TU_OK);
    }
    assert_true(failures >= 6); /* open, write, flush, close, rename, and the folder */
    tu_graph_free(old);
    tu_graph_free(fresh);
    remove_folder(&f);
}

static void a_save_keeps_links_and_permissions(void **state) {
    (void)state;
    folder f = new_folder();
    char link[96];
    snprintf(link, sizeof link, "%s/link", f.path);
    tu_graph *g = small_graph();
    assert_int_equal(tu_graph_save(g, f.file), TU_OK);
    assert_int_equal(chmod(f.file, 0640), 0);
    assert_int_equal(symlink("net.tug", link), 0);
    assert_int_equal(tu_graph_save(g, link), TU_OK);
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(f.file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    unlink(link);
    tu_graph_free(g);
    remove_folder(&f);
}

static void a_device_is_written_in_place(void **state) {
    (void)state;
    tu_graph *g = small_graph();
    assert_int_equal(tu_graph_save(g, "/dev/null"), TU_OK);
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(tu_graph_save(g, "/dev/full"), TU_IO);
    assert_says("'/dev/full': No space left on device");
    tu_graph_free(g);
}

static void places_that_cannot_be_are_named(void **state) {
    (void)state;
    tu_graph *g = small_graph(), *none;
    assert_int_equal(tu_graph_save(g, "/no-such-folder/net.tug"), TU_IO);
    assert_says("cannot save '/no-such-folder/net.tug': No such file or directory");
    assert_int_equal(tu_graph_save(g, "/tmp"), TU_IO);
    assert_says("cannot save '/tmp': Is a directory");
    assert_int_equal(tu_graph_save(g, ""), TU_INVALID);
    assert_int_equal(tu_graph_load("/no-such-folder/net.tug", &none), TU_NOT_FOUND);
    assert_says("cannot read '/no-such-folder/net.tug'");
    assert_int_equal(tu_graph_load("/tmp", &none), TU_IO);
    assert_says("cannot read '/tmp'");
    assert_int_equal(tu_graph_load("/dev/null", &none), TU_CORRUPT);
    assert_says("cannot read '/dev/null': graph file, byte 0: the file ends within its header");
    assert_int_equal(tu_graph_load("/dev/zero", &none), TU_CORRUPT);
    assert_says("no graph file");
    assert_null(none);
    tu_graph_free(g);
}

static int register_custom(void **state) {
    (void)state;
    return tu_custom_register(&twice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_read_back_to_the_same_bytes),
        cmocka_unit_test(an_empty_graph_is_read_back),
        cmocka_unit_test(everything_is_kept),
        cmocka_unit_test(a_graph_that_was_read_can_grow),
        cmocka_unit_test(names_of_many_scopes_are_read_back),
        cmocka_unit_test(a_mistaken_graph_is_not_written),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_changed_bit_is_found),
        cmocka_unit_test(bytes_after_the_end_are_found),
        cmocka_unit_test(another_kind_of_file_is_told),
        cmocka_unit_test(a_newer_version_is_refused_by_name),
        cmocka_unit_test(a_signed_change_of_any_bit_is_harmless),
        cmocka_unit_test(unknown_things_are_named),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(a_missing_attribute_is_zero),
        cmocka_unit_test(counts_beyond_the_file_are_refused_before_room_is_made),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(bad_attributes_are_refused),
        cmocka_unit_test(bad_edges_are_refused),
        cmocka_unit_test(bad_results_are_refused),
        cmocka_unit_test(bad_constants_are_refused),
        cmocka_unit_test(a_variable_assigned_twice_is_refused),
        cmocka_unit_test(a_graph_is_saved_and_loaded),
        cmocka_unit_test(a_save_that_fails_leaves_the_old_file),
        cmocka_unit_test(a_save_keeps_links_and_permissions),
        cmocka_unit_test(a_device_is_written_in_place),
        cmocka_unit_test(places_that_cannot_be_are_named),
    };
    return cmocka_run_group_tests(tests, register_custom, NULL);
}
