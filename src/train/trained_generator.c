/* A generator of a run folder, from its graph for predictions and a checkpoint, or of a model file. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/generate.h>
#include <tutti/train.h>

#include "graph/graph.h"
#include "infer/model_file.h"
#include "train/trained_model.h"

static tu_status generator_of_run(const char *folder, const tu_trained_options *o,
                                  const tu_generator_options *generator_options, tu_generator **generator,
                                  char tokenizer[TU_TOKENIZER_NAME]) {
    tu__trained_model trained;
    tu_status status = tu__trained_model_open(folder, "predict", o, &trained);
    if (status == TU_OK)
        status = tu_generator_new_with(trained.graph, trained.state, generator, generator_options);
    const char *name = trained.config.columns.tokenizer;
    if (status == TU_OK && name) snprintf(tokenizer, TU_TOKENIZER_NAME, "%s", name);
    tu__trained_model_close(&trained);
    return status;
}

static tu_status generator_of_file(const char *path, const tu_trained_options *o,
                                   const tu_generator_options *generator_options, tu_generator **generator,
                                   char tokenizer[TU_TOKENIZER_NAME]) {
    tu__model_file file;
    if (o->checkpoint && strcmp(o->checkpoint, "last") != 0)
        return tu_fail(TU_INVALID, "checkpoint '%.60s': '%s' is a model file, which has no checkpoints",
                       o->checkpoint, path);
    TU_TRY(tu__model_file_open(path, &file));
    const char *name = tu__model_file_text(&file, "tokenizer");
    if (name) snprintf(tokenizer, TU_TOKENIZER_NAME, "%s", name);
    tu__model_file_close(&file);
    return tu_generator_open_with(path, generator, generator_options);
}

tu_status tu_trained_generator_with(const char *path, tu_generator **generator,
                                    char tokenizer[TU_TOKENIZER_NAME], const tu_trained_options *options) {
    TU__OPTIONS(tu_trained_options, o, options);
    const tu_generator_options generator_options = {
        .struct_size = sizeof generator_options, .devices = o.devices, .threads = o.threads};
    struct stat attributes;
    *generator = NULL;
    tokenizer[0] = '\0';
    bool is_file = stat(path, &attributes) == 0 && S_ISREG(attributes.st_mode);
    return is_file ? generator_of_file(path, &o, &generator_options, generator, tokenizer)
                   : generator_of_run(path, &o, &generator_options, generator, tokenizer);
}
