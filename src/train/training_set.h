/* Opens a data set for several runs that share it: the trials of a search, and the runs of a finder. */
#ifndef TU__TRAIN_TRAINING_SET_H
#define TU__TRAIN_TRAINING_SET_H

#include <tutti/train.h>

/* Opens `data` as a run of `network` with these options would: with the sizes, columns and windows that they choose. */
tu_status tu__training_set_open(const char *network, const char *data, const tu_train_options *options,
                                tu_progress progress, void *context, tu_dataset **set);
/* True if runs with these options report an accuracy: their task is classification. */
tu_status tu__training_set_has_accuracy(const char *network, const tu_dataset *set,
                                        const tu_train_options *options, bool *has_accuracy);

#endif
