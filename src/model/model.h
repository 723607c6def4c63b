/* The built-in models. Each is a tu_model_definition, like a user's model: a name, default options, and a function
 * from images to logits. The registry adds inputs, loss and results in the same way for all. */
#ifndef TU__MODEL_MODEL_H
#define TU__MODEL_MODEL_H

#include <tutti/layers.h>
#include <tutti/model.h>

#define TU__BUILT_IN .abi = TU_ABI, .struct_size = sizeof(tu_model_definition)

extern const tu_model_definition tu__mlp, tu__tutorial_cnn, tu__resnet20, tu__resnet18, tu__resnet50,
    tu__wide_resnet_16_4;

/* Registers a user's model. The definition must stay valid until the process ends. */
tu_status tu__model_add(const tu_model_definition *definition);

#endif
