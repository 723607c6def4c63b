/* `tutti data get NAME` downloads a data set; `tutti data tokens` converts texts (data_tokens.c); `tutti data info SET` verifies and describes one; `tutti data sample
 * SET` writes a few of its images as files. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/command.h>
#include <tutti/data.h>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/data_columns.h"
#include "cli/data_tokens.h"
#include "cli/task_progress.h"

struct data_values {
    bool json, offline, skip_bad;
    const char *ignore_label;
    int64_t height, width, seed, count;
    double test_share;
    const char *out, *tokenizer, *header;
};

static const struct cli_option options[] = {
    CLI_FLAG(struct data_values, json, "json", 0, CLI_HELP_JSON " (and no progress)"),
    CLI_FLAG(struct data_values, offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_INT(struct data_values, height, "height", 0, "PIXELS", 1, 16384,
            "scale the images of a folder to this height"),
    CLI_INT(struct data_values, width, "width", 0, "PIXELS", 1, 16384,
            "scale the images of a folder to this width"),
    CLI_DOUBLE(struct data_values, test_share, "test-share", 0, "SHARE", 0.0001, 0.9999,
               "fraction of images in the test split"),
    CLI_FLAG(struct data_values, skip_bad, "skip-bad", 0, CLI_HELP_SKIP_BAD),
    CLI_STRING(struct data_values, ignore_label, "ignore-label", 0, "N", CLI_HELP_IGNORE_LABEL),
    CLI_INT(struct data_values, seed, "seed", 0, "N", 0, INT64_MAX,
            CLI_HELP_SEED " (choice of test images and samples)"),
    CLI_INT(struct data_values, count, "count", 'n', "N", 1, 10000, "number of samples to write"),
    CLI_STRING(struct data_values, out, "out", 'o', "DIR", "folder for the samples, or token file"),
    CLI_STRING(struct data_values, header, "header", 0, "YES|NO", CLI_HELP_HEADER " (default: yes)"),
    CLI_STRING(struct data_values, tokenizer, "tokenizer", 0, "NAME", CLI_HELP_TOKENIZER),
    {0},
};

static const struct data_values defaults = {
    .height = 64, .width = 64, .test_share = 0.1, .count = 5, .tokenizer = "bytes"};

/* ---- get ---- */

static int run_get(const char *name, const struct data_values *values, tu_dataset_options *o,
                   const struct cli_task *p) {
    char path[4096];
    tu_status status = tu_data_get_with(name, path, o);
    cli_end_task(p);
    if (status != TU_OK) return cli_report(status);
    if (!values->json) {
        printf("%s\n", path);
        return CLI_DONE;
    }
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "name", name);
    tu_json_string(&json, "path", path);
    tu_json_end_object(&json);
    putchar('\n');
    return CLI_DONE;
}

/* ---- info ---- */

/* Reads all images of a split and counts them by class. Returns NULL if memory runs out or a read fails. */
static int64_t *count_classes(const tu_dataset *set, const tu_dataset_info *info, tu_split split) {
    size_t bytes = (size_t)(info->height * info->width * info->channels) * tu_dtype_size(info->dtype);
    int64_t *counts = calloc((size_t)info->classes, sizeof *counts);
    void *image = malloc(bytes);
    bool ok = counts && image;
    for (int64_t i = 0; ok && i < info->count[split]; i++) {
        int32_t label;
        ok = tu_dataset_read(set, split, i, image, &label) == TU_OK;
        if (ok) counts[label]++;
    }
    free(image);
    if (ok) return counts;
    free(counts);
    return NULL;
}

static void print_channels(const char *title, const double *numbers, int64_t count) {
    printf("%-10s", title);
    for (int64_t i = 0; i < count; i++) printf(" %.5f", numbers[i]);
    putchar('\n');
}

