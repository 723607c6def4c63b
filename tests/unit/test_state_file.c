/* Tests of state files: loading restores what was saved, bit for bit; mismatches fail with the variable's name and
 * change nothing. */
#include "fake_disk.h"
#include "temp_folder.h"

#include <stdint.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "io/safetensors.h"

/* A state with variables w f32[2,3], b f32[3], half bf16[2] and the step. */
static tu_state *new_state(uint64_t seed) {
    tu_graph *g;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_scope(g, "net") {
        tu_variable(g, "w", TU_F32, TU_SHAPE(2, 3), .init = {.kind = TU_INIT_NORMAL, .b = 1});
        tu_variable(g, "b", TU_F32, TU_SHAPE(3), .init = {.kind = TU_INIT_NORMAL, .b = 1});
        tu_variable(g, "half", TU_BF16, TU_SHAPE(2), .init = {.kind = TU_INIT_NORMAL, .b = 1});
    }
    tu_step(g);
    assert_int_equal(tu_state_new(g, &state, .seed = seed), TU_OK);
    tu_graph_free(g);
    return state;
}

typedef struct values {
    float w[6], b[3];
    uint16_t half[2];
    int64_t step;
} values;

static values values_of(const tu_state *state) {
    values v;
    memset(&v, 0, sizeof v);
    assert_int_equal(tu_state_get(state, "net/w", v.w, sizeof v.w), TU_OK);
    assert_int_equal(tu_state_get(state, "net/b", v.b, sizeof v.b), TU_OK);
    assert_int_equal(tu_state_get(state, "net/half", v.half, sizeof v.half), TU_OK);
    assert_int_equal(tu_state_get(state, "step", &v.step, sizeof v.step), TU_OK);
    return v;
}

static void assert_same_values(const tu_state *state, const values *expected) {
    values v = values_of(state);
    assert_memory_equal(&v, expected, sizeof v);
}

static void assert_message(const char *text) {
    if (!strstr(tu_message(), text)) fail_msg("\"%s\" does not say \"%s\"", tu_message(), text);
}

static void a_saved_state_can_be_loaded(void **unused) {
    (void)unused;
    folder f = new_folder("net.st");
    tu_state *saved = new_state(7), *loaded = new_state(8);
    int64_t step = 41;
    tu_state_set(saved, "step", &step, sizeof step);
    tu_state_set_sample(saved, 12345);
    values expected = values_of(saved);
    assert_int_equal(tu_state_save(saved, f.file), TU_OK);
    assert_int_equal(tu_state_load(loaded, f.file), TU_OK);
    assert_same_values(loaded, &expected);
    assert_int_equal(tu_state_sample(loaded), 12345);
    /* The seed was loaded, too: both states save the same bytes. */
    folder other = new_folder("again.st");
    assert_int_equal(tu_state_save(loaded, other.file), TU_OK);
    char command[256];
    snprintf(command, sizeof command, "cmp -s %s %s", f.file, other.file);
    assert_int_equal(system(command), 0);
    tu_state_free(saved);
    tu_state_free(loaded);
    remove_folder(&f);
    remove_folder(&other);
}

/* Writes a file as another program would: without digests, with net/w of the given type, and a tensor "extra". */
static void write_foreign(const char *path, tu_type w) {
    static const double zeros[64] = {0};
    static const float b[] = {1, 2, 3};
    const tu__named_tensor tensors[] = {{"net/w", w, zeros},
                                        {"net/b", {TU_F32, TU_SHAPE(3)}, b},
                                        {"net/half", {TU_F32, TU_SHAPE(2)}, b},
                                        {"extra", {TU_F32, TU_SHAPE(1)}, b}};
    assert_int_equal(tu__safetensors_save(path, 4, tensors, 0, NULL), TU_OK);
}

static void mismatches_fail_with_the_variables_names(void **unused) {
    (void)unused;
    folder f = new_folder("foreign.st");
    tu_state *state = new_state(1);
    values before = values_of(state);
    write_foreign(f.file, (tu_type){TU_F32, TU_SHAPE(3, 2)});
    tu_load_report *report;
    assert_int_equal(tu_state_load(state, f.file, .report = &report), TU_INVALID);
    assert_message("does not match the state: 1 variable of '");
    assert_message("missing in the file: step");
    assert_message("net/w (f32[3,2] in the file, f32[2,3] in the state)");
    assert_message("net/half (f32[2] in the file, bf16[2] in the state)");
    assert_message("only in the file: extra");
    assert_message(".partial");
    assert_int_equal(tu_load_report_entry_count(report, TU_LOAD_MATCHED), 1);
    assert_int_equal(tu_load_report_entry_count(report, TU_LOAD_MISMATCHED), 2);
    tu_load_report_free(report);
    assert_same_values(state, &before);
    tu_state_free(state);
    remove_folder(&f);
}

