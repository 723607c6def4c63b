/* The built-in networks. Each is a tu_network_definition, like a user's network: a name, default options, and a function
 * from images, rows or tokens to logits. The registry adds inputs, loss and results in the same way for all. */
#ifndef TU__NETWORK_NETWORK_H
#define TU__NETWORK_NETWORK_H

#include <tutti/layers.h>
#include <tutti/network.h>
#include <tutti/task.h>

#define TU__BUILT_IN .abi = TU_ABI, .struct_size = sizeof(tu_network_definition)

extern const tu_network_definition tu__mlp, tu__tutorial_cnn, tu__resnet20, tu__resnet18, tu__resnet50,
    tu__wide_resnet_16_4, tu__char_gpt, tu__gpt2_124m, tu__gpt2_355m, tu__gpt2_774m, tu__gpt2_1558m;

/* Tasks that loaded files define; NULL from the count on. And the task of the file that defines a network; NULL: none. */
const tu_task *tu__loaded_task(size_t index);
const tu_task *tu__network_task(const char *network);
/* Loads a file that defines a network, a task or both; names are NULL for what it does not define. */
tu_status tu__load_definitions(const char *path, const char **network, const char **task);

/* Returns the parameters that a network declares. A definition that was compiled before there were any has none. */
const tu_network_parameter *tu__network_parameters(const tu_network_definition *network, size_t *count);

enum { TU__PARAMETERS_TEXT = 4096 };
/* Writes the values of all parameters of a network: those of `given` ("depth=3", may be NULL), else the defaults. Fails for
 * unknown names and values out of range. */
tu_status tu__network_fill_parameters(const tu_network_definition *network, const char *given,
                                      char text[TU__PARAMETERS_TEXT]);
/* Fails if a network declares parameters that cannot be used. */
tu_status tu__network_check_parameters(const char *path, const tu_network_definition *network);

/* Returns the network of this name, or NULL with a message. */
const tu_network_definition *tu__network_find(const char *name);

/* Registers a user's network. The definition must stay valid until the process ends. */
tu_status tu__network_add(const tu_network_definition *definition);

#endif
