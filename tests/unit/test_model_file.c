/* Model files: what is written is read back, damage of any bit is noticed, and hostile files are refused. */
#include "small_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/sha256.h"
#include "infer/model.h"
#include "infer/model_parts.h"
#include "temp_folder.h"

/* ---- Files in memory ---- */

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static bytes read_file(const char *path) {
    bytes b = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    b.size = (size_t)ftell(file);
    rewind(file);
    b.data = malloc(b.size + 1);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, file), b.size);
    fclose(file);
    return b;
}

/* Returns the bytes of the small model's file. */
static bytes small_file(void) {
    small_model m;
    folder f = new_folder("a.model");
    small_model_new(&m);
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_OK);
    small_model_free(&m);
    bytes b = read_file(f.file);
    remove_folder(&f);
    return b;
}

static tu_status parse(const bytes *b) {
    tu__model_file file;
    tu_status status = tu__model_file_parse("a.model", b->data, b->size, &file);
    tu__model_file_close(&file);
    return status;
}

/* ---- Reading back ---- */

static void a_file_is_read_back(void **state) {
    (void)state;
    small_model m;
    folder f = new_folder("a.model");
    tu__model_file file;
    small_model_new(&m);
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_OK);
    assert_int_equal(tu__model_file_open(f.file, &file), TU_OK);
    char digest[TU_DIGEST_TEXT], expected[TU_DIGEST_TEXT];
    assert_int_equal(tu_graph_digest(m.graph, expected), TU_OK);
    assert_int_equal(tu_graph_digest(file.graph, digest), TU_OK);
    assert_string_equal(digest, expected);
    assert_int_equal(file.variable_count, 2);
    assert_string_equal(file.variables[0].name, "out/weights");
    assert_memory_equal(file.variables[0].data, m.weights, sizeof m.weights);
    assert_ptr_equal(tu__model_file_variable(&file, "out/bias"), &file.variables[1]);
    assert_memory_equal(file.variables[1].data, m.bias, sizeof m.bias);
    assert_null(tu__model_file_variable(&file, "images"));
    assert_int_equal(file.golden_count, SMALL_GOLDEN);
    assert_string_equal(file.golden_inputs[0].name, "images");
    assert_memory_equal(file.golden_inputs[0].data, m.images, sizeof m.images);
    assert_memory_equal(file.golden_outputs[0].data, m.probability, sizeof m.probability);
    assert_memory_equal(file.golden_outputs[1].data, m.logits, sizeof m.logits);
    assert_int_equal(tu__model_file_check_digests(&file), TU_OK);
    tu__model_file_close(&file);
    tu__model_file_close(&file);
    small_model_free(&m);
    remove_folder(&f);
}

static void texts_are_read_back(void **state) {
    (void)state;
    tu__model_file file;
    bytes b = small_file();
    assert_int_equal(tu__model_file_parse("a.model", b.data, b.size, &file), TU_OK);
    assert_int_equal(file.label_count, SMALL_LABELS);
    assert_string_equal(file.labels[1], "below");
    assert_int_equal(file.metadata_count, 2);
    assert_string_equal(tu__model_file_text(&file, "licence"), "none");
    assert_null(tu__model_file_text(&file, TU__MODEL_LABELS));
    const tu__model_bound *bound = tu__model_file_bound(&file, "logits", "f32");
    assert_non_null(bound);
    assert_true(bound->relative && bound->limit == 1e-5);
    assert_null(tu__model_file_bound(&file, "logits", "bf16"));
    assert_int_equal(file.bytes, b.size);
    tu__model_file_close(&file);
    free(b.data);
}

static void the_graph_may_be_kept_after_the_file_is_closed(void **state) {
    (void)state;
    tu__model_file file;
    bytes b = small_file();
    assert_int_equal(tu__model_file_parse("a.model", b.data, b.size, &file), TU_OK);
    tu_graph *graph = file.graph;
    file.graph = NULL;
    assert_int_equal(tu_graph_verify(graph), TU_OK);
    tu_graph_free(graph);
    assert_string_equal(file.variables[0].name, "out/weights");
    tu__model_file_close(&file);
    free(b.data);
}