/* `label` is the value of --ignore-label, or NULL: then the images were left out when the data file was written. */
static void print_table(const tu_dataset_info *info, int64_t *const counts[2], const char *label) {
    printf("%-10s %s\n", "name", info->name);
    printf("%-10s %s\n", "origin", info->origin);
    printf("%-10s %" PRId64 " training, %" PRId64 " test\n", "images", info->count[TU_TRAIN],
           info->count[TU_TEST]);
    if (info->validation)
        printf("%-10s the last %" PRId64 " training images, as the data set defines\n", "validation",
               info->validation);
    if (info->skipped) printf("%-10s %" PRId64 " damaged images\n", "left out", info->skipped);
    if (info->ignored)
        printf("%-10s %" PRId64 " images with %s%s\n", "left out", info->ignored,
               label ? "label " : "one label", label ? label : "");
    printf("%-10s %" PRId64 " x %" PRId64 " x %" PRId64 ", %s\n", "shape", info->height, info->width,
           info->channels, tu_dtype_name(info->dtype));
    print_channels("mean", info->mean, info->channels);
    print_channels("deviation", info->deviation, info->channels);
    printf("%-10s %s\n\n", "digest", info->digest);
    printf("%8s  %8s  %s\n", "train", "test", "class");
    for (int64_t i = 0; i < info->classes; i++)
        printf("%8" PRId64 "  %8" PRId64 "  %s\n", counts[TU_TRAIN][i], counts[TU_TEST][i],
               info->class_names[i]);
}

static void put_numbers(tu_json *json, const char *key, const double *numbers, int64_t count) {
    tu_json_begin_array(json, key);
    for (int64_t i = 0; i < count; i++) tu_json_f64(json, NULL, numbers[i]);
    tu_json_end_array(json);
}

static void print_json(const tu_dataset_info *info, int64_t *const counts[2]) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "name", info->name);
    tu_json_string(&json, "origin", info->origin);
    tu_json_i64(&json, "train", info->count[TU_TRAIN]);
    tu_json_i64(&json, "test", info->count[TU_TEST]);
    if (info->validation) tu_json_i64(&json, "validation", info->validation);
    if (info->skipped) tu_json_i64(&json, "skipped", info->skipped);
    if (info->ignored) tu_json_i64(&json, "ignored", info->ignored);
    tu_json_i64(&json, "height", info->height);
    tu_json_i64(&json, "width", info->width);
    tu_json_i64(&json, "channels", info->channels);
    tu_json_string(&json, "type", tu_dtype_name(info->dtype));
    put_numbers(&json, "mean", info->mean, info->channels);
    put_numbers(&json, "deviation", info->deviation, info->channels);
    tu_json_string(&json, "digest", info->digest);
    tu_json_begin_array(&json, "classes");
    for (int64_t i = 0; i < info->classes; i++) {
        tu_json_begin_object(&json, NULL);
        tu_json_string(&json, "name", info->class_names[i]);
        tu_json_i64(&json, "train", counts[TU_TRAIN][i]);
        tu_json_i64(&json, "test", counts[TU_TEST][i]);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}

static int describe(const tu_dataset *set, const struct data_values *values) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu_status status = tu_dataset_describe(set, &info);
    if (status != TU_OK) return cli_report(status);
    if (info.notice) fprintf(stderr, "tutti: notice: %s\n", info.notice);
    status = tu_dataset_verify(set);
    if (status != TU_OK) return cli_report(status);
    if (!info.height) return cli_describe_columns(set, &info, values->json);
    int64_t *const counts[2] = {count_classes(set, &info, TU_TRAIN), count_classes(set, &info, TU_TEST)};
    int result = CLI_DONE;
    if (!counts[0] || !counts[1])
        result = cli_fail("out of memory for the counts of %" PRId64 " classes", info.classes);
    else if (values->json)
        print_json(&info, counts);
    else
        print_table(&info, counts, values->ignore_label);
    free(counts[0]);
    free(counts[1]);
    return result;
}

/* Opens a data set. If the val/ subfolder of a folder is invalid, prints a notice and opens the folder without it. */
static tu_status open_set(const char *spec, tu_dataset_options *o, const struct cli_task *p,
                          tu_dataset **set) {
    tu_status status = tu_dataset_open_with(spec, set, o);
    cli_end_task(p);
    char path[4096], notice[1024];
    struct stat attributes;
    int length = snprintf(path, sizeof path, "%s/val", spec);
    if (status == TU_INVALID && length < (int)sizeof path && stat(path, &attributes) == 0) {
        snprintf(notice, sizeof notice, "%s", tu_message());
        o->validation = false;
        status = tu_dataset_open_with(spec, set, o);
        cli_end_task(p);
        if (status == TU_OK) fprintf(stderr, "tutti: notice: %s\n", notice);
    }
    return status;
}

