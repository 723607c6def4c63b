/* Opening data sets: generated, from folders, from arrays, from functions; and the messages for invalid ones. */
#include "test.h"

#include <math.h>
#include <sys/resource.h>

#include <tutti/data.h>

#include "base/alloc.h"
#include "data/fetch.h"
#include "data/fit.h"
#include "data_folder.h"
#include "io/image.h"

static tu_dataset *open_set(const char *spec) {
    tu_dataset *set = NULL;
    tu_status status = tu_dataset_open(spec, &set, .height = 8, .width = 8, .seed = 4);
    if (status != TU_OK) fail_msg("%s: %s", spec, tu_message());
    assert_non_null(set);
    return set;
}

static tu_dataset_info describe_set(const tu_dataset *set) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    assert_int_equal(tu_dataset_describe(set, &info), TU_OK);
    return info;
}

static void expect_error(const char *spec, tu_status status, const char *part) {
    tu_dataset *set = NULL;
    assert_int_equal(tu_dataset_open(spec, &set, .height = 8, .width = 8, .offline = true), status);
    assert_null(set);
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in: %s", part, tu_message());
}

/* ---- The generated data set ---- */

/* Recomputes the digest and means, which are constants in the source. */
static void the_generated_data_set_has_its_digest_and_means(void **state) {
    (void)state;
    tu_dataset *set = open_set("generated");
    assert_int_equal(tu_dataset_verify(set), TU_OK);
    tu_dataset_info info = describe_set(set);
    double sum[3] = {0}, squares[3] = {0};
    for (int64_t i = 0; i < 2000; i++) {
        uint8_t image[32 * 32 * 3];
        int32_t label;
        assert_int_equal(tu_dataset_read(set, TU_TRAIN, i, image, &label), TU_OK);
        assert_int_equal(label, i % 10);
        for (int p = 0; p < 32 * 32 * 3; p++) {
            sum[p % 3] += image[p] / 255.0;
            squares[p % 3] += image[p] / 255.0 * (image[p] / 255.0);
        }
    }
    for (int c = 0; c < 3; c++) {
        double mean = sum[c] / (2000 * 1024), deviation = sqrt(squares[c] / (2000 * 1024) - mean * mean);
        assert_true(fabs(mean - info.mean[c]) < 0.01);
        assert_true(fabs(deviation - info.deviation[c]) < 0.01);
    }
    tu_dataset_free(set);
}

/* ---- Folders ---- */

/* Writes an image whose red channel grows from left to right, with constant green and blue. */
static void write_image(const char *name, int64_t height, int64_t width, int green) {
    tu__image image = {.height = height, .width = width, .channels = 3};
    image.pixels = malloc((size_t)(height * width * 3));
    assert_non_null(image.pixels);
    for (int64_t i = 0; i < height * width; i++) {
        image.pixels[3 * i] = (uint8_t)(i % width * 255 / (width > 1 ? width - 1 : 1));
        image.pixels[3 * i + 1] = (uint8_t)green;
        image.pixels[3 * i + 2] = 40;
    }
    void *png;
    size_t size;
    assert_int_equal(tu__image_encode_png(&image, &png, &size), TU_OK);
    write_file(name, png, size);
    tu__free(png);
    free(image.pixels);
}

static void write_classes(const char *folder, int count) {
    static const char *const classes[] = {"cat", "dog"};
    char path[128];
    make_folder(folder);
    for (int c = 0; c < 2; c++) {
        snprintf(path, sizeof path, "%s/%s", folder, classes[c]);
        make_folder(path);
        for (int i = 0; i < count; i++) {
            snprintf(path, sizeof path, "%s/%s/%d.png", folder, classes[c], i);
            write_image(path, 8 + i, 20 - i, 100 * c + i);
        }
    }
}

static void a_folder_with_a_subfolder_per_class_is_a_data_set(void **state) {
    (void)state;
    write_classes("pets", 10);
    write_file("pets/cat/notes.txt", "not an image!", 13);
    tu_dataset *set = open_set(in_folder("pets"));
    tu_dataset_info info = describe_set(set);
    assert_string_equal(info.name, "pets");
    assert_int_equal(info.classes, 2);
    assert_string_equal(info.class_names[0], "cat");
    assert_string_equal(info.class_names[1], "dog");
    assert_int_equal(info.count[TU_TRAIN], 18); /* a tenth of each class is in the test split */
    assert_int_equal(info.count[TU_TEST], 2);
    bool seen[2][10] = {{false}};
    for (int split = 0; split < 2; split++) {
        for (int64_t i = 0; i < info.count[split]; i++) {
            uint8_t image[8][8][3];
            int32_t label;
            assert_int_equal(tu_dataset_read(set, (tu_split)split, i, image, &label), TU_OK);
            int index = image[4][4][1] - 100 * label;
            assert_in_range(index, 0, 9);
            assert_false(seen[label][index]);
            seen[label][index] = true;
            assert_true(image[0][0][0] < image[0][7][0]); /* columns are still ordered from dark to bright */
            assert_int_equal(image[7][7][2], 40);
        }
    }
    tu_dataset_free(set);
}

