/* tu_predict: what a run's network says of pictures.
 *
 * A picture of any size is fitted to the size of the set's images in the way image folders are (data/fit.h); what follows,
 * the network's own preprocessing, is part of its graph. */
#include <string.h>

#include "base/alloc.h"
#include "data/fit.h"
#include "graph/graph.h"
#include "io/image.h"
#include "train/stepper.h"
#include "train/trained.h"

struct tu_predictor {
    tu__trained trained;
    tu_program *program;
    tu_value images;
    void *image; /* what the program is fed with */
};

static tu_status open_predictor(tu_predictor *p, const char *folder, const tu_trained_options *o) {
    TU_TRY(tu__trained_open(folder, "predict", o, &p->trained));
    tu_graph *graph = p->trained.graph;
    const tu__settings *s = &p->trained.config.settings;
    p->images = tu__find_input(graph, "images");
    int64_t channels = p->trained.config.set.channels;
    if (channels != 1 && channels != 3)
        return tu_fail(TU_UNSUPPORTED, "the run was trained on images of %lld channels: pictures have 1 or 3",
                       (long long)channels);
    p->image = tu__alloc_aligned(tu_type_bytes(tu_value_type(p->images)), "a picture");
    if (!p->image) return TU_NO_MEMORY;
    tu_value probability = tu_find_output(graph, "probability");
    return tu_compile(graph, &p->program, .devices = s->devices, .threads = (int)s->threads,
                      .precision = s->precision, .tune_kernels = s->tune_kernels, .place = s->place,
                      .strict_placement = s->strict_placement, .fetch = &probability, .fetch_count = 1);
}

tu_status tu_predictor_new_with(const char *folder, tu_predictor **predictor,
                                const tu_trained_options *options) {
    TU__OPTIONS(tu_trained_options, o, options);
    *predictor = NULL;
    tu_predictor *p = tu__alloc(sizeof *p, "a predictor");
    if (!p) return TU_NO_MEMORY;
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
    tu_program_free(p->program);
    tu__free_aligned(p->image);
    tu__trained_close(&p->trained);
    tu__free(p);
}

int64_t tu_predictor_classes(const tu_predictor *p, const char *const **names) {
    if (names) *names = p->trained.config.set.class_names;
    return p->trained.config.set.classes;
}

/* The picture's bytes as the set's type: f32 sets hold pixels of 0 … 1. */
static void take_pixels(tu_predictor *p, const uint8_t *pixels) {
    const tu_dataset_info *set = &p->trained.config.set;
    size_t count = (size_t)(set->height * set->width * set->channels);
    if (set->dtype == TU_U8) {
        memcpy(p->image, pixels, count);
        return;
    }
    float *numbers = p->image;
    for (size_t i = 0; i < count; i++) numbers[i] = (float)pixels[i] / 255;
}

static tu_status fit(tu_predictor *p, const tu__image *picture) {
    const tu_dataset_info *set = &p->trained.config.set;
    uint8_t *pixels = tu__alloc((size_t)(set->height * set->width * set->channels), "a picture");
    if (!pixels) return TU_NO_MEMORY;
    tu_status status = tu__fit_image(picture, set->height, set->width, set->channels, pixels);
    if (status == TU_OK) take_pixels(p, pixels);
    tu__free(pixels);
    return status;
}

tu_status tu_predict(tu_predictor *p, const char *file, float *probabilities) {
    tu__image picture;
    TU_TRY(tu__image_load(file, (int)p->trained.config.set.channels, &picture));
    tu_status status = fit(p, &picture);
    tu__image_free(&picture);
    TU_TRY(status);
    const tu_feed feed = {p->images, p->image};
    return tu_run(p->program, p->trained.state, 1, &feed, (void *[]){probabilities});
}