/* Other readers of safetensors files need no more than this. */
static void a_file_is_a_safetensors_file_whose_last_tensor_is_its_digest(void **state) {
    (void)state;
    tu__safetensors file;
    bytes b = small_file();
    assert_int_equal(tu__safetensors_parse("a.model", b.data, b.size, &file), TU_OK);
    const tu__named_tensor *last = &file.tensors[file.tensor_count - 1];
    assert_string_equal(last->name, TU__MODEL_SEAL);
    assert_ptr_equal((const unsigned char *)last->data + TU__SHA256_BYTES, b.data + b.size);
    unsigned char digest[TU__SHA256_BYTES];
    tu__sha256_of(b.data, b.size - TU__SHA256_BYTES, digest);
    assert_memory_equal(last->data, digest, sizeof digest);
    tu__safetensors_close(&file);
    free(b.data);
}

/* ---- Damage ---- */

static void a_file_with_any_flipped_bit_is_refused(void **state) {
    (void)state;
    bytes b = small_file();
    int64_t live = tu__alloc_live();
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (parse(&b) == TU_OK)
            fail_msg("the file is accepted if bit %zu of byte %zu is flipped", bit % 8, bit / 8);
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_int_equal(tu__alloc_live(), live);
    assert_int_equal(parse(&b), TU_OK);
    free(b.data);
}

static void a_truncated_file_is_refused_at_every_length(void **state) {
    (void)state;
    bytes b = small_file();
    for (size_t size = 0; size < b.size; size++) {
        unsigned char *copy =
            malloc(size + (size == 0)); /* so that the address sanitizer finds reads past the end */
        assert_non_null(copy);
        memcpy(copy, b.data, size);
        if (parse(&(bytes){copy, size}) != TU_CORRUPT)
            fail_msg("%zu of %zu bytes are accepted", size, b.size);
        free(copy);
    }
    free(b.data);
}

/* The file is intact when it is opened, and shorter when the weights are read. */
static void a_file_that_is_truncated_while_it_is_loaded_is_refused(void **state) {
    (void)state;
    small_model m;
    folder f = new_folder("a.model");
    tu__model_file file;
    tu_model *model = NULL;
    small_model_new(&m);
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_OK);
    small_model_free(&m);
    int64_t live = tu__alloc_live();
    assert_int_equal(tu__model_file_open(f.file, &file), TU_OK);
    assert_int_equal(truncate(f.file, 100), 0);
    const tu_model_options options = {.struct_size = sizeof options, .devices = "cpu:0", .max_batch = 1};
    assert_int_equal(tu__model_from_file(&file, &options, &model), TU_IO);
    assert_null(model);
    assert_non_null(strstr(tu_message(), "was truncated while it was in use"));
    tu__model_file_close(&file);
    assert_int_equal(tu__alloc_live(), live);
    remove_folder(&f);
}

/* Returns the offset of the tensor's data in the file. */
static size_t offset_of(const bytes *b, const char *name) {
    tu__safetensors file;
    assert_int_equal(tu__safetensors_parse("a.model", b->data, b->size, &file), TU_OK);
    const tu__named_tensor *tensor = tu__safetensors_find(&file, name);
    assert_non_null(tensor);
    size_t offset = (size_t)((const unsigned char *)tensor->data - b->data);
    tu__safetensors_close(&file);
    return offset;
}

static void a_damaged_tensor_is_named(void **state) {
    (void)state;
    static const char *const names[] = {"out/weights", "out/bias", TU__MODEL_GRAPH,
                                        TU__MODEL_GOLDEN_INPUT "images", TU__MODEL_GOLDEN_OUTPUT "logits"};
    bytes b = small_file();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t offset = offset_of(&b, names[i]);
        b.data[offset] ^= 1;
        assert_int_equal(parse(&b), TU_CORRUPT);
        assert_non_null(strstr(tu_message(), names[i]));
        assert_non_null(strstr(tu_message(), "does not match its digest"));
        b.data[offset] ^= 1;
    }
    b.data[b.size - 1] ^= 1;
    assert_int_equal(parse(&b), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "its header or its last tensor has changed"));
    free(b.data);
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    folder f = new_folder("a.model");
    small_model m;
    tu__model_file file;
    small_model_new(&m);
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_OK);
    int64_t live = tu__alloc_live();
    uint64_t n = 1;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
        tu__alloc_fail_at(n);
        status = tu__model_file_open(f.file, &file);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        tu__model_file_close(&file);
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(n > 10);
    n = 1;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
        tu__alloc_fail_at(n);
        status = tu__model_file_save(f.file, &m.parts);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(n > 5);
    small_model_free(&m);
    remove_folder(&f);
}

