/* Finding the network that a word means. A C file or a shared object holds one; a word that is no model is the path of a
 * graph file when it looks like one or leads somewhere. */
#include "cli/network.h"

#include <string.h>
#include <unistd.h>

#include <tutti/model.h>

#include "cli/report.h"

static bool is_model(const char *word) {
    const char *name, *summary;
    for (size_t i = 0; i < tu_model_count() && tu_model(i, &name, &summary) == TU_OK; i++)
        if (strcmp(name, word) == 0) return true;
    return false;
}

static tu_status build_model(const struct network_wish *wish, const char *name, tu_graph **graph) {
    tu_model_graph model = TU_SIZED(tu_model_graph);
    TU_TRY(tu_graph_new(graph));
    tu_set_training(*graph, wish->train);
    tu_status status = tu_model_build(*graph, name, &model, .batch = wish->batch);
    if (status != TU_NOT_FOUND) return status;
    return tu_fail(status, "%s: %s (or the path of a graph file)", wish->command, tu_message());
}

static tu_status load_graph(const struct network_wish *wish, const char *path, tu_graph **graph) {
    if (wish->batch)
        return tu_fail(TU_INVALID, "%s: --batch with the graph file %s: expected none, its batch is built in",
                       wish->command, cli_quote(path).text);
    return tu_graph_load(path, graph);
}

tu_status network_get(const struct network_wish *wish, tu_graph **graph) {
    const char *word = wish->word;
    *graph = NULL;
    if (tu_model_is_file(word)) TU_TRY(tu_model_load(word, &word));
    bool path = !is_model(word) && (strchr(word, '/') || access(word, F_OK) == 0);
    TU_TRY(path ? load_graph(wish, word, graph) : build_model(wish, word, graph));
    return wish->train ? tu_add_sgd(tu_find_output(*graph, "loss"), 0.1, 0.9) : TU_OK;
}
