/* The built-in networks by name, and what all of them share: inputs, settings, loss. A new network is its own file,
 * a declaration in model.h and a line in the table. */
#include <inttypes.h>
#include <string.h>

#include "base/nearest.h"
#include "base/text.h"
#include "graph/graph.h"
#include "model/model.h"

static const tu__model *const models[] = {&tu__mlp, &tu__tutorial_cnn, &tu__resnet20};
enum { MODEL_COUNT = sizeof models / sizeof *models };

tu_status tu_model(size_t index, const char **name, const char **summary) {
    if (index >= MODEL_COUNT)
        return tu_fail(TU_NOT_FOUND, "there is no model number %zu: there are %d", index, MODEL_COUNT);
    *name = models[index]->name;
    *summary = models[index]->summary;
    return TU_OK;
}

static const tu__model *find_model(const char *name) {
    for (size_t i = 0; i < MODEL_COUNT; i++)
        if (strcmp(models[i]->name, name) == 0) return models[i];
    return NULL;
}

static tu_status refuse_name(const char *name) {
    const char *names[MODEL_COUNT];
    tu__text known = {0};
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        names[i] = models[i]->name;
        tu__text_printf(&known, "%s%s", i == 0 ? "" : i + 1 < MODEL_COUNT ? ", " : " or ", names[i]);
    }
    const char *nearest = tu__nearest(name, names, MODEL_COUNT);
    tu_status status =
        tu_fail(TU_NOT_FOUND, "unknown model '%.60s': expected %s%s%s%s", name, tu__text_string(&known),
                nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    tu__text_free(&known);
    return status;
}

/* ---- Settings ---- */

static tu_status settle(int64_t *setting, const char *name, int64_t own) {
    if (*setting < 0)
        return tu_fail(TU_INVALID,
                       "model setting %s = %" PRId64 ": expected at least 1, or 0 for the model's own", name,
                       *setting);
    if (*setting == 0) *setting = own;
    return TU_OK;
}

/* Zeros become the model's own settings. */
static tu_status settle_all(const tu__model *model, tu_model_options *o) {
    TU_TRY(settle(&o->batch, "batch", 128));
    TU_TRY(settle(&o->height, "height", model->own.height));
    TU_TRY(settle(&o->width, "width", model->own.width));
    TU_TRY(settle(&o->channels, "channels", model->own.channels));
    TU_TRY(settle(&o->classes, "classes", model->own.classes));
    TU_TRY(settle(&o->base, "base", model->own.base));
    if (!tu_dtype_is_float(o->dtype))
        return tu_fail(TU_INVALID, "model setting dtype = %s: expected f32, f64, bf16 or f16",
                       tu_dtype_name(o->dtype));
    return TU_OK;
}

/* ---- Building ---- */

/* The mean over the batch of the cross-entropy between softmax(logits) and the labels. */
static tu_value mean_loss(tu_graph *graph, tu_value logits, tu_value labels) {
    tu_value loss = tu__invalid(graph);
    tu_scope(graph, "loss") loss = tu_mean(tu_cross_entropy(logits, labels));
    return loss;
}

tu_status tu_model_build_with(tu_graph *graph, const char *name, tu_model_graph *model,
                              const tu_model_options *options) {
    TU__OPTIONS(tu_model_options, o, options);
    *model = (tu_model_graph){tu__invalid(graph), tu__invalid(graph), tu__invalid(graph), tu__invalid(graph)};
    TU_TRY(tu_graph_status(graph));
    const tu__model *found = find_model(name);
    if (!found) return refuse_name(name);
    TU_TRY(settle_all(found, &o));

    model->images =
        tu_batch_input(graph, "images", o.dtype, TU_SHAPE(o.batch, o.height, o.width, o.channels));
    model->labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(o.batch));
    model->logits = tu_output(found->build(model->images, &o), "logits");
    model->loss = tu_output(mean_loss(graph, model->logits, model->labels), "loss");
    return tu_graph_status(graph);
}
