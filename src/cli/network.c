/* Loads a network. A name that is not a built-in network is the path of a graph file if it contains a slash or the file
 * exists. */
#include "cli/network.h"

#include <string.h>
#include <unistd.h>

#include <tutti/network.h>

#include "cli/report.h"

bool network_is_known(const char *word) {
    const char *name, *summary;
    for (size_t i = 0; i < tu_network_count() && tu_network(i, &name, &summary) == TU_OK; i++)
        if (strcmp(name, word) == 0) return true;
    return false;
}

tu_status network_fail_unknown(const char *command, const char *word, const char *const *others) {
    enum { MAX_NAMES = 40 };
    const char *names[MAX_NAMES], *summary;
    int count = 0, suggested;
    while (count < MAX_NAMES && (size_t)count < tu_network_count() &&
           tu_network((size_t)count, &names[count], &summary) == TU_OK)
        count++;
    suggested = count;
    for (; *others && count < MAX_NAMES; others++) {
        names[count++] = *others;
        if (!strchr(*others, ' ')) suggested = count; /* a word, not a description */
    }
    return tu_fail(TU_NOT_FOUND, "%s%sunknown network %s: expected %s%s", command ? command : "",
                   command ? ": " : "", cli_quote(word).text, cli_list(names, count).text,
                   cli_did_you_mean(word, names, suggested).text);
}

static tu_status build_model(const struct network_request *request, const char *name, tu_graph **graph) {
    tu_network_graph model = TU_SIZED(tu_network_graph);
    static const char *const others[] = {"a C file", "the path of a graph file", NULL};
    TU_TRY(tu_graph_new(graph));
    tu_set_training(*graph, request->train);
    tu_status status = tu_network_build(*graph, name, &model, .batch = request->batch, .base = request->base);
    return status == TU_NOT_FOUND ? network_fail_unknown(request->command, name, others) : status;
}

static tu_status load_graph(const struct network_request *request, const char *path, tu_graph **graph) {
    if (request->batch)
        return tu_fail(TU_INVALID,
                       "%s: --batch cannot be used with the graph file %s: its batch size is fixed",
                       request->command, cli_quote(path).text);
    if (request->base)
        return tu_fail(TU_INVALID, "%s: --base cannot be used with the graph file %s: its widths are fixed",
                       request->command, cli_quote(path).text);
    return tu_graph_load(path, graph);
}

tu_status network_load(const struct network_request *request, tu_graph **graph) {
    const char *name = request->name_or_path;
    *graph = NULL;
    if (tu_network_is_file(name)) TU_TRY(tu_network_load(name, &name));
    bool is_path = !network_is_known(name) && (strchr(name, '/') || access(name, F_OK) == 0);
    TU_TRY(is_path ? load_graph(request, name, graph) : build_model(request, name, graph));
    return request->train ? tu_add_sgd(tu_find_output(*graph, "loss"), 0.1, 0.9) : TU_OK;
}
