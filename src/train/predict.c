/* tu_predict: classifies an image file with a run's network, with the average of an ensemble, or with a model file.
 * tu_predict_images: the same for images in memory.
 *
 * An image file is cropped and resized to the size of the data set's images, like those of image folders
 * (data/fit.h). The network's own preprocessing is part of its graph. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/model.h>

#include "base/alloc.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/fit.h"
#include "graph/graph.h"
#include "io/image.h"
#include "train/compile_options.h"
#include "train/ensemble.h"
#include "train/stepper.h"
#include "train/trained_model.h"

typedef struct network {
    tu__trained_model trained;
    tu_program *program;
    tu_value images;
} network;

struct tu_predictor {
    tu__arena arena;       /* holds the strings of `config` */
    tu__run_config config; /* of the run, or of the ensemble */
    size_t count;          /* number of networks opened */
    network *networks;
    tu_model *model; /* of a model file, instead of networks */
    tu_type input;   /* of an image */
    int64_t classes;
    const char *const *class_names;
    void *image;        /* input of the networks */
    float *probability; /* probabilities from one network, one per class */
};

static tu_status open_network(network *n, const char *folder, const tu_trained_options *o) {
    TU_TRY(tu__trained_model_open(folder, "predict", o, &n->trained));
    tu_graph *graph = n->trained.graph;
    tu__device_spec first;
    tu_compile_options compiling;
    n->images = tu__find_input(graph, "images");
    tu_value probability = tu_find_output(graph, "probability");
    TU_TRY(tu__run_compile_options(&n->trained.config, 1, &first, &compiling));
    compiling.fetch = &probability;
    compiling.fetch_count = 1;
    return tu_compile_with(graph, &n->program, &compiling);
}

static tu_status open_members(tu_predictor *p, const char *folder, const tu_trained_options *o) {
    for (int64_t i = 0; i < p->config.members; i++) {
        network *n = &p->networks[p->count++];
        tu_status status = open_network(n, tu__member_folder(folder, i).text, o);
        if (status != TU_OK) return tu_fail(status, "member %" PRId64 ": %s", i, tu_message());
    }
    return TU_OK;
}

static tu_status open_run(tu_predictor *p, const char *folder, const tu_trained_options *o) {
    TU_TRY(tu__run_config_load(folder, &p->arena, &p->config));
    if (!tu__has_pictures(&p->config.dataset))
        return tu_fail(TU_INVALID,
                       "the run '%s' was trained on %s, not on images: tutti predict RUN ROWS.csv predicts "
                       "rows of tables",
                       folder, tu__samples_name(&p->config));
    const tu_dataset_info *dataset = &p->config.dataset;
    p->input = (tu_type){dataset->dtype, TU_SHAPE(dataset->height, dataset->width, dataset->channels)};
    p->classes = dataset->classes;
    p->class_names = dataset->class_names;
    size_t count = p->config.members ? (size_t)p->config.members : 1;
    p->networks = tu__alloc_array(count, sizeof *p->networks, "a predictor");
    if (!p->networks) return TU_NO_MEMORY;
    if (p->config.members) return open_members(p, folder, o);
    return open_network(&p->networks[p->count++], folder, o);
}

/* ---- Model files ---- */

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Fails unless the model has one input, which can be an image, and the output "probability". */
static tu_status check_model(tu_predictor *p, const char *path) {
    const char *input = "", *output = "";
    tu_type probability = {.shape.rank = -1};
    TU_TRY(tu_model_input(p->model, 0, &input, &p->input));
    bool is_image = p->input.shape.rank == 3 && (p->input.dtype == TU_U8 || p->input.dtype == TU_F32);
    if (tu_model_input_count(p->model) != 1 || !is_image)
        return tu_fail(
            TU_UNSUPPORTED,
            "the input '%s' of model '%s' is %s per sample: expected one input of images, u8 or f32 [h,w,c]",
            input, path, tu__type_string(p->input));
    for (size_t i = 0; i < tu_model_output_count(p->model) && strcmp(output, "probability") != 0; i++)
        TU_TRY(tu_model_output(p->model, i, &output, &probability));
    if (strcmp(output, "probability") != 0 || probability.dtype != TU_F32 || probability.shape.rank != 1)
        return tu_fail(TU_UNSUPPORTED,
                       "model '%s' has no output 'probability', f32 [classes], which predictions need", path);
    p->classes = probability.shape.dim[0];
    return TU_OK;
}

