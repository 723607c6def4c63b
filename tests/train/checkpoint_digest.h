/* Computes the digest of a checkpoint's tensors, to compare it with the digest in tu_train_result. */
#ifndef TUTTI_CHECKPOINT_DIGEST_H
#define TUTTI_CHECKPOINT_DIGEST_H

#include "run/snapshot.h"
#include "train/small_dataset.h"

static inline int by_tensor_name(const void *a, const void *b) {
    return strcmp(((const tu__named_tensor *)a)->name, ((const tu__named_tensor *)b)->name);
}

static inline void checkpoint_digest(const char *run, const char *checkpoint, char digest[TU_DIGEST_TEXT]) {
    char path[8192];
    tu__safetensors file;
    snprintf(path, sizeof path, "%s/checkpoints/%s.safetensors", run, checkpoint);
    assert_int_equal(tu__safetensors_open(path, &file), TU_OK);
    tu__named_tensor *sorted = calloc(file.tensor_count, sizeof *sorted);
    assert_non_null(sorted);
    memcpy(sorted, file.tensors, file.tensor_count * sizeof *sorted);
    qsort(sorted, file.tensor_count, sizeof *sorted, by_tensor_name);
    tu__tensors_digest(file.tensor_count, sorted, digest);
    free(sorted);
    tu__safetensors_close(&file);
}

#endif
