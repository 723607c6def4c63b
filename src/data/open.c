/* From what a user wrote to a set: names, paths, and what to say about neither. */
#include <string.h>

#include "base/nearest.h"
#include "data/dataset.h"
#include "graph/graph.h"

const char *const tu__dataset_names[] = {"cifar10", "mnist", "generated", NULL};

static tu_status refuse(const char *spec) {
    const char *nearest = tu__nearest(spec, tu__dataset_names, 3);
    if (nearest) return tu_fail(TU_NOT_FOUND, "unknown data set '%s'; did you mean '%s'?", spec, nearest);
    return tu_fail(TU_NOT_FOUND,
                   "unknown data set '%s': expected cifar10, mnist, generated, a folder of class folders, or "
                   "IMAGES.npy,LABELS.npy",
                   spec);
}

tu_status tu_dataset_open_with(const char *spec, tu_dataset **set, const tu_dataset_options *options) {
    TU__OPTIONS(tu_dataset_options, o, options);
    if (strcmp(spec, "generated") == 0) return tu__open_generated(set);
    return refuse(spec);
}