static int run_info(const char *spec, const struct data_values *values, tu_dataset_options *o,
                    const struct cli_task *p) {
    tu_dataset *set;
    tu_status status = open_set(spec, o, p, &set);
    if (status != TU_OK) return cli_report(status);
    int result = describe(set, values);
    tu_dataset_free(set);
    return result;
}

/* ---- sample ---- */

/* Formats OUT/INDEX-CLASS.png; replaces slashes and control characters in the class name by underscores. */
static bool format_path(char path[4096], const char *folder, int64_t index, const char *class) {
    int length = snprintf(path, 4096, "%s/%05" PRId64 "-%.100s.png", folder, index, class);
    if (length < 0 || length >= 4096) return false;
    for (char *c = path + strlen(folder) + 1; *c; c++)
        if (*c == '/' || (unsigned char)*c < ' ') *c = '_';
    return true;
}

static void print_sample(const char *path, int64_t index, const char *class, bool as_json) {
    if (!as_json) {
        printf("%s\n", path);
        return;
    }
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "path", path);
    tu_json_i64(&json, "index", index);
    tu_json_string(&json, "class", class);
    tu_json_end_object(&json);
    putchar('\n');
}

static int write_samples(const tu_dataset *set, tu_loader *loader, const struct data_values *values) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu_batch batch = TU_SIZED(tu_batch);
    char path[4096];
    tu_status status = tu_dataset_describe(set, &info);
    if (status != TU_OK) return cli_report(status);
    for (int64_t i = 0; i < values->count; i++) {
        status = tu_loader_next(loader, &batch);
        if (status != TU_OK) return cli_report(status);
        const char *class = info.class_names[batch.labels[0]];
        if (!format_path(path, values->out, batch.indices[0], class))
            return cli_input_error("data: --out %s: the path is too long", cli_quote(values->out).text);
        status = tu_dataset_save_image(set, TU_TEST, batch.indices[0], path);
        if (status != TU_OK) return cli_report(status);
        print_sample(path, batch.indices[0], class, values->json);
    }
    return CLI_DONE;
}

/* Writes the samples to the folder. Creates it if it does not exist, and removes it if nothing was written. */
static int write_folder(const tu_dataset *set, const struct data_values *values) {
    tu_loader *loader;
    struct stat attributes;
    tu_status status = tu_loader_new(set, &loader, .split = TU_TEST, .batch = 1, .shuffle = true,
                                     .seed = (uint64_t)values->seed, .threads = -1);
    if (status != TU_OK) return cli_report(status);
    bool created = mkdir(values->out, 0777) == 0;
    int reason = errno, result;
    if (!created && reason != EEXIST)
        result = cli_fail("cannot create the folder %s: %s; choose another one with --out",
                          cli_quote(values->out).text, strerror(reason));
    else if (!created && (stat(values->out, &attributes) != 0 || !S_ISDIR(attributes.st_mode)))
        result = cli_input_error("data: --out %s is a file: expected a folder or a new name",
                                 cli_quote(values->out).text);
    else
        result = write_samples(set, loader, values);
    if (created && result != CLI_DONE) rmdir(values->out);
    tu_loader_free(loader);
    return result;
}

static int run_sample(const char *spec, const struct data_values *given, tu_dataset_options *o,
                      const struct cli_task *p) {
    struct data_values with_folder = *given;
    const struct data_values *values = &with_folder;
    if (!with_folder.out) with_folder.out = "samples";
    tu_dataset *set;
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu_status status = open_set(spec, o, p, &set);
    if (status == TU_OK) status = tu_dataset_describe(set, &info);
    if (status != TU_OK) return cli_report(status);
    int result = !info.height ? cli_input_error("data: sample writes pictures, and data set %s has none",
                                                cli_quote(info.name).text)
                 : values->count <= info.count[TU_TEST]
                     ? write_folder(set, values)
                     : cli_input_error("data: --count %" PRId64 ": expected at most %" PRId64
                                       ", the number of test images of '%s'",
                                       values->count, info.count[TU_TEST], info.name);
    tu_dataset_free(set);
    return result;
}

/* ---- The command ---- */

