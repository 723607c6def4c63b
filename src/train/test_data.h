/* The test images on which a trained network is evaluated: those of its run's data set, or of another one with the same kind
 * of images and the same classes. */
#ifndef TU__TRAIN_TEST_DATA_H
#define TU__TRAIN_TEST_DATA_H

#include <tutti/train.h>

#include "train/run_folder.h"

typedef struct tu__test_data {
    const tu_dataset *set;
    tu_dataset *opened; /* NULL if the caller owns the set */
} tu__test_data;

/* Opens the data set that the options name (`data`, `set`), else that of the run. Fails unless the network can be
 * evaluated on it. Call tu__test_data_close even after a failure. */
tu_status tu__test_data_open(const tu__run_config *config, const tu_trained_options *options,
                             tu__test_data *data);
void tu__test_data_close(tu__test_data *data);

#endif
