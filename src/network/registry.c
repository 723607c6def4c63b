/* The registry of networks, and the code that all networks share: inputs, options, loss. A new built-in network needs a
 * source file, a declaration in network.h and an entry in the table below. Networks loaded from users' files are added
 * after these and never removed. A network replaces an earlier one of the same name, so that a file can be loaded again
 * after an edit. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/sized.h"
#include "base/text.h"
#include "graph/graph.h"
#include "network/network.h"

/* ---- The list ---- */

static const tu_network_definition *const built_in[] = {
    &tu__mlp,      &tu__tutorial_cnn, &tu__resnet20,  &tu__resnet18,  &tu__resnet50,  &tu__wide_resnet_16_4,
    &tu__char_gpt, &tu__gpt2_124m,    &tu__gpt2_355m, &tu__gpt2_774m, &tu__gpt2_1558m};
enum { BUILT_IN = sizeof built_in / sizeof *built_in, MAX_LOADED = 64 };

static const tu_network_definition *loaded[MAX_LOADED];
static size_t loaded_count;
static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns NULL if `index` is too large. */
static const tu_network_definition *network_at(size_t index) {
    if (index < BUILT_IN) return built_in[index];
    pthread_mutex_lock(&loaded_lock);
    const tu_network_definition *found = index - BUILT_IN < loaded_count ? loaded[index - BUILT_IN] : NULL;
    pthread_mutex_unlock(&loaded_lock);
    return found;
}

static size_t network_count(void) {
    size_t count = 0;
    while (network_at(count)) count++;
    return count;
}

static const tu_network_definition *find_network(const char *name) {
    const tu_network_definition *network;
    for (size_t i = 0; (network = network_at(i)); i++)
        if (strcmp(network->name, name) == 0) return network;
    return NULL;
}

/* Returns the index of the loaded network of this name, or the next free index. */
static size_t index_for_name(const char *name) {
    for (size_t i = 0; i < loaded_count; i++)
        if (strcmp(loaded[i]->name, name) == 0) return i;
    return loaded_count;
}

tu_status tu__network_add(const tu_network_definition *definition) {
    for (size_t i = 0; i < BUILT_IN; i++)
        if (strcmp(built_in[i]->name, definition->name) == 0)
            return tu_fail(TU_INVALID,
                           "network '%.60s': a built-in network has this name, choose another one",
                           definition->name);
    pthread_mutex_lock(&loaded_lock);
    size_t index = index_for_name(definition->name);
    if (index < MAX_LOADED) loaded[index] = definition;
    if (index == loaded_count && index < MAX_LOADED) loaded_count++;
    pthread_mutex_unlock(&loaded_lock);
    if (index < MAX_LOADED) return TU_OK;
    return tu_fail(TU_UNSUPPORTED,
                   "network '%.60s' cannot be loaded: %d networks are loaded already, which is the maximum",
                   definition->name, MAX_LOADED);
}

size_t tu_network_count(void) {
    pthread_mutex_lock(&loaded_lock);
    size_t count = BUILT_IN + loaded_count;
    pthread_mutex_unlock(&loaded_lock);
    return count;
}

tu_status tu_network(size_t index, const char **name, const char **summary) {
    const tu_network_definition *network = network_at(index);
    if (!network)
        return tu_fail(TU_NOT_FOUND, "network index %zu: expected 0 to %zu", index, network_count() - 1);
    *name = network->name;
    *summary = network->summary;
    return TU_OK;
}

/* ---- Finding a network ---- */

static tu_status fail_unknown_network(const char *name) {
    const char *names[BUILT_IN + MAX_LOADED];
    const tu_network_definition *network;
    size_t count = 0;
    while (count < BUILT_IN + MAX_LOADED && (network = network_at(count))) names[count++] = network->name;
    return tu__fail_unknown_choice(TU_NOT_FOUND, "unknown network", name, count, names);
}