static void a_changed_folder_is_converted_again(void **state) {
    (void)state;
    write_classes("birds", 3);
    tu_dataset_free(open_set(in_folder("birds")));
    int files = count_entries("converted");
    tu_dataset_free(open_set(in_folder("birds")));
    assert_int_equal(count_entries("converted"), files);
    write_image("birds/cat/new.png", 8, 8, 9);
    tu_dataset *set = open_set(in_folder("birds"));
    assert_int_equal(count_entries("converted"), files + 1);
    assert_int_equal(describe_set(set).count[TU_TRAIN] + describe_set(set).count[TU_TEST], 7);
    tu_dataset_free(set);
}

static void files_of_a_killed_conversion_are_removed(void **state) {
    (void)state;
    write_classes("fishes", 3);
    tu_dataset_free(open_set(in_folder("fishes")));
    int files = count_entries("converted");
    write_file("converted/.tutti-unfinished", "half a set", 10);
    write_image("fishes/cat/new.png", 8, 8, 9);
    tu_dataset_free(open_set(in_folder("fishes")));
    assert_int_equal(access(in_folder("converted/.tutti-unfinished"), F_OK), -1);
    assert_int_equal(count_entries("converted"), files + 1);
}

static void train_and_test_folders_define_the_splits(void **state) {
    (void)state;
    make_folder("split");
    write_classes("split/train", 4);
    write_classes("split/test", 2);
    tu_dataset *set = open_set(in_folder("split"));
    assert_int_equal(describe_set(set).count[TU_TRAIN], 8);
    assert_int_equal(describe_set(set).count[TU_TEST], 4);
    tu_dataset_free(set);
    make_folder("split/test/bird");
    expect_error(in_folder("split"), TU_INVALID, "has other class folders than train/: it has 'bird'");
}

static void invalid_folders_fail(void **state) {
    (void)state;
    make_folder("empty");
    expect_error(in_folder("empty"), TU_INVALID, "contains 0 subfolders: expected at least two");
    write_classes("hollow", 2);
    make_folder("hollow/eel");
    expect_error(in_folder("hollow"), TU_INVALID, "hollow/eel' contains no images");
    write_classes("fake", 2);
    write_file("fake/dog/text.png", "this is no picture", 18);
    int files = count_entries("converted");
    expect_error(in_folder("fake"), TU_INVALID, "fake/dog/text.png");
    assert_int_equal(count_entries("converted"), files);
}

/* ---- Cropping and resizing ---- */

/* Makes opening files fail as soon as the first image is about to be read. */
static void forbid_opening_files(void *context, const char *what, int64_t done, int64_t total) {
    (void)total;
    struct rlimit none = *(const struct rlimit *)context;
    none.rlim_cur = 0;
    if (strcmp(what, "reading images") == 0 && done == 0) setrlimit(RLIMIT_NOFILE, &none);
}

/* A temporary failure to read an image is not damage: the converted data set, which is cached, would never get the
 * image. */
static void only_damaged_images_are_skipped(void **state) {
    (void)state;
    tu_dataset *set = NULL;
    struct rlimit before;
    write_classes("briefly", 6);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tu_status status = tu_dataset_open(in_folder("briefly"), &set, .height = 8, .width = 8, .skip_bad = true,
                                       .progress = forbid_opening_files, .context = &before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, TU_IO);
    assert_non_null(strstr(tu_message(), "Too many open files"));
    write_file("briefly/cat/damaged.png", "no", 2);
    write_file("briefly/cat/empty.png", "", 0);
    assert_int_equal(tu_dataset_open(in_folder("briefly"), &set, .height = 8, .width = 8, .skip_bad = true),
                     TU_OK);
    assert_int_equal(describe_set(set).skipped, 2);
    tu_dataset_free(set);
}