/* Without labels, classes are numbered. */
static tu_status copy_labels(tu_predictor *p) {
    const char **names = tu__arena_alloc(&p->arena, (size_t)p->classes * sizeof *names);
    if (!names) return TU_NO_MEMORY;
    for (int64_t i = 0; i < p->classes; i++) {
        char number[24];
        const char *label = tu_model_label(p->model, (size_t)i);
        snprintf(number, sizeof number, "%" PRId64, i);
        names[i] = tu__arena_string(&p->arena, label ? label : number);
        if (!names[i]) return TU_NO_MEMORY;
    }
    p->class_names = names;
    return TU_OK;
}

static tu_status open_model(tu_predictor *p, const char *path, const tu_trained_options *o) {
    if (o->checkpoint && strcmp(o->checkpoint, "last") != 0)
        return tu_fail(TU_INVALID, "checkpoint '%.60s': '%s' is a model file, which has no checkpoints",
                       o->checkpoint, path);
    TU_TRY(tu_model_load(path, &p->model, .devices = o->devices, .threads = o->threads, .max_batch = 1));
    TU_TRY(check_model(p, path));
    return copy_labels(p);
}

/* ---- Opening ---- */

static tu_status open_predictor(tu_predictor *p, const char *path, const tu_trained_options *o) {
    TU_TRY(is_file(path) ? open_model(p, path, o) : open_run(p, path, o));
    p->image = tu__alloc_aligned(tu_type_bytes(p->input), "an image");
    p->probability =
        tu__alloc_array((size_t)p->classes, sizeof *p->probability, "the probabilities of an image");
    return p->image && p->probability ? TU_OK : TU_NO_MEMORY;
}

tu_status tu_predictor_new_with(const char *folder, tu_predictor **predictor,
                                const tu_trained_options *options) {
    TU__OPTIONS(tu_trained_options, o, options);
    *predictor = NULL;
    tu_predictor *p = tu__alloc(sizeof *p, "a predictor");
    if (!p) return TU_NO_MEMORY;
    p->arena.purpose = "a run's configuration";
    tu_status status = open_predictor(p, folder, &o);
    if (status != TU_OK) {
        tu_predictor_free(p);
        return status;
    }
    *predictor = p;
    return TU_OK;
}

void tu_predictor_free(tu_predictor *p) {
    if (!p) return;
    for (size_t i = 0; i < p->count; i++) {
        tu_program_free(p->networks[i].program);
        tu__trained_model_close(&p->networks[i].trained);
    }
    tu__free(p->networks);
    tu_model_free(p->model);
    tu__free(p->probability);
    tu__free_aligned(p->image);
    tu__arena_free(&p->arena);
    tu__free(p);
}

int64_t tu_predictor_classes(const tu_predictor *p, const char *const **names) {
    if (names) *names = p->class_names;
    return p->classes;
}

static size_t pixels_of(const tu_predictor *p) {
    return (size_t)tu_shape_elements(p->input.shape);
}

/* Copies 8-bit pixels to `image` in the data set's type; f32 data sets have pixels in [0, 1]. */
static void set_pixels(tu_predictor *p, const uint8_t *pixels) {
    size_t count = pixels_of(p);
    if (p->input.dtype == TU_U8) {
        memcpy(p->image, pixels, count);
        return;
    }
    float *numbers = p->image;
    for (size_t i = 0; i < count; i++) numbers[i] = (float)pixels[i] / 255;
}