const tu_network_definition *tu__network_find(const char *name) {
    const tu_network_definition *network = find_network(name);
    if (!network) fail_unknown_network(name);
    return network;
}

static tu_status get_network(const char *name, const tu_network_definition **network) {
    *network = find_network(name);
    return *network ? TU_OK : fail_unknown_network(name);
}

/* ---- What networks take ---- */

static unsigned input_of(const tu_network_definition *network) {
    return network->input ? network->input : TU_TAKES_IMAGES;
}

unsigned tu_network_takes(const char *name) {
    const tu_network_definition *network = find_network(name);
    return network ? input_of(network) : 0;
}

/* ---- Options ---- */

static tu_status check_or_default(int64_t *setting, const char *name, int64_t default_value) {
    if (*setting < 0)
        return tu_fail(TU_INVALID,
                       "network setting %s = %" PRId64 ": expected at least 1, or 0 for the default", name,
                       *setting);
    if (*setting == 0) *setting = default_value;
    return TU_OK;
}

/* Replaces zeros by the network's defaults and checks the options. */
static tu_status fill_and_check_options(const tu_network_definition *network, tu_network_options *o) {
    TU__OPTIONS(tu_network_options, defaults, network->defaults);
    TU_TRY(check_or_default(&o->batch, "batch", 128));
    TU_TRY(check_or_default(&o->height, "height", defaults.height));
    TU_TRY(check_or_default(&o->width, "width", defaults.width));
    TU_TRY(check_or_default(&o->channels, "channels", defaults.channels));
    TU_TRY(check_or_default(&o->features, "features", defaults.features));
    TU_TRY(check_or_default(&o->context, "context", defaults.context));
    TU_TRY(check_or_default(&o->classes, "classes", defaults.classes));
    TU_TRY(check_or_default(&o->base, "base", defaults.base));
    if (!tu_dtype_is_float(o->dtype))
        return tu_fail(TU_INVALID, "network setting dtype = %s: expected f32, f64, bf16 or f16",
                       tu_dtype_name(o->dtype));
    return TU_OK;
}

tu_status tu_network_defaults(const char *name, tu_network_options *defaults) {
    const tu_network_definition *network;
    tu_network_options full = {0};
    TU_TRY(TU__CHECK_SIZED(tu_network_options, defaults));
    TU_TRY(get_network(name, &network));
    TU_TRY(fill_and_check_options(network, &full));
    TU__COPY_SIZED(defaults, full);
    return TU_OK;
}

/* ---- Building ---- */

/* Calls the network's function and checks that it returns logits. A user's function may return anything. */
static tu_status build_logits(const tu_network_definition *network, tu_value input, tu_network_options *o,
                              tu_value *logits) {
    char parameters[TU__PARAMETERS_TEXT];
    TU_TRY(tu__network_fill_parameters(network, o->parameters, parameters));
    o->parameters = parameters;
    *logits = network->build(input, o);
    o->parameters = NULL;
    TU_TRY(tu_graph_status(input.graph));
    bool has_tokens = tu_value_shape(input).rank == 2 && !tu_dtype_is_float(tu_value_dtype(input));
    tu_shape expected =
        has_tokens ? TU_SHAPE(o->batch, o->context, o->classes) : TU_SHAPE(o->batch, o->classes);
    tu_shape given = tu_value_shape(*logits);
    bool are_logits = tu_ok(*logits) && logits->graph == input.graph && tu_shape_equal(given, expected) &&
                      tu_dtype_is_float(tu_value_dtype(*logits));
    if (are_logits) return TU_OK;
    tu_status status =
        tu_fail(TU_INVALID, "network '%s' returns '%s' %s: expected floating-point logits %s", network->name,
                tu_value_name(*logits), tu__type_string(tu_value_type(*logits)), tu__shape_string(expected));
    *logits = tu__invalid(input.graph);
    return status;
}

