/* The built-in networks are definitions like a user's own: a name, settings, and a function from images to logits.
 * The inputs, the loss and the names of the results are the registry's, the same for all. */
#ifndef TU__MODEL_MODEL_H
#define TU__MODEL_MODEL_H

#include <tutti/layers.h>
#include <tutti/model.h>

#define TU__BUILT_IN .abi = TU_ABI, .struct_size = sizeof(tu_model_definition)

extern const tu_model_definition tu__mlp, tu__tutorial_cnn, tu__resnet20, tu__resnet18, tu__resnet50,
    tu__wide_resnet_16_4;

/* Makes a user's network known by its name. The definition must outlive the program. */
tu_status tu__model_add(const tu_model_definition *definition);

#endif
