/* `tutti predict RUN FILE...`: classifies images with a trained network. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/train.h>

#include "cli/command.h"
#include "cli/common_options.h"

enum { BAR_WIDTH = 30, LONGEST_NAME = 24 };

struct predict_values {
    const char *checkpoint, *devices, *out, *header;
    int64_t threads, top;
    bool json;
};

static const struct predict_values defaults = {.checkpoint = "last", .top = 5};

static const struct cli_option options[] = {
    CLI_INT(struct predict_values, top, "top", 'n', "N", 1, 1000, "number of classes to print per image"),
    CLI_STRING(struct predict_values, checkpoint, "checkpoint", 'c', "NAME", CLI_HELP_CHECKPOINT),
    CLI_STRING(struct predict_values, devices, "devices", 0, "LIST",
               CLI_HELP_DEVICES " (default: those of the run; for a model file, a GPU, else the CPU)"),
    CLI_INT(struct predict_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_STRING(struct predict_values, out, "out", 'o', "FILE",
               "CSV file for the predictions of rows (default: standard output)"),
    CLI_STRING(struct predict_values, header, "header", 0, "YES|NO",
               CLI_HELP_HEADER " (default: as in the table of the run)"),
    CLI_FLAG(struct predict_values, json, "json", 0, CLI_HELP_JSON " (one per image, one per line)"),
    {0},
};

struct prediction {
    tu_predictor *predictor;
    int64_t classes, top;
    const char *const *names;
    float *probabilities;
    int64_t *order; /* classes by decreasing probability; only the first `top` are sorted */
};

/* Sorts the `top` most probable classes to the front of `order`. Among equal ones the lower class comes first. */
static void sort_top_classes(const struct prediction *p) {
    for (int64_t i = 0; i < p->classes; i++) p->order[i] = i;
    for (int64_t i = 0; i < p->top; i++) {
        int64_t best = i;
        for (int64_t k = i + 1; k < p->classes; k++)
            if (p->probabilities[p->order[k]] > p->probabilities[p->order[best]]) best = k;
        int64_t class = p->order[best];
        memmove(p->order + i + 1, p->order + i, (size_t)(best - i) * sizeof *p->order);
        p->order[i] = class;
    }
}

static bool continues_character(char byte) {
    return ((unsigned char)byte & 0xC0) == 0x80; /* UTF-8 */
}

/* Prints the first LONGEST_NAME characters of a name, and spaces up to `width`; returns its width. Without a stream it only
 * measures. */
static int put_name(FILE *out, const char *name, int width) {
    int characters = 0;
    size_t length = 0;
    for (; name[length] && (characters < LONGEST_NAME || continues_character(name[length])); length++)
        characters += !continues_character(name[length]);
    if (out) fprintf(out, "%.*s%*s", (int)length, name, width > characters ? width - characters : 0, "");
    return characters;
}

static void print_text(const struct prediction *p, const char *file) {
    int width = 1;
    for (int64_t i = 0; i < p->top; i++) {
        int characters = put_name(NULL, p->names[p->order[i]], 0);
        if (characters > width) width = characters;
    }
    printf("%s\n", file);
    for (int64_t i = 0; i < p->top; i++) {
        float probability = p->probabilities[p->order[i]];
        int bar = (int)lround(BAR_WIDTH * (double)probability);
        fputs("  ", stdout);
        put_name(stdout, p->names[p->order[i]], width);
        printf("  %5.1f%%  %.*s\n", 100 * (double)probability, bar, "##############################");
    }
}

static void print_json(const struct prediction *p, const char *file) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "file", file);
    tu_json_begin_array(&json, "classes");
    for (int64_t i = 0; i < p->top; i++) {
        tu_json_begin_object(&json, NULL);
        tu_json_string(&json, "name", p->names[p->order[i]]);
        tu_json_f64(&json, "probability", (double)p->probabilities[p->order[i]]);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}

/* Classifies all files. Reports a file that cannot be read and continues with the next. */
static int predict_all(struct prediction *p, bool json, int count, char **files) {
    int outcome = CLI_DONE;
    for (int i = 0; i < count; i++) {
        tu_status status = tu_predict(p->predictor, files[i], p->probabilities);
        if (status == TU_OK) {
            sort_top_classes(p);
            (json ? print_json : print_text)(p, files[i]);
            continue;
        }
        int failed = cli_report(status);
        if (failed > outcome) outcome = failed;
    }
    return outcome;
}

static bool is_table(const char *path) {
    size_t length = strlen(path);
    return length > 4 && (strcmp(path + length - 4, ".csv") == 0 || strcmp(path + length - 4, ".tsv") == 0);
}

/* Predicts the rows of one CSV file. */
static int predict_table(const struct predict_values *v, const char *run, int count, char **files) {
    tu_table_prediction result = TU_SIZED(tu_table_prediction);
    if (count > 1)
        return cli_input_error("predict: %s and %d more: expected one CSV file, or images",
                               cli_quote(files[0]).text, count - 1);
    tu_status status =
        tu_predict_table(run, files[0], v->out ? v->out : "/dev/stdout", &result, .checkpoint = v->checkpoint,
                         .header = v->header, .devices = v->devices, .threads = (int)v->threads);
    if (status != TU_OK) return cli_report(status);
    if (result.unseen)
        fprintf(stderr, "tutti: notice: %s: it counts as missing, like %" PRId64 " cells in all\n",
                result.first_unseen, result.unseen);
    if (v->out && v->json)
        printf("{\"rows\":%" PRId64 ",\"unseen\":%" PRId64 "}\n", result.rows, result.unseen);
    else if (v->out)
        printf("%-10s  %s, %" PRId64 " rows\n", "written", v->out, result.rows);
    return CLI_DONE;
}

static int run(const void *given, int operand_count, char **operands) {
    const struct predict_values *v = given;
    struct prediction p = {0};
    if (is_table(operands[1])) return predict_table(v, operands[0], operand_count - 1, operands + 1);
    if (v->out)
        return cli_input_error("predict: --out needs a CSV file of rows, not %s",
                               cli_quote(operands[1]).text);
    tu_status status = tu_predictor_new(operands[0], &p.predictor, .checkpoint = v->checkpoint,
                                        .devices = v->devices, .threads = (int)v->threads);
    if (status != TU_OK) return cli_report(status);
    p.classes = tu_predictor_classes(p.predictor, &p.names);
    p.top = v->top < p.classes ? v->top : p.classes;
    p.probabilities = calloc((size_t)p.classes, sizeof *p.probabilities);
    p.order = calloc((size_t)p.classes, sizeof *p.order);
    int outcome = p.probabilities && p.order ? predict_all(&p, v->json, operand_count - 1, operands + 1)
                                             : cli_fail("predict: out of memory");
    free(p.probabilities);
    free(p.order);
    tu_predictor_free(p.predictor);
    return outcome;
}

const struct cli_command cli_command_predict = {
    .name = "predict",
    .summary = "classifies images, or predicts rows of a table, with a trained network",
    .usage = "RUN FILE... [OPTIONS]",
    .description = "With a CSV file, writes a row of predictions for each of its rows.\n"
                   "Else classifies images (PNG, JPEG, GIF or WebP files of any size) with the\n"
                   "network of RUN, a run folder or a model file that 'tutti export' has written.\n"
                   "Prints the most probable classes of each image with their probabilities,\n"
                   "averaged over the members of an ensemble.",
    .options = options,
    .values_size = sizeof(struct predict_values),
    .defaults = &defaults,
    .min_operands = 2,
    .max_operands = INT_MAX,
    .run = run,
};