static void partial_loads_what_matches_and_reports_it(void **unused) {
    (void)unused;
    folder f = new_folder("foreign.st");
    tu_state *state = new_state(1);
    tu_state_set_sample(state, 5);
    values expected = values_of(state);
    memcpy(expected.b, (float[]){1, 2, 3}, sizeof expected.b);
    write_foreign(f.file, (tu_type){TU_F32, TU_SHAPE(3, 2)});
    tu_load_report *report;
    assert_int_equal(tu_state_load(state, f.file, .partial = true, .report = &report), TU_OK);
    assert_same_values(state, &expected);
    assert_int_equal(tu_state_sample(state), 5);
    const char *name;
    tu_type in_state, in_file;
    assert_int_equal(tu_load_report_entry(report, TU_LOAD_MATCHED, 0, &name, &in_state, &in_file), TU_OK);
    assert_string_equal(name, "net/b");
    assert_true(tu_shape_equal(in_file.shape, TU_SHAPE(3)));
    assert_int_equal(tu_load_report_entry(report, TU_LOAD_EXTRA, 0, &name, &in_state, NULL), TU_OK);
    assert_string_equal(name, "extra");
    assert_int_equal(in_state.shape.rank, -1);
    assert_int_equal(tu_load_report_entry(report, TU_LOAD_MISSING, 0, &name, NULL, &in_file), TU_OK);
    assert_string_equal(name, "step");
    assert_int_equal(tu_load_report_entry(report, TU_LOAD_MISMATCHED, 1, &name, &in_state, &in_file), TU_OK);
    assert_string_equal(name, "net/half");
    assert_int_equal(in_state.dtype, TU_BF16);
    assert_int_equal(in_file.dtype, TU_F32);
    assert_int_equal(tu_load_report_entry(report, TU_LOAD_MISSING, 1, &name, NULL, NULL), TU_NOT_FOUND);
    assert_non_null(strstr(tu_load_report_text(report), "1 variable of '"));
    tu_load_report_free(report);
    /* With conversion, net/half matches, too. */
    assert_int_equal(tu_state_load(state, f.file, .partial = true, .convert = true), TU_OK);
    tu_bf16_from_f32((float[]){1, 2}, 2, expected.half);
    assert_same_values(state, &expected);
    tu_state_free(state);
    remove_folder(&f);
}

static void patterns_select_variables(void **unused) {
    (void)unused;
    folder f = new_folder("part.st");
    tu_state *saved_state = new_state(1), *loaded_state = new_state(2);
    values first = values_of(saved_state), expected = values_of(loaded_state);
    assert_int_equal(tu_state_save(saved_state, f.file, .only = "net/*", .except = "*half"), TU_OK);
    assert_int_equal(tu_state_load(loaded_state, f.file), TU_INVALID);
    assert_message("missing in the file: net/half, step");
    tu_load_report *report;
    assert_int_equal(tu_state_load(loaded_state, f.file, .only = "*/w", .report = &report), TU_OK);
    memcpy(expected.w, first.w, sizeof first.w);
    assert_same_values(loaded_state, &expected);
    for (int outcome = TU_LOAD_MATCHED; outcome <= TU_LOAD_MISMATCHED; outcome++)
        assert_int_equal(tu_load_report_entry_count(report, (tu_load_outcome)outcome),
                         outcome == TU_LOAD_MATCHED);
    tu_load_report_free(report);
    assert_int_equal(tu_state_load(loaded_state, f.file, .except = "step,*half"), TU_OK);
    assert_int_equal(tu_state_load(loaded_state, f.file, .only = "nett/*"), TU_INVALID);
    assert_message("no variable is selected (.only 'nett/*'");
    assert_int_equal(tu_state_save(saved_state, f.file, .only = "nett/*"), TU_INVALID);
    assert_message("no variable is selected (.only 'nett/*'");
    assert_int_equal(tu_state_load(loaded_state, f.file, .only = "step", .partial = true), TU_INVALID);
    assert_message("matches no variable of the state: ");
    tu_state_free(saved_state);
    tu_state_free(loaded_state);
    remove_folder(&f);
}

static void unsupported_types_are_mismatches(void **unused) {
    (void)unused;
    folder f = new_folder("foreign.st");
    static const char header[] = "{\"net/b\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]},"
                                 "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[3,11]}}";
    uint64_t length = sizeof header - 1;
    FILE *out = fopen(f.file, "wb");
    assert_non_null(out);
    fwrite(&length, 8, 1, out);
    fwrite(header, 1, length, out);
    fwrite("\1\2\3\7\0\0\0\0\0\0\0", 1, 11, out);
    fclose(out);
    tu_state *state = new_state(1);
    tu_load_report *report;
    assert_int_equal(tu_state_load(state, f.file, .partial = true, .report = &report), TU_OK);
    assert_int_equal(values_of(state).step, 7);
    assert_int_equal(tu_load_report_entry_count(report, TU_LOAD_MISMATCHED), 1);
    assert_non_null(strstr(tu_load_report_text(report), "net/b (in the file it has dtype F8_E4M3"));
    tu_load_report_free(report);
    tu_state_free(state);
    remove_folder(&f);
}

