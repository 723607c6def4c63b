/* The registry of models, and the code that all models share: inputs, options, loss. A new built-in model needs a
 * source file, a declaration in model.h and an entry in the table below. Models loaded from users' files are added
 * after these and never removed. A model replaces an earlier one of the same name, so that a file can be loaded again
 * after an edit. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/sized.h"
#include "base/text.h"
#include "graph/graph.h"
#include "model/model.h"

/* ---- The list ---- */

static const tu_model_definition *const built_in[] = {
    &tu__mlp, &tu__tutorial_cnn, &tu__resnet20, &tu__resnet18, &tu__resnet50, &tu__wide_resnet_16_4};
enum { BUILT_IN = sizeof built_in / sizeof *built_in, MAX_LOADED = 64 };

static const tu_model_definition *loaded[MAX_LOADED];
static size_t loaded_count;
static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns NULL if `index` is too large. */
static const tu_model_definition *model_at(size_t index) {
    if (index < BUILT_IN) return built_in[index];
    pthread_mutex_lock(&loaded_lock);
    const tu_model_definition *found = index - BUILT_IN < loaded_count ? loaded[index - BUILT_IN] : NULL;
    pthread_mutex_unlock(&loaded_lock);
    return found;
}

static size_t model_count(void) {
    size_t count = 0;
    while (model_at(count)) count++;
    return count;
}

static const tu_model_definition *find_model(const char *name) {
    const tu_model_definition *model;
    for (size_t i = 0; (model = model_at(i)); i++)
        if (strcmp(model->name, name) == 0) return model;
    return NULL;
}

/* Returns the index of the loaded model of this name, or the next free index. */
static size_t index_for_name(const char *name) {
    for (size_t i = 0; i < loaded_count; i++)
        if (strcmp(loaded[i]->name, name) == 0) return i;
    return loaded_count;
}

tu_status tu__model_add(const tu_model_definition *definition) {
    for (size_t i = 0; i < BUILT_IN; i++)
        if (strcmp(built_in[i]->name, definition->name) == 0)
            return tu_fail(TU_INVALID, "model '%.60s': a built-in model has this name, choose another one",
                           definition->name);
    pthread_mutex_lock(&loaded_lock);
    size_t index = index_for_name(definition->name);
    if (index < MAX_LOADED) loaded[index] = definition;
    if (index == loaded_count && index < MAX_LOADED) loaded_count++;
    pthread_mutex_unlock(&loaded_lock);
    if (index < MAX_LOADED) return TU_OK;
    return tu_fail(TU_UNSUPPORTED,
                   "model '%.60s' cannot be loaded: %d models are loaded already, which is the maximum",
                   definition->name, MAX_LOADED);
}

size_t tu_model_count(void) {
    pthread_mutex_lock(&loaded_lock);
    size_t count = BUILT_IN + loaded_count;
    pthread_mutex_unlock(&loaded_lock);
    return count;
}

tu_status tu_model(size_t index, const char **name, const char **summary) {
    const tu_model_definition *model = model_at(index);
    if (!model) return tu_fail(TU_NOT_FOUND, "model index %zu: expected 0 to %zu", index, model_count() - 1);
    *name = model->name;
    *summary = model->summary;
    return TU_OK;
}

/* ---- Finding a model ---- */

static tu_status fail_unknown_model(const char *name) {
    const char *names[BUILT_IN + MAX_LOADED];
    const tu_model_definition *model;
    size_t count = 0;
    while (count < BUILT_IN + MAX_LOADED && (model = model_at(count))) names[count++] = model->name;
    return tu__fail_unknown_choice(TU_NOT_FOUND, "unknown model", name, count, names);
}

static tu_status get_model(const char *name, const tu_model_definition **model) {
    *model = find_model(name);
    return *model ? TU_OK : fail_unknown_model(name);
}

/* ---- Options ---- */

static tu_status check_or_default(int64_t *setting, const char *name, int64_t default_value) {
    if (*setting < 0)
        return tu_fail(TU_INVALID,
                       "model setting %s = %" PRId64 ": expected at least 1, or 0 for the default", name,
                       *setting);
    if (*setting == 0) *setting = default_value;
    return TU_OK;
}

