/* Loads a network. A name that is not a built-in network is the path of a graph file if it contains a slash or the file
 * exists. */
#include "cli/network.h"

#include <string.h>
#include <unistd.h>

#include <tutti/network.h>

#include "cli/report.h"

static bool is_model(const char *word) {
    const char *name, *summary;
    for (size_t i = 0; i < tu_network_count() && tu_network(i, &name, &summary) == TU_OK; i++)
        if (strcmp(name, word) == 0) return true;
    return false;
}

/* "unknown network 'x': expected mlp, …, a C file or the path of a graph file; did you mean 'mlp'?" */
static tu_status fail_unknown_model(const char *command, const char *model) {
    enum { MAX_NAMES = 32 };
    const char *names[MAX_NAMES], *summary;
    int count = 0;
    while (count + 2 < MAX_NAMES && (size_t)count < tu_network_count() &&
           tu_network((size_t)count, &names[count], &summary) == TU_OK)
        count++;
    names[count] = "a C file";
    names[count + 1] = "the path of a graph file";
    return tu_fail(TU_NOT_FOUND, "%s: unknown network %s: expected %s%s", command, cli_quote(model).text,
                   cli_list(names, count + 2).text, cli_did_you_mean(model, names, count).text);
}

static tu_status build_model(const struct network_request *request, const char *name, tu_graph **graph) {
    tu_network_graph model = TU_SIZED(tu_network_graph);
    TU_TRY(tu_graph_new(graph));
    tu_set_training(*graph, request->train);
    tu_status status = tu_network_build(*graph, name, &model, .batch = request->batch);
    return status == TU_NOT_FOUND ? fail_unknown_model(request->command, name) : status;
}

static tu_status load_graph(const struct network_request *request, const char *path, tu_graph **graph) {
    if (request->batch)
        return tu_fail(TU_INVALID,
                       "%s: --batch cannot be used with the graph file %s: its batch size is fixed",
                       request->command, cli_quote(path).text);
    return tu_graph_load(path, graph);
}

tu_status network_load(const struct network_request *request, tu_graph **graph) {
    const char *name = request->name_or_path;
    *graph = NULL;
    if (tu_network_is_file(name)) TU_TRY(tu_network_load(name, &name));
    bool is_path = !is_model(name) && (strchr(name, '/') || access(name, F_OK) == 0);
    TU_TRY(is_path ? load_graph(request, name, graph) : build_model(request, name, graph));
    return request->train ? tu_add_sgd(tu_find_output(*graph, "loss"), 0.1, 0.9) : TU_OK;
}
