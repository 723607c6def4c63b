/* TensorBoard's event files, read back by an independent decoder (decode_events.h). */
#include "decode_events.h"
#include "fake_disk.h"

#include <math.h>
#include <time.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "io/crc32c.h"
#include "io/event_file.h"

static char folder[64], path[512];
static tu__event_file *file;

static int begin_file(void **state) {
    (void)state;
    strcpy(folder, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tu__event_file_new(folder, -1, &file), TU_OK);
    assert_int_equal(event_find(folder, path), 1);
    return 0;
}

static int end_file(void **state) {
    (void)state;
    if (file) assert_int_equal(tu__event_file_close(file), TU_OK);
    file = NULL;
    while (event_find(folder, path) > 0) assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

/* Reads the only event after the version. */
static decoded_event only_event(event_reader *reader) {
    static decoded_event event, more;
    *reader = event_open(path);
    assert_true(event_next(reader, &event));
    assert_int_equal(event.kind, EVENT_VERSION);
    if (!event_next(reader, &event)) fail_msg("no event: %s", reader->problem ? reader->problem : "the end");
    assert_false(event_next(reader, &more));
    assert_null(reader->problem);
    return event;
}

static void checksums_match_the_standard(void **state) {
    (void)state;
    static const uint8_t zeros[32] = {0};
    uint8_t ones[32], rising[32];
    memset(ones, 0xFF, sizeof ones);
    for (int i = 0; i < 32; i++) rising[i] = (uint8_t)i;
    assert_int_equal(tu__crc32c("123456789", 9), 0xE3069283); /* RFC 3720, appendix B.4 */
    assert_int_equal(tu__crc32c(zeros, 32), 0x8A9136AA);
    assert_int_equal(tu__crc32c(ones, 32), 0x62A8AB43);
    assert_int_equal(tu__crc32c(rising, 32), 0x46DD794E);
    assert_int_equal(tu__crc32c("", 0), 0);
}

static void a_file_starts_with_its_version(void **state) {
    (void)state;
    event_reader reader = event_open(path);
    decoded_event event;
    assert_true(event_next(&reader, &event));
    assert_int_equal(event.kind, EVENT_VERSION);
    assert_true(pb_equals(event.text, "brain.Event:2"));
    assert_true(fabs(event.wall_time - (double)time(NULL)) < 3600);
    assert_false(event_next(&reader, &event));
    assert_null(reader.problem);
    event_close(&reader);
}

static void a_resumed_run_purges_later_steps(void **state) {
    (void)state;
    tu__event_file *second;
    assert_int_equal(tu__event_file_new(folder, 1200, &second), TU_OK);
    assert_int_equal(tu__event_file_close(second), TU_OK);
    assert_int_equal(event_find(folder, path), 2); /* path is that of the later file */
    event_reader reader;
    decoded_event event = only_event(&reader);
    assert_int_equal(event.kind, EVENT_START);
    assert_int_equal(event.step, 1200);
    event_close(&reader);
}

static void scalars_are_read_back(void **state) {
    (void)state;
    static const double values[] = {0.5, -3e-9, 0, 1e30, INFINITY, 2.302585092994046};
    for (int i = 0; i < 6; i++)
        assert_int_equal(tu__event_scalar(file, i * INT64_C(5000000000), "train/loss", values[i]), TU_OK);
    assert_int_equal(tu__event_scalar(file, 1, "nan", NAN), TU_OK);
    event_reader reader = event_open(path);
    decoded_event event;
    assert_true(event_next(&reader, &event));
    for (int i = 0; i < 6; i++) {
        assert_true(event_next(&reader, &event));
        assert_int_equal(event.kind, EVENT_SCALAR);
        assert_string_equal(event.tag, "train/loss");
        assert_true(event.step == i * INT64_C(5000000000));
        assert_true(event.scalar == (float)values[i]);
    }
    assert_true(event_next(&reader, &event));
    assert_true(isnan(event.scalar));
    event_close(&reader);
}

static void an_image_is_read_back(void **state) {
    (void)state;
    static const uint8_t png[300] = {0x89, 'P', 'N', 'G', 0, 1, 2};
    assert_int_equal(tu__event_image(file, 7, "samples/0", 24, 32, 3, png, sizeof png), TU_OK);
    event_reader reader;
    decoded_event event = only_event(&reader);
    assert_int_equal(event.kind, EVENT_IMAGE);
    assert_string_equal(event.tag, "samples/0");
    assert_int_equal(event.height, 24);
    assert_int_equal(event.width, 32);
    assert_int_equal(event.colours, 3);
    assert_int_equal(event.png.end - event.png.at, sizeof png);
    assert_memory_equal(event.png.at, png, sizeof png);
    event_close(&reader);
}

/* ---- Histograms ---- */

static void a_histogram_counts_every_number_once(void **state) {
    (void)state;
    static float numbers[1000];
    double sum = 0, squares = 0;
    for (int i = 0; i < 1000; i++) {
        numbers[i] = (float)(0.003 * (i - 400) * fabs(0.01 * (i - 400)));
        sum += (double)numbers[i];
        squares += (double)numbers[i] * (double)numbers[i];
    }
    assert_int_equal(tu__event_histogram(file, 3, "dense/weights", 1000, numbers), TU_OK);
    event_reader reader;
    decoded_event event = only_event(&reader);
    assert_int_equal(event.kind, EVENT_HISTOGRAM);
    assert_true(event.number == 1000 && event.least == (double)numbers[0] &&
                event.most == (double)numbers[999]);
    assert_true(fabs(event.sum - sum) < 1e-9 && fabs(event.squares - squares) < 1e-9);
    for (size_t i = 0; i < event.bucket_count; i++) {
        double low = i ? event.limits[i - 1] : -INFINITY, count = 0;
        for (int k = 0; k < 1000; k++)
            count += (double)numbers[k] >= low && (double)numbers[k] < event.limits[i];
        assert_true(event.counts[i] == count);
        if (i) assert_true(event.limits[i] > event.limits[i - 1]);
    }
    assert_true(event.counts[0] > 0 && event.counts[event.bucket_count - 1] > 0);
    assert_true(event.bucket_count < 400);
    event_close(&reader);
}

static void bucket_limits_grow_by_ten_percent(void **state) {
    (void)state;
    static const float numbers[] = {1e-12F, 1.15e-12F, 1, -1, 0, -1e-12F, 1.2F};
    assert_int_equal(tu__event_histogram(file, 3, "w", 7, numbers), TU_OK);
    event_reader reader;
    decoded_event event = only_event(&reader);
    double above_one = 0;
    for (size_t i = 0; i < event.bucket_count; i++)
        if (event.limits[i] > 1 && !above_one) above_one = event.limits[i];
    double steps = log(above_one / 1e-12) / log(1.1);
    assert_true(fabs(steps - round(steps)) < 1e-6);
    assert_true(event.number == 7);
    event_close(&reader);
}

static void histograms_without_finite_numbers_have_one_bucket(void **state) {
    (void)state;
    static const struct {
        float numbers[3];
        size_t count;
        double number;
    } cases[] = {{{0}, 0, 0},
                 {{0, 0, 0}, 3, 3},
                 {{NAN, INFINITY, -INFINITY}, 3, 0},
                 {{NAN, 5, -INFINITY}, 3, 1},
                 {{3e38F, -3e38F, 0}, 3, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tu__event_histogram(file, 0, "w", cases[i].count, cases[i].numbers), TU_OK);
    event_reader reader = event_open(path);
    decoded_event event;
    assert_true(event_next(&reader, &event));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(event_next(&reader, &event));
        double total = 0;
        for (size_t k = 0; k < event.bucket_count; k++) total += event.counts[k];
        assert_true(event.bucket_count >= 1 && total == cases[i].number && event.number == total);
        assert_true(isfinite(event.sum) && isfinite(event.least) && isfinite(event.most));
    }
    event_close(&reader);
}

/* ---- Graphs ---- */

static tu_graph *small_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 5)), top;
    tu_with_device(g, "cpu:0") tu_scope(g, "layer") top = tu_name(tu_top_k(x, 3, -1), "top");
    tu_name(tu_neg(tu_cast(tu_output_of(top, 1), TU_F32)), "y");
    assert_int_equal(tu_graph_status(g), TU_OK);
    return g;
}

