/* Loads a trained network. See trained_model.h. */
#include "train/trained_model.h"

#include "train/run_graphs.h"

tu_status tu__trained_model_open(const char *folder, const char *graph, const tu_trained_options *options,
                                 tu__trained_model *trained) {
    *trained = (tu__trained_model){.arena = {.purpose = "a run's configuration"}};
    tu__path path;
    tu__settings *settings = &trained->config.settings;
    TU_TRY(tu__run_config_load(folder, &trained->arena, &trained->config));
    TU_TRY(tu__checkpoint_find(folder, options->checkpoint, &path));
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
    TU_TRY(tu_state_new(trained->graph, &trained->state));
    return tu__checkpoint_load(path.text, &trained->config, trained->state, &trained->progress);
}

void tu__trained_model_close(tu__trained_model *trained) {
    tu_state_free(trained->state);
    tu_graph_free(trained->graph);
    tu__arena_free(&trained->arena);
}