static void corruption_is_detected(void **unused) {
    (void)unused;
    folder f = new_folder("net.st");
    tu_state *state = new_state(3), *other = new_state(4);
    values before = values_of(other);
    assert_int_equal(tu_state_save(state, f.file), TU_OK);
    FILE *file = fopen(f.file, "r+b");
    assert_non_null(file);
    fseek(file, -2, SEEK_END);
    int byte = fgetc(file);
    fseek(file, -2, SEEK_END);
    fputc(byte ^ 1, file);
    fclose(file);
    tu_load_report *report;
    assert_int_equal(tu_state_load(other, f.file, .report = &report), TU_CORRUPT);
    assert_message("state file '");
    assert_message("is damaged: its tensors");
    assert_null(report);
    assert_same_values(other, &before);
    const tu__metadata newer = {"format", "tutti state 9"};
    assert_int_equal(tu__safetensors_save(f.file, 0, NULL, 1, &newer), TU_OK);
    assert_int_equal(tu_state_load(other, f.file), TU_UNSUPPORTED);
    assert_message("'tutti state 9': expected 'tutti state 1'");
    assert_int_equal(tu_state_load(other, "/nowhere/net.safetensors"), TU_NOT_FOUND);
    assert_message("/nowhere/net.safetensors");
    assert_int_equal(tu_state_load(other, ""), TU_INVALID);
    assert_int_equal(tu_state_save(other, NULL), TU_INVALID);
    tu_state_free(state);
    tu_state_free(other);
    remove_folder(&f);
}

static void a_failed_save_keeps_the_old_file(void **unused) {
    (void)unused;
    folder f = new_folder("net.st");
    tu_state *old = new_state(3), *new = new_state(4), *read = new_state(5);
    values expected = values_of(old);
    assert_int_equal(tu_state_save(old, f.file), TU_OK);
    int failures = 0;
    for (unsigned nth = 1;; nth++) {
        fake_disk_fail_at(nth, ENOSPC);
        tu_status status = tu_state_save(new, f.file);
        fake_disk_remove();
        if (status == TU_OK) break;
        failures++;
        assert_int_equal(status, TU_IO);
        assert_int_equal(tu_state_load(read, f.file), TU_OK);
        values now = values_of(read), renamed = values_of(new);
        /* The last call flushes the folder: by then the new file has its name. */
        assert_true(memcmp(&now, &expected, sizeof now) == 0 || memcmp(&now, &renamed, sizeof now) == 0);
        assert_int_equal(count_files(&f), 1);
    }
    assert_true(failures >= 3);
    tu_state_free(old);
    tu_state_free(new);
    tu_state_free(read);
    remove_folder(&f);
}

static void running_out_of_memory_changes_nothing(void **unused) {
    (void)unused;
    folder f = new_folder("net.st");
    tu_state *saved = new_state(3), *state = new_state(4);
    values before = values_of(state);
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        int64_t live = tu__alloc_live();
        tu__alloc_fail_at(nth);
        status = tu_state_save(saved, f.file);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
    }
    status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        int64_t live = tu__alloc_live();
        tu_load_report *report;
        tu__alloc_fail_at(nth);
        status = tu_state_load(state, f.file, .report = &report);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        tu_load_report_free(report);
        assert_int_equal(tu__alloc_live(), live);
        if (status != TU_OK) assert_same_values(state, &before);
    }
    values expected = values_of(saved);
    assert_same_values(state, &expected);
    /* Also if some tensors were converted already. */
    write_foreign(f.file, (tu_type){TU_F64, TU_SHAPE(2, 3)});
    before = values_of(state);
    status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        int64_t live = tu__alloc_live();
        tu__alloc_fail_at(nth);
        status = tu_state_load(state, f.file, .partial = true, .convert = true);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
        if (status != TU_OK) assert_same_values(state, &before);
    }
    assert_true(values_of(state).b[2] == 3 && values_of(state).w[0] == 0);
    tu_state_free(saved);
    tu_state_free(state);
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_state_can_be_loaded),
        cmocka_unit_test(mismatches_fail_with_the_variables_names),
        cmocka_unit_test(partial_loads_what_matches_and_reports_it),
        cmocka_unit_test(patterns_select_variables),
        cmocka_unit_test(unsupported_types_are_mismatches),
        cmocka_unit_test(corruption_is_detected),
        cmocka_unit_test(a_failed_save_keeps_the_old_file),
        cmocka_unit_test(running_out_of_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
