/* Initial weights from a file or another run: --init. */
#ifndef TU__TRAIN_INITIALIZE_H
#define TU__TRAIN_INITIALIZE_H

#include <tutti/run.h>

#include "base/text.h"

/* Sets every variable of the network for which `source` (a run folder or a safetensors file) has a tensor with the
 * same name and shape. Uses the moving averages if the source has them. Writes one line for the user to `summary`:
 * how many variables were loaded, which keep their initial values because no tensor matches (for example a last layer
 * with other classes), and which tensors were unused. Fails if nothing matches, or if the source is a damaged
 * checkpoint. */
tu_status tu__initialize_from(const char *source, tu_state *state, tu__text *summary);

#endif