static void images_are_averaged_when_they_shrink(void **state) {
    (void)state;
    static uint8_t
        pixels[64][96]
              [1]; /* a fine checkerboard, which interpolation without averaging would turn black or white */
    for (int y = 0; y < 64; y++)
        for (int x = 0; x < 96; x++) pixels[y][x][0] = (x + y) % 2 ? 255 : 0;
    tu__image image = {64, 96, 1, &pixels[0][0][0]};
    uint8_t out[16][16][3];
    assert_int_equal(tu__fit_image(&image, 16, 16, 3, &out[0][0][0]), TU_OK);
    for (int i = 0; i < 16 * 16 * 3; i++) assert_in_range((&out[0][0][0])[i], 127, 128);
}

static void the_centre_of_a_long_image_is_cropped(void **state) {
    (void)state;
    static uint8_t pixels[4][1000][3];
    for (int y = 0; y < 4; y++)
        for (int x = 498; x < 502; x++) pixels[y][x][1] = 200;
    tu__image image = {4, 1000, 3, &pixels[0][0][0]};
    uint8_t out[4][4][3], large[8][8][3], grey[4][4];
    assert_int_equal(tu__fit_image(&image, 4, 4, 3, &out[0][0][0]), TU_OK);
    assert_int_equal(tu__fit_image(&image, 8, 8, 3, &large[0][0][0]), TU_OK);
    assert_int_equal(tu__fit_image(&image, 4, 4, 1, &grey[0][0]), TU_OK);
    for (int i = 0; i < 16; i++) assert_int_equal(out[i / 4][i % 4][1], 200);
    for (int i = 0; i < 64; i++) assert_int_equal(large[i / 8][i % 8][1], 200);
    for (int i = 0; i < 16; i++) assert_int_equal(grey[i / 4][i % 4], 117); /* 0.587 * 200 */
    assert_int_equal(tu__fit_image(&image, 4, 4, 2, &out[0][0][0]), TU_INVALID);
    assert_int_equal(tu__fit_image(&image, 0, 4, 3, &out[0][0][0]), TU_INVALID);
}

/* ---- Arrays ---- */

static void save_array(const char *name, const char *type, const char *shape, const void *data, size_t size) {
    unsigned char bytes[1024] = "\x93NUMPY\x01";
    int length = snprintf((char *)bytes + 10, 200, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
                          type, shape);
    bytes[8] = (unsigned char)length;
    memcpy(bytes + 10 + length, data, size);
    write_file(name, bytes, 10 + (size_t)length + size);
}

static const char *pair(const char *images, const char *labels) {
    static char spec[600];
    snprintf(spec, sizeof spec, "%s,%s", in_folder(images), in_folder(labels));
    return spec;
}

static void a_pair_of_arrays_is_a_data_set(void **state) {
    (void)state;
    uint8_t bytes[20 * 4];
    int64_t labels[20];
    for (int i = 0; i < 20; i++) {
        memset(bytes + (ptrdiff_t)i * 4, i, 4);
        labels[i] = i % 4;
    }
    save_array("images.npy", "|u1", "(20, 2, 2)", bytes, sizeof bytes);
    save_array("labels.npy", "<i8", "(20,)", labels, sizeof labels);
    tu_dataset *set = open_set(pair("images.npy", "labels.npy"));
    tu_dataset_info info = describe_set(set);
    assert_int_equal(info.count[TU_TRAIN], 18);
    assert_int_equal(info.count[TU_TEST], 2);
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.classes, 4);
    assert_string_equal(info.class_names[3], "3");
    unsigned seen = 0;
    for (int split = 0; split < 2; split++) {
        for (int64_t i = 0; i < info.count[split]; i++) {
            uint8_t image[4];
            int32_t label;
            assert_int_equal(tu_dataset_read(set, (tu_split)split, i, image, &label), TU_OK);
            assert_int_equal(image[3] % 4, label);
            seen |= 1u << image[3];
        }
    }
    assert_int_equal(seen, 0xFFFFF);
    tu_dataset_free(set);
}