/* Formats a node as "name op(input,input)device shape" for comparison. */
static void describe_node(pb_span node, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (pb_field f; pb_next(&node, &f);) {
        int length = (int)(f.bytes.end - f.bytes.at);
        static const char *const forms[] = {"", "%.*s", " %.*s", " <%.*s", " @%.*s"};
        assert_in_range(f.number, 1, 5);
        if (f.number < 5)
            used +=
                (size_t)snprintf(text + used, size - used, forms[f.number], length, (const char *)f.bytes.at);
    }
}

static void a_graph_is_written_with_its_edges(void **state) {
    (void)state;
    static const char *const expected[] = {"x input", "layer/top top_k <x @cpu:0", "cast cast <layer/top:1",
                                           "y neg <cast"};
    tu_graph *g = small_graph();
    assert_int_equal(tu__event_graph(file, g), TU_OK);
    event_reader reader;
    decoded_event event = only_event(&reader);
    assert_int_equal(event.kind, EVENT_GRAPH);
    int nodes = 0, versions = 0, found = 0;
    for (pb_field f; pb_next(&event.text, &f);) {
        char text[256];
        if (f.number == 4) versions++;
        if (f.number != 1) continue;
        nodes++;
        describe_node(f.bytes, text, sizeof text);
        for (int i = 0; i < 4; i++) found += strcmp(text, expected[i]) == 0;
    }
    tu_graph_totals totals = TU_SIZED(tu_graph_totals);
    assert_int_equal(tu_graph_total(g, &totals), TU_OK);
    assert_int_equal(nodes, totals.nodes);
    assert_int_equal(versions, 1);
    assert_int_equal(found, 4);
    event_close(&reader);
    tu_graph_free(g);
}