static tu_status load_and_run(const char *path) {
    tu_model *model;
    const uint8_t images[3 * SMALL_PIXELS] = {1, 2, 3};
    float probabilities[3 * SMALL_LABELS];
    tu_status status =
        tu_model_load(path, &model, .devices = "cpu:0", .threads = 1, .max_batch = 2, .sessions = 2);
    if (status != TU_OK) {
        assert_null(model);
        return status;
    }
    status = tu_model_run(model, 3, images, probabilities);
    tu_model_free(model);
    return status;
}

static tu_status verify(const char *path) {
    tu_verify_result result = TU_SIZED(tu_verify_result);
    tu_status status = tu_model_verify(path, &result, .devices = "cpu:0,ref", .threads = 1);
    if (status == TU_OK) assert_int_equal(result.failed, 0);
    return status;
}

/* Every single one, from opening the file to the last answer. */
static void every_failed_allocation_of_loading_and_running_is_reported(void **state) {
    (void)state;
    static tu_status (*const functions[])(const char *path) = {load_and_run, verify};
    folder f = new_folder("a.model");
    small_model m;
    small_model_new(&m);
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_OK);
    small_model_free(&m);
    for (int i = 0; i < 2; i++) {
        if (functions[i](f.file) != TU_OK) fail_msg("%s", tu_message());
        int64_t live = tu__alloc_live();
        uint64_t n = 1;
        for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
            tu__alloc_fail_at(n);
            status = functions[i](f.file);
            tu__alloc_fail_at(0);
            if (status != TU_OK && status != TU_NO_MEMORY)
                fail_msg("allocation %d fails: status %d: %s", (int)n, (int)status, tu_message());
            assert_int_equal(tu__alloc_live(), live);
        }
        assert_true(n > 100);
    }
    remove_folder(&f);
}

/* ---- Hostile files: intact, with correct digests, but with other contents ---- */

enum { MOST = 16 };

typedef struct edited {
    size_t tensor_count, metadata_count;
    tu__named_tensor tensors[MOST];
    tu__metadata metadata[MOST];
    char *digests;     /* replaces those that are computed; freed after saving */
    void *graph_bytes; /* of replace_graph */
} edited;

static void add_digests(edited *e) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_object(&json, NULL);
    for (size_t i = 0; i < e->tensor_count; i++) {
        unsigned char digest[TU__SHA256_BYTES];
        char hex[TU__SHA256_HEX];
        tu__sha256_of(e->tensors[i].data, tu_type_bytes(e->tensors[i].type), digest);
        tu__sha256_hex(digest, hex);
        tu_json_string(&json, e->tensors[i].name, hex);
    }
    tu_json_end_object(&json);
    assert_true(tu_json_finish(&json));
    e->digests = strdup(tu__text_string(&text));
    tu__text_free(&text);
}

