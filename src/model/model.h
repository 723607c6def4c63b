/* What a built-in network is to the registry: a name, its own settings, and a function from images to logits. The
 * inputs, the loss and the names of the results are the registry's, the same for all. */
#ifndef TU__MODEL_MODEL_H
#define TU__MODEL_MODEL_H

#include <tutti/layers.h>
#include <tutti/model.h>

typedef struct tu__model {
    const char *name, *summary;
    tu_model_options own; /* what a setting of zero stands for */
    /* images [n,h,w,c] -> logits [n,classes]. Every setting is given. */
    tu_value (*build)(tu_value images, const tu_model_options *settings);
} tu__model;

extern const tu__model tu__mlp, tu__tutorial_cnn, tu__resnet20;

#endif
