/* Makes the small data set look as if it were in memory, like mapped files: steps may then select its images by
 * index. */
#ifndef TUTTI_MEMORY_DATASET_H
#define TUTTI_MEMORY_DATASET_H

#include "data/dataset.h"
#include "train/fresh_run.h"

static inline void keep_dataset_in_memory(void) {
    static float pixels[2][SMALL_TRAIN][SMALL_SIDE * SMALL_SIDE];
    static int32_t classes[2][SMALL_TRAIN];
    static const int counts[2] = {SMALL_TRAIN, SMALL_TEST};
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        for (int i = 0; i < counts[split]; i++)
            assert_int_equal(
                small_dataset_read(NULL, (tu_split)split, i, pixels[split][i], &classes[split][i]), TU_OK);
        set->data[split][0] = pixels[split];
        set->data[split][1] = classes[split];
    }
}

static inline void stop_keeping_dataset_in_memory(void) {
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        set->data[split][0] = NULL;
        set->data[split][1] = NULL;
    }
}

#endif