static tu_status fit_to_input(tu_predictor *p, const tu__image *file_image) {
    const int64_t *size = p->input.shape.dim;
    uint8_t *pixels = tu__alloc(pixels_of(p), "an image");
    if (!pixels) return TU_NO_MEMORY;
    tu_status status = tu__fit_image(file_image, size[0], size[1], size[2], pixels);
    if (status == TU_OK) set_pixels(p, pixels);
    tu__free(pixels);
    return status;
}

/* Runs all networks on `image` and stores the mean of their probabilities, summed in their order. */
static tu_status run_networks(tu_predictor *p, float *probabilities) {
    int64_t classes = p->classes;
    if (p->model) {
        const tu_type type = {
            p->input.dtype, TU_SHAPE(1, p->input.shape.dim[0], p->input.shape.dim[1], p->input.shape.dim[2])};
        const char *input;
        TU_TRY(tu_model_input(p->model, 0, &input, NULL));
        return tu_model_run_named(
            p->model, 1, 1, &(tu_model_feed){input, type, p->image}, 1,
            &(tu_model_fetch){"probability", {TU_F32, TU_SHAPE(1, classes)}, probabilities});
    }
    for (int64_t k = 0; k < classes; k++) probabilities[k] = 0;
    for (size_t i = 0; i < p->count; i++) {
        network *n = &p->networks[i];
        const tu_feed feed = {n->images, p->image};
        TU_TRY(tu_run(n->program, n->trained.state, 1, &feed, (void *[]){p->probability}));
        for (int64_t k = 0; k < classes; k++) probabilities[k] += p->probability[k] / (float)p->count;
    }
    return TU_OK;
}

tu_status tu_predict(tu_predictor *p, const char *file, float *probabilities) {
    int64_t channels = p->input.shape.dim[2];
    if (channels != 1 && channels != 3)
        return tu_fail(TU_UNSUPPORTED,
                       "the run was trained on images of %" PRId64 " channels: image files have 1 or 3",
                       channels);
    tu__image file_image;
    TU_TRY(tu__image_load(file, (int)channels, &file_image));
    tu_status status = fit_to_input(p, &file_image);
    tu__image_free(&file_image);
    return status == TU_OK ? run_networks(p, probabilities) : status;
}

/* ---- Images in memory ---- */

tu_type tu_predictor_input(const tu_predictor *p) {
    return p->input;
}

/* Copies float pixels to `image` in the data set's type. `index` is for messages. */
static tu_status set_floats(tu_predictor *p, int64_t index, const float *numbers) {
    size_t count = pixels_of(p);
    if (p->input.dtype == TU_F32) {
        memcpy(p->image, numbers, count * sizeof *numbers);
        return TU_OK;
    }
    uint8_t *bytes = p->image;
    for (size_t i = 0; i < count; i++) {
        if (!(numbers[i] >= 0 && numbers[i] <= 1))
            return tu_fail(TU_INVALID,
                           "image %" PRId64
                           ": pixel %zu is %g: expected 0 to 1, because the run was trained on 8-bit images",
                           index, i, (double)numbers[i]);
        bytes[i] = (uint8_t)(numbers[i] * 255 + 0.5f);
    }
    return TU_OK;
}

tu_status tu_predict_images(tu_predictor *p, tu_dtype dtype, const void *images, int64_t count,
                            float *probabilities) {
    size_t pixels = pixels_of(p);
    if (dtype != TU_U8 && dtype != TU_F32)
        return tu_fail(TU_INVALID, "images have dtype %s: expected u8 or f32", tu_dtype_name(dtype));
    if (count < 0 || (count > 0 && (!images || !probabilities)))
        return tu_fail(
            TU_INVALID,
            "cannot predict %" PRId64
            " images: expected a count of at least 0, and pointers to the images and to their probabilities",
            count);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TU_U8)
            set_pixels(p, (const uint8_t *)images + (size_t)i * pixels);
        else
            TU_TRY(set_floats(p, i, (const float *)images + (size_t)i * pixels));
        TU_TRY(run_networks(p, probabilities + i * p->classes));
    }
    return TU_OK;
}