static void float_arrays_are_unchanged(void **state) {
    (void)state;
    double numbers[4] = {-1.5, 2.25, 0, 1e10};
    int32_t labels[2] = {1, 0};
    save_array("numbers.npy", "<f8", "(2, 1, 1, 2)", numbers, sizeof numbers);
    save_array("two.npy", "<i4", "(2,)", labels, sizeof labels);
    tu_dataset *set = open_set(pair("numbers.npy", "two.npy"));
    assert_int_equal(describe_set(set).dtype, TU_F32);
    float images[2][2];
    int32_t label;
    assert_int_equal(tu_dataset_read(set, TU_TRAIN, 0, images[0], &label), TU_OK);
    assert_int_equal(tu_dataset_read(set, TU_TEST, 0, images[1], &label), TU_OK);
    int first = images[0][0] == -1.5F ? 0 : 1;
    assert_true(images[first][1] == 2.25F && images[1 - first][1] == 1e10F);
    tu_dataset_free(set);
    numbers[2] = NAN;
    save_array("nan.npy", "<f8", "(2, 1, 1, 2)", numbers, sizeof numbers);
    expect_error(pair("nan.npy", "two.npy"), TU_INVALID, "image 1 has a pixel that is not finite");
}

static void invalid_arrays_fail(void **state) {
    (void)state;
    int32_t numbers[6] = {0, 1, 2, -3, 4, 5};
    save_array("flat.npy", "<i4", "(6,)", numbers, sizeof numbers);
    save_array("three.npy", "<i4", "(3, 1, 2)", numbers, sizeof numbers);
    save_array("four.npy", "<i4", "(4,)", numbers, 16);
    save_array("negative.npy", "<i4", "(3,)", numbers + 2, 12);
    save_array("floats.npy", "<f4", "(3,)", (float[3]){0, 1, 2}, 12);
    expect_error(pair("flat.npy", "four.npy"), TU_INVALID, "has 1 dimensions: expected images [n,h,w]");
    expect_error(pair("three.npy", "four.npy"), TU_INVALID, "4 labels: expected one dimension and 3 labels");
    expect_error(pair("three.npy", "negative.npy"), TU_INVALID, "label 1 is -3: expected 0 to");
    expect_error(pair("three.npy", "floats.npy"), TU_INVALID, "labels that are not integers");
    expect_error(pair("three.npy", "missing.npy"), TU_NOT_FOUND, "missing.npy': No such file");
    expect_error(in_folder("three.npy"), TU_INVALID, "is a single array: expected two");
    write_file("empty.npy", "", 0);
    expect_error(pair("empty.npy", "four.npy"), TU_CORRUPT, "it is empty");
}

/* ---- Names, sources, downloads ---- */

static void unknown_names_fail_with_a_suggestion(void **state) {
    (void)state;
    expect_error("cifar-10", TU_NOT_FOUND, "did you mean 'cifar10'?");
    expect_error("imagenet", TU_NOT_FOUND, "expected cifar10, mnist, generated");
    expect_error("no/such/folder", TU_NOT_FOUND, "'no/such/folder' does not exist");
    expect_error("", TU_INVALID, "no data set given");
    expect_error("mnist", TU_NOT_FOUND, "run `tutti data get mnist` first");
    char path[4096];
    assert_int_equal(tu_data_get("minst", path), TU_NOT_FOUND);
    assert_string_equal(tu_message(),
                        "unknown data set 'minst': expected cifar10, mnist or gpt2; did you mean 'mnist'?");
}

/* Official files with other contents are not accepted under the name of the data set. */
static void wrong_official_files_fail(void **state) {
    (void)state;
    static unsigned char zeros[60008] = {0, 0, 8, 1, 0, 0, 0xEA, 0x60};
    make_folder("mnist");
    write_file("mnist/train-images-idx3-ubyte", zeros, 100);
    expect_error("mnist", TU_CORRUPT, "train-images-idx3-ubyte': it has 1 dimensions: expected 3");
    make_folder("cifar-10-batches-bin");
    write_file("cifar-10-batches-bin/data_batch_1.bin", zeros, 3073);
    expect_error("cifar10", TU_CORRUPT,
                 "data_batch_1.bin' has 3073 bytes: expected 30730000; it is truncated");
    assert_int_equal(access(in_folder("mnist.tutti"), F_OK), -1);
    assert_int_equal(access(in_folder("cifar10.tutti"), F_OK), -1);
    assert_int_equal(access(in_folder(".work"), F_OK), -1);
}

static tu_status read_invalid_label(void *context, tu_split split, int64_t index, void *image,
                                    int32_t *label) {
    (void)context;
    (void)split;
    memset(image, 0, 4);
    *label = (int32_t)index;
    return TU_OK;
}

static tu_status read_infinite_pixel(void *context, tu_split split, int64_t index, void *image,
                                     int32_t *label) {
    (void)context, (void)split;
    const float pixels[4] = {0, 0, 0, index == 2 ? INFINITY : 1};
    memcpy(image, pixels, sizeof pixels);
    *label = 0;
    return TU_OK;
}