static const struct subcommand {
    const char *name, *expected; /* expected: description of its operand */
    int (*run)(const char *operand, const struct data_values *values, tu_dataset_options *o,
               const struct cli_task *p);
} subcommands[] = {
    {"get", "cifar10, mnist or gpt2", run_get},
    {"info", "a name or a path: cifar10, mnist, generated, FOLDER, ...", run_info},
    {"sample", "a name or a path: cifar10, mnist, generated, FOLDER, ...", run_sample},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof *subcommands };

static const struct subcommand *find_subcommand(const char *name) {
    const char *names[SUBCOMMAND_COUNT];
    for (int i = 0; i < SUBCOMMAND_COUNT; i++) {
        if (strcmp(name, subcommands[i].name) == 0) return &subcommands[i];
        names[i] = subcommands[i].name;
    }
    cli_input_error("data: unknown subcommand %s: expected get, info, sample or tokens%s",
                    cli_quote(name).text, cli_did_you_mean(name, names, SUBCOMMAND_COUNT).text);
    return NULL;
}

/* Parses any whole number: labels to ignore may be negative or larger than the number of classes. */
static bool parse_label(const char *text, int64_t *label) {
    char *end;
    errno = 0;
    *label = strtoimax(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0) return true;
    cli_input_error("data: --ignore-label %s: expected a whole number", cli_quote(text).text);
    return false;
}

/* ---- tokens ---- */

static int run_tokens(const struct data_values *values, const tu_dataset_options *o, int count,
                      char **files) {
    if (count < 1) return cli_input_error("data tokens: the text is missing: expected files in UTF-8");
    if (!values->out)
        return cli_input_error(
            "data tokens: --out is missing: expected the name of the token file, such as text.tutti");
    return data_tokens(&(struct data_tokens_settings){.tokenizer = values->tokenizer,
                                                      .out = values->out,
                                                      .test_share = values->test_share,
                                                      .json = values->json,
                                                      .options = o},
                       count, files);
}

static int run(const void *given, int operand_count, char **operands) {
    const struct data_values *values = given;
    struct cli_task progress = {.terminal = isatty(STDERR_FILENO), .percent = -1};
    tu_dataset_options o = {.struct_size = sizeof o,
                            .height = values->height,
                            .width = values->width,
                            .test_share = values->test_share,
                            .seed = (uint64_t)values->seed,
                            .offline = values->offline,
                            .validation = true,
                            .skip_bad = values->skip_bad,
                            .progress = values->json ? NULL : cli_show_task,
                            .context = &progress};
    if (strcmp(operands[0], "tokens") == 0) return run_tokens(values, &o, operand_count - 1, operands + 1);
    const struct subcommand *subcommand = find_subcommand(operands[0]);
    if (!subcommand) return CLI_BAD_INPUT;
    int64_t label;
    if (values->ignore_label && !parse_label(values->ignore_label, &label)) return CLI_BAD_INPUT;
    if (values->ignore_label) o.ignore_label = &label;
    o.header = values->header;
    if (operand_count < 2)
        return cli_input_error("data %s: the data set is missing: expected %s", subcommand->name,
                               subcommand->expected);
    if (operand_count > 2)
        return cli_input_error("data %s: unexpected operand %s: expected one data set", subcommand->name,
                               cli_quote(operands[2]).text);
    return subcommand->run(operands[1], values, &o, &progress);
}

const struct cli_command cli_command_data = {
    .name = "data",
    .summary = "downloads, describes and samples data sets of labelled images",
    .usage = "get NAME | info SET | sample SET | tokens FILE... [OPTIONS]",
    .description = "get downloads cifar10, mnist or the tokenizer gpt2 into the cache ($TUTTI_DATA,\n"
                   "or ~/.cache/tutti) unless it is there, verifies it and prints the path of\n"
                   "its file.\n"
                   "info verifies every byte of a data set and describes it.\n"
                   "sample writes test images as PNG files, named by index and class, and prints\n"
                   "their paths.\n"
                   "tokens writes a token file of texts in UTF-8, for networks such as char-gpt.\n"
                   "SET is cifar10, mnist, generated, FOLDER (with one subfolder of PNG,\n"
                   "JPEG, GIF or WebP files per class), FILE.csv or IMAGES.npy,LABELS.npy.",
    .options = options,
    .values_size = sizeof(struct data_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 100000,
    .run = run,
};
