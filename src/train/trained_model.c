/* Loads a trained network. See trained_model.h. */
#include "train/trained_model.h"

#include <string.h>

#include "train/run_graphs.h"
#include "train/task.h"

tu_status tu__trained_model_open(const char *folder, const char *graph, const tu_trained_options *options,
                                 tu__trained_model *trained) {
    *trained = (tu__trained_model){.arena = {.purpose = "a run's configuration"}};
    tu__settings *settings = &trained->config.settings;
    TU_TRY(tu__run_config_load(folder, &trained->arena, &trained->config));
    if (options
            ->devices) { /* other devices: the placement, threads and limits of the run do not apply to them */
        settings->devices = options->devices;
        settings->strategy = settings->central = settings->place = settings->lock = "";
        settings->threads = settings->invariant = 0;
        settings->memory_limit = settings->gpu_memory_limit = 0;
    }
    settings->gpu_memory_reserve = 0; /* only training reserves memory */
    if (options->strategy) settings->strategy = options->strategy, settings->central = "";
    if (options->threads) settings->threads = options->threads;
    TU_TRY(tu__run_graph_load(folder, graph, &trained->config, &trained->graph));
    if (strcmp(graph, "evaluate") == 0 && !tu__is_classification(&trained->config))
        TU_TRY(tu__run_graph_load(folder, "metrics", &trained->config, &trained->metrics));
    TU_TRY(tu_state_new(trained->graph, &trained->state));
    return tu__checkpoint_load_named(folder, options->checkpoint, &trained->config, trained->state,
                                     &trained->progress);
}

void tu__trained_model_close(tu__trained_model *trained) {
    tu_state_free(trained->state);
    tu_graph_free(trained->graph);
    tu_graph_free(trained->metrics);
    tu__arena_free(&trained->arena);
}
