/* Weights from elsewhere: what --init does. */
#ifndef TU__TRAIN_INITIALIZE_H
#define TU__TRAIN_INITIALIZE_H

#include <tutti/run.h>

#include "base/text.h"

/* Sets every variable of the network that `source` (a run folder, or a safetensors file) has under the same name in the
 * same shape; where the source keeps moving averages, from those. `story` is a line for the user: what was taken, what is
 * new because its name or shape differs (a last layer for other classes), what was left over. Refuses a source from which
 * nothing fits, and a checkpoint that is damaged. */
tu_status tu__initialize_from(const char *source, tu_state *state, tu__text *story);

#endif