static tu__named_tensor *tensor(edited *e, const char *name) {
    for (size_t i = 0; i < e->tensor_count; i++)
        if (strcmp(e->tensors[i].name, name) == 0) return &e->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static tu__metadata *text(edited *e, const char *key) {
    for (size_t i = 0; i < e->metadata_count; i++)
        if (strcmp(e->metadata[i].key, key) == 0) return &e->metadata[i];
    fail_msg("no metadata %s", key);
    return NULL;
}

/* Applies `edit` to the parts of the small model's file, writes them with correct digests, and opens the result. */
static tu_status open_edited(void (*edit)(edited *e)) {
    bytes b = small_file();
    folder f = new_folder("edited.model");
    tu__safetensors file;
    edited e = {0};
    assert_int_equal(tu__safetensors_parse("a.model", b.data, b.size, &file), TU_OK);
    for (size_t i = 0; i + 1 < file.tensor_count; i++) e.tensors[e.tensor_count++] = file.tensors[i];
    for (size_t i = 0; i < file.metadata_count; i++) e.metadata[e.metadata_count++] = file.metadata[i];
    edit(&e);
    if (!e.digests) add_digests(&e);
    for (size_t i = 0; i < e.metadata_count; i++)
        if (strcmp(e.metadata[i].key, TU__MODEL_DIGESTS) == 0) e.metadata[i].value = e.digests;
    assert_int_equal(tu__safetensors_save_sealed(f.file, e.tensor_count, e.tensors, e.metadata_count,
                                                 e.metadata, TU__MODEL_SEAL),
                     TU_OK);
    free(e.digests);
    tu_bytes_free(e.graph_bytes);
    tu__safetensors_close(&file);
    free(b.data);
    tu__model_file opened;
    int64_t live = tu__alloc_live();
    tu_status status = tu__model_file_open(f.file, &opened);
    tu__model_file_close(&opened);
    assert_int_equal(tu__alloc_live(), live);
    remove_folder(&f);
    return status;
}

static void expect_refused(void (*edit)(edited *e), const char *reason) {
    tu_status status = open_edited(edit);
    if (status != TU_CORRUPT || !strstr(tu_message(), reason))
        fail_msg("status %d, message '%s': expected '%s'", (int)status, tu_message(), reason);
}

static void edit_nothing(edited *e) {
    (void)e;
}
static void remove_variable(edited *e) {
    *tensor(e, "out/bias") = e->tensors[--e->tensor_count];
}
static void rename_variable(edited *e) {
    tensor(e, "out/bias")->name = "out/bios";
}
static void add_tensor(edited *e) {
    e->tensors[e->tensor_count] = *tensor(e, "out/bias");
    e->tensors[e->tensor_count++].name = "more";
}
static void reshape_variable(edited *e) {
    tensor(e, "out/weights")->type.shape = TU_SHAPE(SMALL_PIXELS, SMALL_LABELS);
}
static void retype_variable(edited *e) {
    tensor(e, "out/weights")->type.dtype = TU_I32;
}
static void retype_golden(edited *e) {
    tensor(e, TU__MODEL_GOLDEN_INPUT "images")->type.dtype = TU_BOOL;
}
static void shorten_golden(edited *e) {
    tensor(e, TU__MODEL_GOLDEN_OUTPUT "logits")->type.shape.dim[0] = 1;
}
static void flatten_golden(edited *e) {
    tensor(e, TU__MODEL_GOLDEN_INPUT "images")->type.shape = TU_SHAPE(SMALL_GOLDEN * SMALL_PIXELS);
}
static void make_golden_scalar(edited *e) {
    tensor(e, TU__MODEL_GOLDEN_INPUT "images")->type.shape = TU_SCALAR;
}
static void lengthen_golden(edited *e) {
    static const uint8_t images[2000 * SMALL_PIXELS];
    tensor(e, TU__MODEL_GOLDEN_INPUT "images")->type.shape = TU_SHAPE(2000, 2, 3, 1);
    tensor(e, TU__MODEL_GOLDEN_INPUT "images")->data = images;
}
static void remove_golden(edited *e) {
    *tensor(e, TU__MODEL_GOLDEN_OUTPUT "probability") = e->tensors[--e->tensor_count];
}
static void damage_graph(edited *e) {
    static unsigned char zeros[64];
    tensor(e, TU__MODEL_GRAPH)->data = zeros;
    tensor(e, TU__MODEL_GRAPH)->type.shape = TU_SHAPE(sizeof zeros);
}
static void make_graph_floats(edited *e) {
    static float zeros[16];
    tensor(e, TU__MODEL_GRAPH)->data = zeros;
    tensor(e, TU__MODEL_GRAPH)->type = (tu_type){TU_F32, TU_SHAPE(16)};
}

static void variables_and_golden_samples_must_be_those_of_the_graph(void **state) {
    (void)state;
    assert_int_equal(open_edited(edit_nothing), TU_OK);
    expect_refused(remove_variable, "it has no variable 'out/bias', which its graph needs");
    expect_refused(rename_variable, "it has no variable 'out/bias', which its graph needs");
    expect_refused(add_tensor, "it has 7 tensors of variables, golden samples and graph: its graph needs 6");
    expect_refused(reshape_variable, "variable 'out/weights' is f32[6,3]: its graph expects f32[3,6]");
    expect_refused(retype_variable, "variable 'out/weights' is i32[3,6]: its graph expects f32[3,6]");
    expect_refused(retype_golden, "golden input 'images' is bool[2,2,3,1]: its graph expects u8[2,2,3,1]");
    expect_refused(shorten_golden, "golden output 'logits' is f32[1,3]: its graph expects f32[2,3]");
    expect_refused(flatten_golden, "golden input 'images' is u8[12]: its graph expects u8[12,2,3,1]");
    expect_refused(make_golden_scalar, "golden input 'images' is u8[]: its graph expects");
    expect_refused(lengthen_golden, "it has 2000 golden samples: expected at most 1024");
    expect_refused(remove_golden, "it has no golden output 'probability'");
    expect_refused(damage_graph, "graph file, byte 0");
    expect_refused(make_graph_floats, "it has no tensor 'tutti/graph'");
}

/* ---- Other graphs ---- */

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return graph;
}