/* Replaces zeros by the model's defaults and checks the options. */
static tu_status fill_and_check_options(const tu_model_definition *model, tu_model_options *o) {
    TU__OPTIONS(tu_model_options, defaults, model->defaults);
    TU_TRY(check_or_default(&o->batch, "batch", 128));
    TU_TRY(check_or_default(&o->height, "height", defaults.height));
    TU_TRY(check_or_default(&o->width, "width", defaults.width));
    TU_TRY(check_or_default(&o->channels, "channels", defaults.channels));
    TU_TRY(check_or_default(&o->classes, "classes", defaults.classes));
    TU_TRY(check_or_default(&o->base, "base", defaults.base));
    if (!tu_dtype_is_float(o->dtype))
        return tu_fail(TU_INVALID, "model setting dtype = %s: expected f32, f64, bf16 or f16",
                       tu_dtype_name(o->dtype));
    return TU_OK;
}

tu_status tu_model_defaults(const char *name, tu_model_options *defaults) {
    const tu_model_definition *model;
    tu_model_options full = {0};
    TU_TRY(TU__CHECK_SIZED(tu_model_options, defaults));
    TU_TRY(get_model(name, &model));
    TU_TRY(fill_and_check_options(model, &full));
    TU__COPY_SIZED(defaults, full);
    return TU_OK;
}

/* ---- Building ---- */

/* Calls the model's function and checks that it returns logits. A user's function may return anything. */
static tu_status build_logits(const tu_model_definition *model, tu_value images, const tu_model_options *o,
                              tu_value *logits) {
    *logits = model->build(images, o);
    TU_TRY(tu_graph_status(images.graph));
    tu_shape expected = TU_SHAPE(o->batch, o->classes), given = tu_value_shape(*logits);
    bool are_logits = tu_ok(*logits) && logits->graph == images.graph && tu_shape_equal(given, expected) &&
                      tu_dtype_is_float(tu_value_dtype(*logits));
    if (are_logits) return TU_OK;
    tu_status status =
        tu_fail(TU_INVALID, "model '%s' returns '%s' %s: expected floating-point logits %s", model->name,
                tu_value_name(*logits), tu__type_string(tu_value_type(*logits)), tu__shape_string(expected));
    *logits = tu__invalid(images.graph);
    return status;
}

tu_status tu_model_logits_with(tu_value images, const char *name, tu_value *logits,
                               const tu_model_options *options) {
    TU__OPTIONS(tu_model_options, o, options);
    *logits = tu__invalid(images.graph);
    TU_TRY(tu_graph_status(images.graph));
    const tu_model_definition *model;
    TU_TRY(get_model(name, &model));
    tu_type type = tu_value_type(images);
    if (!tu_ok(images) || type.shape.rank != 4)
        return tu_fail(TU_INVALID, "model '%s' of '%s' %s: expected images [n,h,w,c]", name,
                       tu_value_name(images), tu__type_string(type));
    o.batch = type.shape.dim[0];
    o.height = type.shape.dim[1];
    o.width = type.shape.dim[2];
    o.channels = type.shape.dim[3];
    o.dtype = type.dtype;
    TU_TRY(fill_and_check_options(model, &o));
    o.struct_size = sizeof o;
    return build_logits(model, images, &o, logits);
}

/* Builds the mean cross-entropy loss of the batch. */
static tu_value mean_loss(tu_graph *graph, tu_value logits, tu_value labels) {
    tu_value loss = tu__invalid(graph);
    tu_scope(graph, "loss") loss = tu_mean(tu_cross_entropy(logits, labels));
    return loss;
}

static tu_status build(tu_graph *graph, const char *name, tu_model_options o, tu_model_graph *model) {
    TU_TRY(tu_graph_status(graph));
    const tu_model_definition *found;
    TU_TRY(get_model(name, &found));
    TU_TRY(fill_and_check_options(found, &o));

    tu_value logits;
    model->images =
        tu_batch_input(graph, "images", o.dtype, TU_SHAPE(o.batch, o.height, o.width, o.channels));
    model->labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(o.batch));
    o.struct_size = sizeof o;
    TU_TRY(tu_model_logits_with(model->images, name, &logits, &o));
    model->logits = tu_output(logits, "logits");
    model->loss = tu_output(mean_loss(graph, model->logits, model->labels), "loss");
    return tu_graph_status(graph);
}

tu_status tu_model_build_with(tu_graph *graph, const char *name, tu_model_graph *model,
                              const tu_model_options *options) {
    TU__OPTIONS(tu_model_options, o, options);
    tu_value none = tu__invalid(graph);
    tu_model_graph full = {.images = none, .labels = none, .logits = none, .loss = none};
    TU_TRY(TU__CHECK_SIZED(tu_model_graph, model));
    tu_status status = build(graph, name, o, &full);
    TU__COPY_SIZED(model, full);
    return status;
}
