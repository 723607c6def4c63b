/* `tutti graph MODEL`: prints a network as text, DOT, JSON or a graph file, the cost of its layers, or its digest. */
#include <stdlib.h>

#include <tutti/command.h>
#include <tutti/run.h>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/network.h"

enum { FORMAT_UNSET = -1, FORMAT_TEXT, FORMAT_DOT, FORMAT_JSON, FORMAT_FILE };
static const char *const formats[] = {"text", "dot", "json", "file", NULL};

struct graph_values {
    int format;
    int64_t batch; /* 0: the model's default */
    bool train, summary, digest;
    const char *out;
    const char *after, *devices;
    int precision, strategy; /* -1: not given */
    int64_t invariant;
};

static const struct cli_option options[] = {
    CLI_CHOICE(struct graph_values, format, "format", 'f', "FORMAT", formats, "output format"),
    CLI_INT(struct graph_values, batch, "batch", 'b', "N", 1, 1048576, CLI_HELP_BATCH " (default: 128)"),
    CLI_FLAG(struct graph_values, train, "train", 0,
             "print the training step instead of the inference graph: training mode, gradients, SGD updates"),
    CLI_FLAG(struct graph_values, summary, "summary", 0,
             "print a table of the layers and their costs instead of the graph"),
    CLI_FLAG(struct graph_values, digest, "digest", 0,
             "print the SHA-256 of what the graph computes instead of the graph"),
    CLI_STRING(
        struct graph_values, after, "after", 0, "PASS",
        "print the compiled graph after this pass: simplify, replicate, precision, place or partition"),
    CLI_STRING(struct graph_values, devices, "devices", 0, "LIST",
               CLI_HELP_DEVICES " (after a pass; default: all)"),
    CLI_CHOICE(struct graph_values, precision, "precision", 'p', "TYPE", cli_precisions,
               CLI_HELP_PRECISION " (after a pass; default: as built)"),
    CLI_CHOICE(struct graph_values, strategy, "strategy", 0, "NAME", cli_strategies,
               CLI_HELP_STRATEGY
               " (after a pass; default: mirrored for several devices of one kind, otherwise single)"),
    CLI_INT(struct graph_values, invariant, "invariant", 0, "K", 0, 1024,
            CLI_HELP_INVARIANT " (after a pass)"),
    CLI_STRING(struct graph_values, out, "out", 'o', "FILE", "write to FILE instead of standard output"),
    {0},
};

/* ---- The graph ---- */

/* Returns the given strategy, or the default one as `tutti train` chooses it. */
static const char *choose_strategy(const struct graph_values *values) {
    if (values->strategy >= 0) return cli_strategies[values->strategy];
    return tu_default_strategy(values->devices, false, values->invariant);
}

/* With --after, replaces the graph by the graph after that pass. */
static tu_status apply_passes(const struct graph_values *values, tu_graph **graph) {
    if (!values->after) return TU_OK;
    tu_graph *result;
    TU_TRY(tu_graph_after(*graph, &result, .pass = values->after, .devices = values->devices,
                          .precision = values->precision < 0 ? NULL : cli_precisions[values->precision],
                          .strategy = choose_strategy(values), .invariant = (int)values->invariant));
    tu_graph_free(*graph);
    *graph = result;
    return TU_OK;
}

/* ---- Output ---- */

static tu_status print_digest(const tu_graph *graph, FILE *file) {
    char digest[TU_DIGEST_TEXT];
    TU_TRY(tu_graph_digest(graph, digest));
    fprintf(file, "%s\n", digest);
    return TU_OK;
}

static tu_status print(const struct graph_values *values, const tu_graph *graph, FILE *file) {
    static const tu_graph_format of[] = {
        [FORMAT_TEXT] = TU_GRAPH_TEXT, [FORMAT_DOT] = TU_GRAPH_DOT, [FORMAT_JSON] = TU_GRAPH_JSON};
    if (values->summary) TU_TRY(tu_graph_summary(graph, file));
    if (values->digest) TU_TRY(print_digest(graph, file));
    if (values->summary || values->digest) return TU_OK;
    return tu_graph_print(graph, of[values->format == FORMAT_UNSET ? FORMAT_TEXT : values->format], file);
}

/* Prints to memory first, so that an existing file is replaced only if everything succeeds. */
static int print_to_file(const struct graph_values *values, const tu_graph *graph) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return cli_fail("graph: out of memory");
    tu_status status = print(values, graph, memory);
    if (fclose(memory) != 0 && status == TU_OK) status = tu_fail(TU_NO_MEMORY, "graph: out of memory");
    if (status == TU_OK) status = tu_file_save(values->out, text, length);
    free(text);
    return cli_report(status);
}

static int print_to_stdout(const struct graph_values *values, const tu_graph *graph) {
    tu_status status = print(values, graph, stdout);
    return status == TU_IO ? CLI_FAILED : cli_report(status); /* main.c reports write errors */
}

static int check_option_combination(const struct graph_values *values) {
    if (values->format != FORMAT_UNSET && (values->summary || values->digest))
        return cli_input_error("graph: --format and %s cannot be combined",
                               values->summary ? "--summary" : "--digest");
    if (values->format == FORMAT_FILE && !values->out)
        return cli_input_error("graph: --format file needs --out FILE: a graph file is not text");
    const char *needs_after = values->devices          ? "devices"
                              : values->precision >= 0 ? "precision"
                              : values->strategy >= 0  ? "strategy"
                              : values->invariant      ? "invariant"
                                                       : NULL;
    if (!values->after && needs_after) return cli_input_error("graph: --%s needs --after PASS", needs_after);
    return CLI_DONE;
}

static int run(const void *given, int operand_count, char **operands) {
    const struct graph_values *values = given;
    (void)operand_count;
    int error = check_option_combination(values);
    if (error) return error;
    tu_graph *graph;
    struct network_request request = {
        .command = "graph", .name_or_path = operands[0], .batch = values->batch, .train = values->train};
    tu_status status = network_load(&request, &graph);
    if (status == TU_OK) status = apply_passes(values, &graph);
    int result;
    if (status != TU_OK)
        result = cli_report(status);
    else if (values->format == FORMAT_FILE)
        result = cli_report(tu_graph_save(graph, values->out));
    else if (values->out)
        result = print_to_file(values, graph);
    else
        result = print_to_stdout(values, graph);
    tu_graph_free(graph);
    return result;
}

static const struct graph_values defaults = {.format = FORMAT_UNSET, .precision = -1, .strategy = -1};

const struct cli_command cli_command_graph = {
    .name = "graph",
    .summary = "prints a network: operations, cost of the layers, or digest",
    .usage = "MODEL [OPTIONS]",
    .description = "Prints MODEL (the name of a built-in network, your own C file, or the path of a\n"
                   "graph file): one operation per line, or in another format.\n"
                   "'dot' is for Graphviz:\n"
                   "  tutti graph mlp --format dot | dot -Tsvg > mlp.svg\n"
                   "'file' is a graph file, which programs and this command can load.",
    .lists_models = true,
    .options = options,
    .values_size = sizeof(struct graph_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