static void replace_graph(edited *e, tu_graph *graph) {
    size_t size;
    assert_int_equal(tu_graph_write(graph, &e->graph_bytes, &size), TU_OK);
    tensor(e, TU__MODEL_GRAPH)->data = e->graph_bytes;
    tensor(e, TU__MODEL_GRAPH)->type.shape = TU_SHAPE((int64_t)size);
    tu_graph_free(graph);
}

static void use_other_input(edited *e) {
    tu_graph *g = new_graph();
    tu_output(tu_input(g, "x", TU_F32, TU_SHAPE(1, 3)), "logits");
    replace_graph(e, g);
}
static void use_no_output(edited *e) {
    tu_graph *g = new_graph();
    tu_input(g, "images", TU_U8, TU_SHAPE(1, 2, 3, 1));
    replace_graph(e, g);
}
static void use_no_input(edited *e) {
    tu_graph *g = new_graph();
    tu_output(tu_fill(g, TU_F32, TU_SHAPE(1, 3), 1), "logits");
    replace_graph(e, g);
}
static void use_batch(edited *e) {
    tu_graph *g = new_graph();
    tu_output(tu_input(g, "images", TU_U8, TU_SHAPE(2, 2, 3, 1)), "logits");
    replace_graph(e, g);
}
static void use_scalar(edited *e) {
    tu_graph *g = new_graph();
    tu_output(tu_sum(tu_cast(tu_input(g, "images", TU_U8, TU_SHAPE(1, 2, 3, 1)), TU_F32)), "logits");
    replace_graph(e, g);
}
static void use_assignment(edited *e) {
    tu_graph *g = new_graph();
    tu_value v = tu_variable(g, "out/bias", TU_F32, TU_SHAPE(3));
    tu_output(tu_input(g, "images", TU_U8, TU_SHAPE(1, 2, 3, 1)), "logits");
    tu_assign(v, tu_scale(v, 2));
    replace_graph(e, g);
}
static void use_reserved_name(edited *e) {
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "images", TU_U8, TU_SHAPE(1, 2, 3, 1)), v;
    tu_scope(g, "tutti") v = tu_variable(g, "graph", TU_F32, TU_SHAPE(1));
    tu_output(tu_mul(tu_cast(x, TU_F32), v), "logits");
    replace_graph(e, g);
}
static void use_huge_variable(edited *e) {
    tu_graph *g = new_graph();
    tu_value x = tu_cast(tu_input(g, "images", TU_U8, TU_SHAPE(1, 2, 3, 1)), TU_F32);
    tu_value v = tu_variable(g, "out/weights", TU_F32, TU_SHAPE(INT64_C(1) << 40, 1));
    tu_output(tu_mul(x, tu_mean(v)), "logits");
    replace_graph(e, g);
}