static void sources_are_checked_when_they_are_opened(void **state) {
    (void)state;
    tu_source source = {.struct_size = sizeof source,
                        .name = "own",
                        .count = {4, 0},
                        .height = 2,
                        .width = 2,
                        .channels = 1,
                        .dtype = TU_U8,
                        .classes = 3,
                        .read = read_invalid_label};
    tu_dataset *set = NULL;
    assert_int_equal(tu_dataset_from(&source, &set), TU_CORRUPT);
    assert_string_equal(tu_message(),
                        "data set 'own': image 3 of the training split has label 3: expected 0 to 2");
    source.channels = 5;
    assert_int_equal(tu_dataset_from(&source, &set), TU_INVALID);
    source.channels = 1;
    source.dtype = TU_F64;
    assert_int_equal(tu_dataset_from(&source, &set), TU_INVALID);
    source.dtype = TU_F32;
    source.read = read_infinite_pixel;
    assert_int_equal(tu_dataset_from(&source, &set), TU_INVALID);
    assert_string_equal(
        tu_message(), "data source 'own': training image 2 has a pixel that is inf: expected finite numbers");
    source.dtype = TU_U8;
    source.read = NULL;
    assert_int_equal(tu_dataset_from(&source, &set), TU_INVALID);
    assert_null(set);
}

/* SHA-256 of "0123456789" */
#define DIGITS_SHA256 "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"

static void a_download_continues_a_partial_file(void **state) {
    (void)state;
    char url[300];
    write_file("source", "0123456789", 10);
    snprintf(url, sizeof url, "file://%s", in_folder("source"));
    write_file("x.part", "01234", 5);
    tu_status status = tu__fetch(url, DIGITS_SHA256, in_folder("x.part"), in_folder("x"), NULL);
    if (status == TU_UNSUPPORTED) skip(); /* this build has no libcurl */
    assert_int_equal(status, TU_OK);
    size_t size;
    char *text = (char *)read_file("x", &size);
    assert_int_equal(size, 10);
    assert_memory_equal(text, "0123456789", 10);
    free(text);
    /* A partial file of something else is deleted, and the whole file downloaded. */
    write_file("y.part", "wrong", 5);
    assert_int_equal(tu__fetch(url, DIGITS_SHA256, in_folder("y.part"), in_folder("y"), NULL), TU_OK);
    /* A complete partial file needs no download. */
    write_file("z.part", "0123456789", 10);
    assert_int_equal(tu__fetch("file:///none", DIGITS_SHA256, in_folder("z.part"), in_folder("z"), NULL),
                     TU_OK);
    assert_int_equal(access(in_folder("z.part"), F_OK), -1);
    /* A file with a wrong digest is deleted, under both names. */
    assert_int_equal(tu__fetch(url, "00", in_folder("w.part"), in_folder("w"), NULL), TU_CORRUPT);
    assert_int_equal(access(in_folder("w.part"), F_OK), -1);
    assert_int_equal(access(in_folder("w"), F_OK), -1);
    assert_int_equal(tu__fetch("file:///none", "00", in_folder("v.part"), in_folder("v"), NULL), TU_IO);
    assert_int_equal(access(in_folder("v.part"), F_OK), -1);
}

static int free_and_remove(void **state) {
    tu__fit_free_cache();
    return remove_data_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generated_data_set_has_its_digest_and_means),
        cmocka_unit_test(a_folder_with_a_subfolder_per_class_is_a_data_set),
        cmocka_unit_test(a_changed_folder_is_converted_again),
        cmocka_unit_test(files_of_a_killed_conversion_are_removed),
        cmocka_unit_test(train_and_test_folders_define_the_splits),
        cmocka_unit_test(invalid_folders_fail),
        cmocka_unit_test(only_damaged_images_are_skipped),
        cmocka_unit_test(images_are_averaged_when_they_shrink),
        cmocka_unit_test(the_centre_of_a_long_image_is_cropped),
        cmocka_unit_test(a_pair_of_arrays_is_a_data_set),
        cmocka_unit_test(float_arrays_are_unchanged),
        cmocka_unit_test(invalid_arrays_fail),
        cmocka_unit_test(unknown_names_fail_with_a_suggestion),
        cmocka_unit_test(wrong_official_files_fail),
        cmocka_unit_test(sources_are_checked_when_they_are_opened),
        cmocka_unit_test(a_download_continues_a_partial_file),
    };
    return cmocka_run_group_tests(tests, make_data_folder, free_and_remove);
}
