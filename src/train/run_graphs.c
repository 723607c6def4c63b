/* The graphs of a run as files. See run_graphs.h; step_graphs.c builds them. */
#include "train/run_graphs.h"

#include <errno.h>
#include <unistd.h>

#include "train/step_graphs.h"

typedef struct entry {
    const char *name;
    size_t offset;
    bool optional;
} entry;

static const entry entries[] = {
    {"step", offsetof(tu__run_graphs, step), false},
    {"step-short", offsetof(tu__run_graphs, step_short), true},
    {"apply", offsetof(tu__run_graphs, apply), true},
    {"evaluate", offsetof(tu__run_graphs, evaluate), false},
    {"predict", offsetof(tu__run_graphs, predict), false},
};
enum { ENTRY_COUNT = sizeof entries / sizeof *entries };

static tu_graph **slot(const tu__run_graphs *graphs, size_t index) {
    return (tu_graph **)((char *)graphs + entries[index].offset);
}

tu_status tu__run_graphs_build(const tu__run_config *config, tu__run_graphs *graphs) {
    *graphs = (tu__run_graphs){0};
    int64_t piece = tu__piece_size(config), test = config->set.count[TU_TEST];
    int64_t rest = config->set.count[TU_TRAIN] % piece;
    TU_TRY(tu__build_step(config, piece, &graphs->step));
    if (rest) TU_TRY(tu__build_step(config, rest, &graphs->step_short));
    if (config->settings.accumulate > 1) TU_TRY(tu__build_apply(config, graphs->step, &graphs->apply));
    TU_TRY(tu__build_evaluation(config, test > 0 && test < piece ? test : piece, &graphs->evaluate));
    return tu__build_prediction(config, &graphs->predict);
}

tu_status tu__run_graph_load(const char *folder, const char *name, tu_graph **graph) {
    *graph = NULL;
    return tu_graph_load(tu__path_in(folder, "graphs/%s.graph", name).text, graph);
}

tu_status tu__run_graphs_load(const char *folder, tu__run_graphs *graphs) {
    *graphs = (tu__run_graphs){0};
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        tu__path path = tu__path_in(folder, "graphs/%s.graph", entries[i].name);
        if (entries[i].optional && access(path.text, F_OK) != 0 && errno == ENOENT) continue;
        TU_TRY(tu_graph_load(path.text, slot(graphs, i)));
    }
    return TU_OK;
}

void tu__run_graphs_free(tu__run_graphs *graphs) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) tu_graph_free(*slot(graphs, i));
    *graphs = (tu__run_graphs){0};
}

tu_status tu__run_graphs_save(const char *folder, const tu__run_graphs *graphs) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        tu_graph *graph = *slot(graphs, i);
        if (graph) TU_TRY(tu_graph_save(graph, tu__path_in(folder, "graphs/%s.graph", entries[i].name).text));
    }
    return TU_OK;
}