/* ---- Errors ---- */

static void a_failed_record_is_removed(void **state) {
    (void)state;
    for (unsigned nth = 1; nth <= 5; nth++) {
        fake_disk_fail_at(nth, ENOSPC);
        fake_disk_plan.most = 10; /* a record needs several writes */
        assert_int_equal(tu__event_scalar(file, 1, "lost", 1), TU_IO);
        assert_non_null(strstr(tu_message(), strerror(ENOSPC)));
        assert_non_null(strstr(tu_message(), path));
        fake_disk_remove();
    }
    assert_int_equal(tu__event_scalar(file, 2, "kept", 2), TU_OK);
    event_reader reader;
    decoded_event event = only_event(&reader);
    assert_string_equal(event.tag, "kept");
    event_close(&reader);
}

static void a_failed_start_leaves_no_file(void **state) {
    (void)state;
    tu__event_file *second;
    for (unsigned nth = 1; nth <= 3; nth++) {
        fake_disk_fail_at(nth, EIO);
        assert_int_equal(tu__event_file_new(folder, 5, &second), TU_IO);
        fake_disk_remove();
        assert_null(second);
        assert_int_equal(event_find(folder, path), 1);
    }
    assert_int_equal(tu__event_file_new("/no-such-folder", -1, &second), TU_IO);
    assert_non_null(strstr(tu_message(), "cannot write '/no-such-folder/events.out.tfevents."));
}

static tu_status write_all_kinds(const tu_graph *g) {
    static const float numbers[] = {1, 2, 3};
    tu__event_file *events;
    TU_TRY(tu__event_file_new(folder, 3, &events));
    tu_status status = tu__event_scalar(events, 0, "a", 1);
    if (status == TU_OK) status = tu__event_histogram(events, 0, "b", 3, numbers);
    if (status == TU_OK) status = tu__event_image(events, 0, "c", 1, 1, 1, "png", 3);
    if (status == TU_OK) status = tu__event_graph(events, g);
    tu__event_file_close(events);
    return status;
}

static void running_out_of_memory_is_reported(void **state) {
    (void)state;
    tu_graph *g = small_graph();
    int64_t live = tu__alloc_live();
    uint64_t n = 1;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
        tu__alloc_fail_at(n);
        status = write_all_kinds(g);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(n > 20);
    tu_graph_free(g);
}

#define FILE_TEST(test) cmocka_unit_test_setup_teardown(test, begin_file, end_file)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_match_the_standard),
        FILE_TEST(a_file_starts_with_its_version),
        FILE_TEST(a_resumed_run_purges_later_steps),
        FILE_TEST(scalars_are_read_back),
        FILE_TEST(an_image_is_read_back),
        FILE_TEST(a_histogram_counts_every_number_once),
        FILE_TEST(bucket_limits_grow_by_ten_percent),
        FILE_TEST(histograms_without_finite_numbers_have_one_bucket),
        FILE_TEST(a_graph_is_written_with_its_edges),
        FILE_TEST(a_failed_record_is_removed),
        FILE_TEST(a_failed_start_leaves_no_file),
        FILE_TEST(running_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
