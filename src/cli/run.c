/* `tutti run FILE INPUT.npy`: computes an output of a model for an array of samples. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/data.h>
#include <tutti/model.h>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/placement_notice.h"

enum { MAX_PORTS = 64 }; /* inputs, and outputs */

struct run_values {
    const char *output, *out, *devices;
    int64_t threads, batch;
    int precision; /* -1: not given */
};

static const struct run_values defaults = {.batch = 32, .precision = -1};

static const struct cli_option options[] = {
    CLI_STRING(struct run_values, output, "output", 0, "NAME", "output to compute (default: the first)"),
    CLI_STRING(struct run_values, out, "out", 'o', "FILE", ".npy file for the output (default: print it)"),
    CLI_STRING(struct run_values, devices, "devices", 0, "LIST",
               CLI_HELP_DEVICES " (one; default: a GPU, else the CPU)"),
    CLI_CHOICE(struct run_values, precision, "precision", 'p', "TYPE", cli_precisions,
               CLI_HELP_PRECISION " (default: f32)"),
    CLI_INT(struct run_values, batch, "batch", 'b', "N", 1, 1048576, CLI_HELP_BATCH " (at most)"),
    CLI_INT(struct run_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    {0},
};

/* The arrays of one call. */
struct arrays {
    tu_model *model;
    size_t count; /* of feeds */
    int64_t samples;
    tu_model_feed feeds[MAX_PORTS];
    void *data[MAX_PORTS]; /* of the feeds: to be freed */
    tu_model_fetch fetch;
};

/* ---- Inputs ---- */

/* Returns the type of so many samples. */
static tu_type with_samples(tu_type row, int64_t samples) {
    tu_type type = {.dtype = row.dtype, .shape.rank = row.shape.rank + 1, .shape.dim = {samples}};
    for (int64_t i = 0; i < row.shape.rank; i++) type.shape.dim[i + 1] = row.shape.dim[i];
    return type;
}

/* Splits "NAME=FILE". Without "=" the name is that of the model's only input. */
static tu_status split_operand(const struct arrays *a, const char *operand, char *name, size_t size,
                               const char **path) {
    const char *equals = strchr(operand, '='), *first = NULL;
    *path = equals ? equals + 1 : operand;
    if (equals && (size_t)(equals - operand) < size) {
        snprintf(name, size, "%.*s", (int)(equals - operand), operand);
        return TU_OK;
    }
    if (tu_model_input_count(a->model) != 1)
        return tu_fail(TU_INVALID, "the model has %zu inputs: name them, as in images=%s",
                       tu_model_input_count(a->model), operand);
    TU_TRY(tu_model_input(a->model, 0, &first, NULL));
    snprintf(name, size, "%s", first);
    return TU_OK;
}

typedef tu_status (*get_port)(const tu_model *model, size_t index, const char **name, tu_type *type);

static tu_status fail_unknown(const struct arrays *a, const char *kind, size_t count, get_port get,
                              const char *name) {
    const char *names[MAX_PORTS];
    size_t used = 0;
    while (used < count && used < MAX_PORTS && get(a->model, used, &names[used], NULL) == TU_OK) used++;
    return tu_fail(TU_NOT_FOUND, "the model has no %s %s: expected %s", kind, cli_quote(name).text,
                   cli_list(names, (int)used).text);
}

/* Finds the input; its name then lives as long as the model. */
static tu_status find_input(const struct arrays *a, const char *name, const char **found, tu_type *row) {
    size_t count = tu_model_input_count(a->model);
    for (size_t i = 0; i < count; i++) {
        TU_TRY(tu_model_input(a->model, i, found, row));
        if (strcmp(*found, name) == 0) return TU_OK;
    }
    return fail_unknown(a, "input", count, tu_model_input, name);
}

static tu_status load_input(struct arrays *a, const char *operand) {
    char name[256];
    const char *path, *input = "";
    tu_type row = {0}, type = {0};
    TU_TRY(split_operand(a, operand, name, sizeof name, &path));
    TU_TRY(find_input(a, name, &input, &row));
    void **data = &a->data[a->count];
    TU_TRY(tu_npy_load(path, &type, data));
    bool is_one = type.shape.rank == row.shape.rank; /* one sample without the axis of samples */
    int64_t samples = is_one ? 1 : type.shape.dim[0];
    if (is_one && tu_shape_equal(type.shape, row.shape)) type.shape = with_samples(row, 1).shape;
    if (a->count && samples != a->samples)
        return tu_fail(TU_INVALID,
                       "'%s' has %" PRId64 " samples: expected %" PRId64 ", as in the first input", path,
                       samples, a->samples);
    a->samples = samples;
    a->feeds[a->count++] = (tu_model_feed){input, type, *data};
    return TU_OK;
}

/* ---- Output ---- */

static tu_status choose_output(struct arrays *a, const char *name) {
    tu_type row;
    const char *output = "";
    size_t count = tu_model_output_count(a->model);
    for (size_t i = 0; i < count; i++) {
        TU_TRY(tu_model_output(a->model, i, &output, &row));
        if (name && strcmp(name, output) != 0) continue;
        a->fetch = (tu_model_fetch){output, with_samples(row, a->samples), NULL};
        a->fetch.data = calloc(tu_type_bytes(a->fetch.type), 1);
        return a->fetch.data
                   ? TU_OK
                   : tu_fail(TU_NO_MEMORY, "run: out of memory for %" PRId64 " samples", a->samples);
    }
    return fail_unknown(a, "output", count, tu_model_output, name);
}

static void print_number(tu_type type, const void *data, int64_t index) {
    float number;
    switch (type.dtype) {
    case TU_F32: printf("%.9g", (double)((const float *)data)[index]); break;
    case TU_F64: printf("%.17g", ((const double *)data)[index]); break;
    case TU_I8: printf("%d", ((const int8_t *)data)[index]); break;
    case TU_I32: printf("%" PRId32, ((const int32_t *)data)[index]); break;
    case TU_I64: printf("%" PRId64, ((const int64_t *)data)[index]); break;
    case TU_BF16:
        tu_f32_from_bf16((const uint16_t *)data + index, 1, &number), printf("%.4g", (double)number);
        break;
    case TU_F16:
        tu_f32_from_f16((const uint16_t *)data + index, 1, &number), printf("%.5g", (double)number);
        break;
    default: printf("%u", ((const uint8_t *)data)[index]); break;
    }
}

/* One line per sample. */
static void print_output(const tu_model_fetch *fetch, int64_t samples) {
    int64_t row = tu_shape_elements(fetch->type.shape) / samples;
    for (int64_t i = 0; i < samples; i++) {
        for (int64_t k = 0; k < row; k++) {
            if (k) putchar(' ');
            print_number(fetch->type, fetch->data, i * row + k);
        }
        putchar('\n');
    }
}

/* ---- The command ---- */

static tu_status run_arrays(const struct run_values *v, struct arrays *a, int count, char **operands) {
    for (int i = 0; i < count; i++) TU_TRY(load_input(a, operands[i]));
    TU_TRY(choose_output(a, v->output));
    TU_TRY(tu_model_run_named(a->model, a->samples, a->count, a->feeds, 1, &a->fetch));
    if (v->out) return tu_npy_save(v->out, a->fetch.type, a->fetch.data);
    print_output(&a->fetch, a->samples);
    return TU_OK;
}

static int run(const void *given, int operand_count, char **operands) {
    const struct run_values *v = given;
    struct arrays a = {0};
    tu_status status = tu_model_load(operands[0], &a.model, .devices = v->devices, .threads = (int)v->threads,
                                     .max_batch = v->batch,
                                     .precision = v->precision >= 0 ? cli_precisions[v->precision] : NULL);
    if (status == TU_OK) cli_print_model_notice(a.model);
    if (status == TU_OK) status = run_arrays(v, &a, operand_count - 1, operands + 1);
    for (size_t i = 0; i < MAX_PORTS; i++) tu_bytes_free(a.data[i]);
    free(a.fetch.data);
    tu_model_free(a.model);
    return cli_report(status);
}

const struct cli_command cli_command_run = {
    .name = "run",
    .summary = "computes an output of a model file for an array of samples",
    .usage = "FILE [NAME=]INPUT.npy... [OPTIONS]",
    .description = "Loads the model file FILE and computes an output for the samples of INPUT.npy,\n"
                   "a NumPy array [n, ...] of the type of the model's input, or one sample without\n"
                   "the first axis. If the model has several inputs, each is NAME=INPUT.npy. Prints\n"
                   "a line of numbers per sample, or writes a .npy file (--out).",
    .options = options,
    .values_size = sizeof(struct run_values),
    .defaults = &defaults,
    .min_operands = 2,
    .max_operands = 1 + MAX_PORTS,
    .run = run,
};
