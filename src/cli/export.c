/* `tutti export RUN FILE`: writes a trained network as a model file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/train.h>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/task_progress.h"

enum { LONGEST_LICENCE = 1 << 20 };

struct export_values {
    const char *checkpoint, *data, *name, *licence;
    bool offline, json;
};

static const struct export_values defaults = {.checkpoint = "last"};

static const struct cli_option options[] = {
    CLI_STRING(struct export_values, checkpoint, "checkpoint", 'c', "NAME", CLI_HELP_CHECKPOINT),
    CLI_STRING(struct export_values, name, "name", 0, "NAME",
               "name of the model (default: that of the network)"),
    CLI_STRING(struct export_values, licence, "licence", 0, "FILE", "text file with a licence to include"),
    CLI_STRING(struct export_values, data, "data", 'd', "SET",
               CLI_HELP_DATA " (default: the data set of the run)"),
    CLI_FLAG(struct export_values, offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_FLAG(struct export_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

/* Reads a text file, to be freed with tu_bytes_free. Returns NULL after it has printed an error. */
static char *read_licence(const char *path, int *outcome) {
    void *text;
    size_t length;
    *outcome = CLI_DONE;
    if (tu_file_read(path, LONGEST_LICENCE, &text, &length) != TU_OK)
        *outcome = cli_input_error("export: %s", tu_message());
    else if (memchr(text, 0, length))
        *outcome =
            cli_input_error("export: the licence '%s' is not a text file: it contains a NUL byte", path);
    if (*outcome == CLI_DONE) return text;
    tu_bytes_free(text);
    return NULL;
}

static void print_text(const char *path, const tu_export_result *r) {
    printf("%-10s  %s, %" PRIu64 " bytes\n", "model file", path, r->bytes);
    if (r->members) printf("%-10s  %" PRId64 " members, averaged\n", "ensemble", r->members);
    printf("%-10s  after step %" PRId64 "\n", "checkpoint", r->step);
    printf("%-10s  %" PRId64 "\n", "parameters", r->parameters);
    printf("%-10s  %" PRId64 " golden samples; compare with: tutti verify %s\n", "samples", r->golden, path);
    printf("%-10s  %s\n", "SHA-256", r->digest);
}

static void print_json(const char *path, const tu_export_result *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "file", path);
    tu_json_u64(&json, "bytes", r->bytes);
    if (r->members) tu_json_i64(&json, "members", r->members);
    tu_json_i64(&json, "step", r->step);
    tu_json_i64(&json, "parameters", r->parameters);
    tu_json_i64(&json, "golden", r->golden);
    tu_json_string(&json, "sha256", r->digest);
    tu_json_end_object(&json);
    putchar('\n');
}

static int run(const void *given, int operand_count, char **operands) {
    (void)operand_count;
    const struct export_values *v = given;
    int outcome = CLI_DONE;
    char *licence = v->licence ? read_licence(v->licence, &outcome) : NULL;
    if (outcome != CLI_DONE) return outcome;
    struct cli_task task = {.terminal = isatty(STDERR_FILENO), .percent = -1};
    tu_export_result result = TU_SIZED(tu_export_result);
    tu_status status = tu_export(operands[0], operands[1], &result, .checkpoint = v->checkpoint,
                                 .name = v->name, .licence = licence, .data = v->data, .offline = v->offline,
                                 .progress = task.terminal ? cli_show_task : NULL, .context = &task);
    cli_end_task(&task);
    tu_bytes_free(licence);
    if (status == TU_OK) (v->json ? print_json : print_text)(operands[1], &result);
    return cli_report(status);
}

const struct cli_command cli_command_export = {
    .name = "export",
    .summary = "writes a trained network as a model file",
    .usage = "RUN FILE [OPTIONS]",
    .description = "Writes the network of the run folder RUN as the model file FILE, for the\n"
                   "commands run, predict and verify, and for C programs (tutti/model.h). It is a\n"
                   "safetensors file with graph, weights, preprocessing, labels, metrics, and golden\n"
                   "samples: test images with the outputs that the reference device computes. An\n"
                   "ensemble becomes one model that averages the probabilities of its members.",
    .options = options,
    .values_size = sizeof(struct export_values),
    .defaults = &defaults,
    .min_operands = 2,
    .max_operands = 2,
    .run = run,
};
