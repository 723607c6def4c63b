/* `tutti graph MODEL`: a network as text, as a picture, as JSON or as a graph file; its costs; its digest. */
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
    int64_t batch; /* 0: the model's own */
    bool train, summary, digest;
    const char *out;
    const char *after, *devices;
    int precision, strategy; /* -1: not given */
    int64_t invariant;
};

static const struct cli_option options[] = {
    CLI_CHOICE(struct graph_values, format, "format", 'f', "FORMAT", formats, "what to print"),
    CLI_INT(struct graph_values, batch, "batch", 'b', "N", 1, 1048576, CLI_HELP_BATCH " (unless given: 128)"),
    CLI_FLAG(struct graph_values, train, "train", 0,
             "the training step: layers as in training, gradients, updates by SGD with momentum"),
    CLI_FLAG(struct graph_values, summary, "summary", 0,
             "print a table of layers and what they cost instead"),
    CLI_FLAG(struct graph_values, digest, "digest", 0,
             "print the SHA-256 of what the graph computes instead"),
    CLI_STRING(struct graph_values, after, "after", 0, "PASS",
               "the graph as a program has it after simplify, replicate, precision, place or partition"),
    CLI_STRING(struct graph_values, devices, "devices", 0, "LIST",
               CLI_HELP_DEVICES " (after a pass; unless given: all)"),
    CLI_CHOICE(struct graph_values, precision, "precision", 'p', "TYPE", cli_precisions,
               CLI_HELP_PRECISION " (after a pass; unless given: as built)"),
    CLI_CHOICE(struct graph_values, strategy, "strategy", 0, "NAME", cli_strategies,
               CLI_HELP_STRATEGY " (after a pass; unless given: mirrored if the devices are alike)"),
    CLI_INT(struct graph_values, invariant, "invariant", 0, "K", 0, 1024,
            CLI_HELP_INVARIANT " (after a pass)"),
    CLI_STRING(struct graph_values, out, "out", 'o', "FILE", "write to FILE instead of standard output"),
    {0},
};

/* ---- The graph ---- */

/* As `tutti train` decides it. */
static const char *strategy_of(const struct graph_values *values) {
    if (values->strategy >= 0) return cli_strategies[values->strategy];
    return tu_default_strategy(values->devices, false, values->invariant);
}

/* Replaces the graph by what the passes make of it, where that was asked for. */
static tu_status apply_passes(const struct graph_values *values, tu_graph **graph) {
    if (!values->after) return TU_OK;
    tu_graph *result;
    TU_TRY(tu_graph_after(*graph, &result, .pass = values->after, .devices = values->devices,
                          .precision = values->precision < 0 ? NULL : cli_precisions[values->precision],
                          .strategy = strategy_of(values), .invariant = (int)values->invariant));
    tu_graph_free(*graph);
    *graph = result;
    return TU_OK;
}

/* ---- What is printed ---- */

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

/* Printed to memory first: a file is replaced as a whole or not at all. */
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
    return status == TU_IO ? CLI_FAILED : cli_report(status); /* the frame tells of a write that failed */
}

static int refuse_combination(const struct graph_values *values) {
    if (values->format != FORMAT_UNSET && (values->summary || values->digest))
        return cli_refuse("graph: --format with %s: expected one of them",
                          values->summary ? "--summary" : "--digest");
    if (values->format == FORMAT_FILE && !values->out)
        return cli_refuse("graph: --format file: expected --out FILE with it, a graph file is not text");
    const char *needs_after = values->devices          ? "devices"
                              : values->precision >= 0 ? "precision"
                              : values->strategy >= 0  ? "strategy"
                              : values->invariant      ? "invariant"
                                                       : NULL;
    if (!values->after && needs_after)
        return cli_refuse("graph: --%s without --after: expected --after PASS with it", needs_after);
    return CLI_DONE;
}

static int run(const void *given, int operand_count, char **operands) {
    const struct graph_values *values = given;
    (void)operand_count;
    int refused = refuse_combination(values);
    if (refused) return refused;
    tu_graph *graph;
    struct network_wish wish = {
        .command = "graph", .word = operands[0], .batch = values->batch, .train = values->train};
    tu_status status = network_get(&wish, &graph);
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
    .summary = "prints a network: its operations, its layers' costs, its digest",
    .usage = "MODEL [OPTIONS]",
    .description = "Prints MODEL, the name of a built-in network, a C file with a network of your\n"
                   "own, or the path of a graph file: one operation a line, or in another format.\n"
                   "'dot' is for Graphviz:\n"
                   "  tutti graph mlp --format dot | dot -Tsvg > mlp.svg\n"
                   "'file' is a graph file, which programs load and this command prints.",
    .takes_model = true,
    .options = options,
    .values_size = sizeof(struct graph_values),
    .defaults = &defaults,
    .least_operands = 1,
    .most_operands = 1,
    .run = run,
};