static void a_graph_that_is_not_for_inference_is_refused(void **state) {
    (void)state;
    expect_refused(use_other_input, "it has no golden input 'x'");
    expect_refused(use_no_output, "its graph has 0 outputs");
    expect_refused(use_no_input, "its graph has 0 inputs");
    expect_refused(use_batch, "input 'images' of its graph is u8[2,2,3,1]: expected a first dimension of 1");
    expect_refused(use_scalar, "output 'logits' of its graph is f32[]: expected a first dimension of 1");
    expect_refused(use_assignment, "its graph assigns variables ('assign'): expected a graph for inference");
    expect_refused(use_reserved_name, "variable 'tutti/graph' of its graph has a reserved name");
    expect_refused(use_huge_variable,
                   "variable 'out/weights' is f32[3,6]: its graph expects f32[1099511627776,1]");
}

/* ---- Other metadata ---- */

static void set_newer_version(edited *e) {
    text(e, TU__MODEL_FORMAT)->value = "2";
}
static void remove_version(edited *e) {
    text(e, TU__MODEL_FORMAT)->key = "format";
}
static void remove_labels(edited *e) {
    text(e, TU__MODEL_LABELS)->key = "labels";
}
static void set_number_label(edited *e) {
    text(e, TU__MODEL_LABELS)->value = "[\"a\",1,\"b\"]";
}
static void set_two_labels(edited *e) {
    text(e, TU__MODEL_LABELS)->value = "[\"a\",\"b\"]";
}
static void set_labels_object(edited *e) {
    text(e, TU__MODEL_LABELS)->value = "{}";
}
static void break_labels(edited *e) {
    text(e, TU__MODEL_LABELS)->value = "[";
}
static void add_own_key(edited *e) {
    e->metadata[e->metadata_count++] = (tu__metadata){"tutti/more", ""};
}
static void set_bound_of_unknown_output(edited *e) {
    text(e, TU__MODEL_BOUNDS)->value = "[{\"output\":\"class\",\"precision\":\"f32\",\"absolute\":1}]";
}
static void set_bound_of_unknown_precision(edited *e) {
    text(e, TU__MODEL_BOUNDS)->value = "[{\"output\":\"logits\",\"precision\":\"f8\",\"absolute\":1}]";
}
static void set_negative_bound(edited *e) {
    text(e, TU__MODEL_BOUNDS)->value = "[{\"output\":\"logits\",\"precision\":\"f32\",\"absolute\":-1}]";
}
static void set_incomplete_bound(edited *e) {
    text(e, TU__MODEL_BOUNDS)->value = "[{\"output\":\"logits\",\"precision\":\"f32\",\"limit\":1}]";
}
static void set_number_bound(edited *e) {
    text(e, TU__MODEL_BOUNDS)->value = "[1]";
}
static void remove_digests(edited *e) {
    e->digests = strdup("{}");
}
static void set_short_digest(edited *e) {
    e->digests = strdup("{\"out/bias\":\"00\"}");
}
static void add_digest(edited *e) {
    add_digests(e);
    char *longer = malloc(strlen(e->digests) + 100);
    assert_non_null(longer);
    sprintf(longer, "%.*s,\"zzz\":\"%064d\"}", (int)strlen(e->digests) - 1, e->digests, 0);
    free(e->digests);
    e->digests = longer;
}

