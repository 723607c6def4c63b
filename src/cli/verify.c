/* `tutti verify FILE`: checks a model file, and computes its golden samples on the devices of this machine. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/model.h>

#include "cli/command.h"
#include "cli/common_options.h"

struct verify_values {
    const char *devices;
    int64_t threads;
    bool json;
};

static const struct cli_option options[] = {
    CLI_STRING(struct verify_values, devices, "devices", 0, "LIST",
               CLI_HELP_DEVICES " (default: all that can be used, and ref)"),
    CLI_INT(struct verify_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_FLAG(struct verify_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

static const char *outcome_name(tu_verify_outcome outcome) {
    return outcome == TU_VERIFY_PASSED ? "passed" : outcome == TU_VERIFY_FAILED ? "FAILED" : "skipped";
}

/* ---- Text ---- */

static void print_check(void *context, const tu_verify_check *check) {
    bool *has_heading = context;
    char difference[32] = "-", limit[32] = "-";
    if (!*has_heading)
        printf("%-8s  %-9s  %-12s  %-10s  %-18s  %s\n", "device", "precision", "output", "difference",
               "bound", "result");
    *has_heading = true;
    if (*check->output) snprintf(difference, sizeof difference, "%.2g", check->difference);
    if (*check->output && check->limit > 0)
        snprintf(limit, sizeof limit, "%.2g %s", check->limit, check->relative ? "relative" : "absolute");
    else if (*check->output && check->outcome != TU_VERIFY_SKIPPED)
        snprintf(limit, sizeof limit, "equal bits");
    printf("%-8s  %-9s  %-12s  %-10s  %-18s  %s%s%s%s\n", check->device, check->precision, check->output,
           difference, limit, outcome_name(check->outcome), check->reason ? ": " : "",
           check->reason ? check->reason : "",
           check->any_batch && !check->reason ? ", equal bits in any batch" : "");
    fflush(stdout);
}

static void print_totals(const tu_verify_result *r) {
    printf("\n%" PRId64 " tensors with correct digests, %" PRId64 " golden samples: %" PRId64
           " outputs passed, %" PRId64 " failed, %" PRId64 " skipped\n",
           r->tensors, r->samples, r->passed, r->failed, r->skipped);
}

/* ---- JSON ---- */

static void put_check(void *context, const tu_verify_check *check) {
    tu_json *json = context;
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "device", check->device);
    tu_json_string(json, "precision", check->precision);
    tu_json_string(json, "output", check->output);
    tu_json_string(json, "result",
                   check->outcome == TU_VERIFY_FAILED ? "failed" : outcome_name(check->outcome));
    tu_json_f64(json, "difference", check->difference);
    tu_json_f64(json, check->relative ? "relative_limit" : "limit", check->limit);
    tu_json_bool(json, "any_batch", check->any_batch);
    if (check->reason) tu_json_string(json, "reason", check->reason);
    tu_json_end_object(json);
}

static void put_totals(tu_json *json, const tu_verify_result *r) {
    tu_json_i64(json, "tensors", r->tensors);
    tu_json_i64(json, "samples", r->samples);
    tu_json_u64(json, "bytes", r->bytes);
    tu_json_i64(json, "passed", r->passed);
    tu_json_i64(json, "failed", r->failed);
    tu_json_i64(json, "skipped", r->skipped);
}

/* ---- The command ---- */

static tu_status verify_as_text(const struct verify_values *v, const char *path, tu_verify_result *result) {
    bool has_heading = false;
    tu_status status = tu_model_verify(path, result, .devices = v->devices, .threads = (int)v->threads,
                                       .on_check = print_check, .context = &has_heading);
    if (status == TU_OK) print_totals(result);
    return status;
}

/* Prints nothing if the file cannot be verified: the object is written to memory first. */
static tu_status verify_as_json(const struct verify_values *v, const char *path, tu_verify_result *result) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return tu_fail(TU_NO_MEMORY, "verify: out of memory");
    tu_json json = tu_json_to_file(memory);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "file", path);
    tu_json_begin_array(&json, "checks");
    tu_status status = tu_model_verify(path, result, .devices = v->devices, .threads = (int)v->threads,
                                       .on_check = put_check, .context = &json);
    tu_json_end_array(&json);
    put_totals(&json, result);
    tu_json_end_object(&json);
    fclose(memory);
    if (status == TU_OK) puts(text);
    free(text);
    return status;
}

static int run(const void *given, int operand_count, char **operands) {
    (void)operand_count;
    const struct verify_values *v = given;
    tu_verify_result result = TU_SIZED(tu_verify_result);
    tu_status status = (v->json ? verify_as_json : verify_as_text)(v, operands[0], &result);
    if (status != TU_OK) return cli_report(status);
    if (result.failed == 0) return CLI_DONE;
    return cli_fail("verify: %" PRId64 " of %" PRId64 " outputs of '%s' are not as the file states",
                    result.failed, result.failed + result.passed, operands[0]);
}

const struct cli_command cli_command_verify = {
    .name = "verify",
    .summary = "checks a model file on the devices of this machine",
    .usage = "FILE [OPTIONS]",
    .description = "Checks the digest of every tensor of the model file FILE. Then computes its\n"
                   "golden samples on each device, in each precision, and compares the outputs with\n"
                   "the golden ones: on the reference device the bits must be equal, elsewhere the\n"
                   "outputs must be within the bounds that the file states. On a CPU the bits must\n"
                   "not depend on the batch in which a sample is computed. Exits with status 1 if\n"
                   "an output fails.",
    .options = options,
    .values_size = sizeof(struct verify_values),
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