/* Sets the options that the type of the input determines. */
static tu_status read_input_type(const tu_network_definition *network, tu_value input,
                                 tu_network_options *o) {
    tu_type type = tu_value_type(input);
    bool tokens = type.shape.rank == 2 && type.dtype == TU_I32, rows = type.shape.rank == 2 && !tokens,
         images = type.shape.rank == 4;
    unsigned given = images ? TU_TAKES_IMAGES : rows ? TU_TAKES_ROWS : tokens ? TU_TAKES_TOKENS : 0;
    if (!tu_ok(input) || !(given & input_of(network)))
        return tu_fail(TU_INVALID, "network '%s' of '%s' %s: expected %s", network->name,
                       tu_value_name(input), tu__type_string(type),
                       input_of(network) & TU_TAKES_IMAGES ? "images [n,h,w,c]"
                       : input_of(network) & TU_TAKES_ROWS ? "rows [n,features]"
                                                           : "tokens i32 [n,context]");
    o->batch = type.shape.dim[0];
    if (images) o->height = type.shape.dim[1], o->width = type.shape.dim[2], o->channels = type.shape.dim[3];
    if (rows) o->features = type.shape.dim[1];
    if (tokens) o->context = type.shape.dim[1];
    if (!tokens) o->dtype = type.dtype;
    return TU_OK;
}

tu_status tu_network_logits_with(tu_value images, const char *name, tu_value *logits,
                                 const tu_network_options *options) {
    TU__OPTIONS(tu_network_options, o, options);
    *logits = tu__invalid(images.graph);
    TU_TRY(tu_graph_status(images.graph));
    const tu_network_definition *network;
    TU_TRY(get_network(name, &network));
    TU_TRY(read_input_type(network, images, &o));
    TU_TRY(fill_and_check_options(network, &o));
    o.struct_size = sizeof o;
    return build_logits(network, images, &o, logits);
}

/* Builds the mean cross-entropy loss of the batch. */
static tu_value mean_loss(tu_graph *graph, tu_value logits, tu_value labels) {
    tu_value loss = tu__invalid(graph);
    tu_scope(graph, "loss") loss = tu_mean(tu_cross_entropy(logits, labels));
    return loss;
}

static tu_status build(tu_graph *graph, const char *name, tu_network_options o, tu_network_graph *network) {
    TU_TRY(tu_graph_status(graph));
    const tu_network_definition *found;
    TU_TRY(get_network(name, &found));
    TU_TRY(fill_and_check_options(found, &o));

    tu_value logits, input, labels;
    if (input_of(found) & TU_TAKES_IMAGES) {
        input = network->images =
            tu_batch_input(graph, "images", o.dtype, TU_SHAPE(o.batch, o.height, o.width, o.channels));
        labels = network->labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(o.batch));
    } else if (input_of(found) & TU_TAKES_TOKENS) {
        network->images = tu_batch_input(graph, "tokens", TU_I32, TU_SHAPE(o.batch, o.context + 1));
        input = tu_slice(network->images, 1, 0, o.context, 1);
        labels = tu_slice(network->images, 1, 1, o.context + 1, 1);
    } else {
        input = network->images = tu_batch_input(graph, "rows", o.dtype, TU_SHAPE(o.batch, o.features));
        labels = network->labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(o.batch));
    }
    o.struct_size = sizeof o;
    TU_TRY(tu_network_logits_with(input, name, &logits, &o));
    network->logits = tu_output(logits, "logits");
    network->loss = tu_output(mean_loss(graph, network->logits, labels), "loss");
    return tu_graph_status(graph);
}

tu_status tu_network_build_with(tu_graph *graph, const char *name, tu_network_graph *network,
                                const tu_network_options *options) {
    TU__OPTIONS(tu_network_options, o, options);
    tu_value none = tu__invalid(graph);
    tu_network_graph full = {.images = none, .labels = none, .logits = none, .loss = none};
    TU_TRY(TU__CHECK_SIZED(tu_network_graph, network));
    tu_status status = build(graph, name, o, &full);
    TU__COPY_SIZED(network, full);
    return status;
}