static void metadata_must_be_complete_and_consistent(void **state) {
    (void)state;
    assert_int_equal(open_edited(set_newer_version), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "it has format version '2'"));
    expect_refused(remove_version, "its metadata has no 'tutti/model'");
    expect_refused(remove_labels, "its metadata has no 'tutti/labels'");
    expect_refused(set_number_label, "label 1 is not a string");
    expect_refused(set_two_labels, "it has 2 labels for the output 'probability', which is f32[1,3]");
    expect_refused(set_labels_object, "'tutti/labels' is not a JSON array");
    expect_refused(break_labels, "tutti/labels: line 1");
    expect_refused(add_own_key, "the key 'tutti/more' of its metadata is reserved");
    expect_refused(set_bound_of_unknown_output, "it has a bound for the output 'class'");
    expect_refused(set_bound_of_unknown_precision, "it has a bound for the precision 'f8'");
    expect_refused(set_negative_bound, "the bound of output 'logits' in f32 is -1");
    expect_refused(set_incomplete_bound, "'tutti/bounds' has an entry that is not");
    expect_refused(set_number_bound, "'tutti/bounds' has an entry that is not");
    expect_refused(remove_digests, "tensor 'out/bias' has no digest");
    expect_refused(set_short_digest, "the digest of tensor 'out/bias' is not a SHA-256");
    expect_refused(add_digest, "there is a digest of tensor 'zzz', which does not exist");
}

/* ---- Other files ---- */

static void other_files_are_refused(void **state) {
    (void)state;
    folder f = new_folder("a.model");
    tu__model_file file;
    assert_int_equal(tu__model_file_open(f.file, &file), TU_NOT_FOUND);
    assert_int_equal(tu__model_file_open(f.path, &file), TU_INVALID);
    assert_int_equal(tu_file_save(f.file, "", 0), TU_OK);
    assert_int_equal(tu__model_file_open(f.file, &file), TU_CORRUPT);
    assert_int_equal(tu_file_save(f.file, "\x7f\x7f\x7f\x7f\0\0\0\0{}", 10), TU_OK);
    assert_int_equal(tu__model_file_open(f.file, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "its header has 2139062143 bytes, expected at most"));
    const float number = 1;
    const tu__named_tensor one = {"w", {TU_F32, TU_SHAPE(1)}, &number};
    assert_int_equal(tu__safetensors_save(f.file, 1, &one, 0, NULL), TU_OK);
    assert_int_equal(tu__model_file_open(f.file, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "is not a model file: its last tensor is not 'tutti/sha256'"));
    assert_int_equal(tu__safetensors_save_sealed(f.file, 1, &one, 0, NULL, TU__MODEL_SEAL), TU_OK);
    assert_int_equal(tu__model_file_open(f.file, &file), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "its metadata has no 'tutti/digests'"));
    remove_folder(&f);
}

static void parts_that_do_not_fit_are_not_saved(void **state) {
    (void)state;
    small_model m;
    folder f = new_folder("a.model");
    small_model_new(&m);
    m.parts.golden_count = 1;
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_INVALID);
    assert_non_null(
        strstr(tu_message(), "golden input 'images' is u8[2,2,3,1]: its graph expects u8[1,2,3,1]"));
    m.parts.golden_count = SMALL_GOLDEN;
    m.parts.variable_count = 1;
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_INVALID);
    m.parts.variable_count = 2;
    m.variables[0].name = "w";
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_INVALID);
    m.variables[0].name = "out/weights";
    m.parts.label_count = 2;
    assert_int_equal(tu__model_file_save(f.file, &m.parts), TU_INVALID);
    assert_int_equal(access(f.file, F_OK), -1);
    small_model_free(&m);
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_back),
        cmocka_unit_test(texts_are_read_back),
        cmocka_unit_test(the_graph_may_be_kept_after_the_file_is_closed),
        cmocka_unit_test(a_file_is_a_safetensors_file_whose_last_tensor_is_its_digest),
        cmocka_unit_test(a_file_with_any_flipped_bit_is_refused),
        cmocka_unit_test(a_truncated_file_is_refused_at_every_length),
        cmocka_unit_test(a_file_that_is_truncated_while_it_is_loaded_is_refused),
        cmocka_unit_test(a_damaged_tensor_is_named),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(every_failed_allocation_of_loading_and_running_is_reported),
        cmocka_unit_test(variables_and_golden_samples_must_be_those_of_the_graph),
        cmocka_unit_test(a_graph_that_is_not_for_inference_is_refused),
        cmocka_unit_test(metadata_must_be_complete_and_consistent),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(parts_that_do_not_fit_are_not_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
