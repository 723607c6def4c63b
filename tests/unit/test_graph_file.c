/* Graph files: a graph that is written and read back gives the same bytes; damaged files fail with the byte offset; a
 * failed save keeps the old file. test_graph_file_hostile.c tests intact but malicious files;
 * tests/ops/test_case_files.c writes and reads every operation. */
#include "fake_disk.h"
#include "graph_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/graph.h"
#include "temp_folder.h"

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

static void all_fields_are_read_back(void **state) {
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

static void nodes_can_be_added_to_a_graph_that_was_read(void **state) {
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

static void a_graph_with_an_error_is_not_written(void **state) {
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

static void a_file_truncated_anywhere_is_rejected(void **state) {
    (void)state;
    file f = write_and_free(rich_graph());
    for (size_t size = 0; size < f.size; size++) {
        unsigned char *cut =
            malloc(size ? size : 1); /* of exactly this size, so that the sanitizer detects reads beyond it */
        memcpy(cut, f.bytes, size);
        assert_read_error((file){cut, size}, TU_CORRUPT,
                          size < TU__FILE_HEADER ? "ends within its header" : "truncated");
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
        size_t offset = bit / 8;
        bool version =
            offset >= TU__FILE_AT_VERSION && offset < TU__FILE_AT_SIZE; /* may look like a newer version */
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
    assert_read_error((file){longer, f.size + 1}, TU_CORRUPT, "1 bytes follow the end of the file");
    free(longer);
    tu_bytes_free(f.bytes);
}

static void another_kind_of_file_is_rejected(void **state) {
    (void)state;
    char text[100] = "# This is a text";
    assert_read_error((file){(unsigned char *)text, sizeof text}, TU_CORRUPT,
                      "this is not a Tutti graph file");
}

static void a_newer_version_is_rejected(void **state) {
    (void)state;
    file f = write_and_free(small_graph());
    f.bytes[TU__FILE_AT_VERSION] = 9;
    assert_read_error(f, TU_UNSUPPORTED, "the file has format version 9, but Tutti");
    f.bytes[TU__FILE_AT_VERSION] = 0;
    assert_read_error(f, TU_CORRUPT, "format version 0");
    f.bytes[TU__FILE_AT_VERSION] = 1;
    f.bytes[TU__FILE_AT_FLAGS] = 2;
    assert_read_error(f, TU_UNSUPPORTED, "unknown flags 0x2");
    tu_bytes_free(f.bytes);
}

/* ---- On the disk ---- */

static void a_graph_is_saved_and_loaded(void **state) {
    (void)state;
    folder f = new_folder("net.tug");
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

/* If any step of a save fails, the folder contains only the old graph or the complete new one. */
static void a_save_that_fails_leaves_the_old_file(void **state) {
    (void)state;
    folder f = new_folder("net.tug");
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
    folder f = new_folder("net.tug");
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

static void errors_contain_the_path(void **state) {
    (void)state;
    tu_graph *g = small_graph(), *none;
    assert_int_equal(tu_graph_save(g, "/no-such-folder/net.tug"), TU_IO);
    assert_says("cannot save '/no-such-folder/net.tug': No such file or directory");
    assert_int_equal(tu_graph_save(g, "/tmp"), TU_IO);
    assert_says("cannot save '/tmp': Is a directory");
    assert_int_equal(tu_graph_save(g, ""), TU_INVALID);
    assert_int_equal(tu_graph_load("/no-such-folder/net.tug", &none), TU_NOT_FOUND);
    assert_says("cannot read '/no-such-folder/net.tug'");
    assert_int_equal(tu_graph_load("/tmp", &none), TU_INVALID);
    assert_says("cannot read '/tmp': it is not a regular file");
    assert_int_equal(tu_graph_load("/dev/null", &none), TU_INVALID);
    assert_says("cannot read '/dev/null': it is not a regular file");
    assert_int_equal(tu_graph_load("/dev/zero", &none), TU_INVALID);
    assert_says("cannot read '/dev/zero': it is not a regular file");
    assert_null(none);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_read_back_to_the_same_bytes),
        cmocka_unit_test(an_empty_graph_is_read_back),
        cmocka_unit_test(all_fields_are_read_back),
        cmocka_unit_test(nodes_can_be_added_to_a_graph_that_was_read),
        cmocka_unit_test(names_of_many_scopes_are_read_back),
        cmocka_unit_test(a_graph_with_an_error_is_not_written),
        cmocka_unit_test(a_file_truncated_anywhere_is_rejected),
        cmocka_unit_test(a_changed_bit_is_found),
        cmocka_unit_test(bytes_after_the_end_are_found),
        cmocka_unit_test(another_kind_of_file_is_rejected),
        cmocka_unit_test(a_newer_version_is_rejected),
        cmocka_unit_test(a_graph_is_saved_and_loaded),
        cmocka_unit_test(a_save_that_fails_leaves_the_old_file),
        cmocka_unit_test(a_save_keeps_links_and_permissions),
        cmocka_unit_test(a_device_is_written_in_place),
        cmocka_unit_test(errors_contain_the_path),
    };
    return cmocka_run_group_tests(tests, register_custom, NULL);
}
