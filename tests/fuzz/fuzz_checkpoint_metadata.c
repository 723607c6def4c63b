/* Reads the metadata of arbitrary bytes as a checkpoint, for a run with the metrics of classification and for one with
 * others. Counts that are accepted must be in range.
 *
 * Mutations seldom get the length of the header right, so that it is corrected; they never get the digest right, so that
 * the progress is read without it too. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint_metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

/* Writes the progress as metadata and reads it again. */
static void write_again(const tu__run_config *config, const tu__progress *progress) {
    tu__checkpoint_metadata *m = malloc(sizeof *m);
    tu__progress again = tu__progress_initial();
    if (!m) return;
    require(tu__metadata_build(config, progress, "", m) == TU_OK);
    char *contents = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&contents, &length);
    require(stream != NULL);
    fwrite("\0\0\0\0\0\0\0\0{\"__metadata__\":{", 1, 8 + 17, stream);
    for (size_t i = 0; i < m->count; i++)
        fprintf(stream, "%s\"%s\":\"%s\"", i ? "," : "", m->entries[i].key, m->entries[i].value);
    fputs("}}", stream);
    fclose(stream);
    uint64_t header = length - 8;
    memcpy(contents, &header, sizeof header);
    tu__safetensors file;
    require(tu__safetensors_parse("output", contents, length, &file) == TU_OK);
    require(tu__metadata_is_checkpoint(&file));
    require(tu__metadata_progress(&file, "output", config, &again) == TU_OK);
    require(again.step == progress->step && again.sample == progress->sample &&
            again.samples == progress->samples && again.best_step == progress->best_step);
    tu__safetensors_close(&file);
    free(contents);
    free(m);
}

static void read_progress(const tu__safetensors *file, const tu__run_config *config) {
    tu__progress progress = tu__progress_initial();
    tu_status status = tu__metadata_progress(file, "input", config, &progress);
    require(status == TU_OK || status == TU_CORRUPT);
    if (status != TU_OK) return;
    const int64_t counts[] = {progress.step, progress.sample, progress.samples};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        require(counts[i] >= 0 && counts[i] <= INT64_MAX / 2);
    write_again(config, &progress);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const tu__run_config images = {.model = "mlp",
                                          .task = "classification",
                                          .graph_digest = "",
                                          .dataset.digest = "",
                                          .metric_count = 2,
                                          .metrics = {{"accuracy", false}, {"top5", false}}};
    static const tu__run_config table = {.model = "mlp",
                                         .task = "regression",
                                         .graph_digest = "",
                                         .dataset.digest = "",
                                         .metric_count = 2,
                                         .metrics = {{"rmse", true}, {"mae", true}}};
    tu__safetensors file;
    if (size < 8) return 0;
    uint8_t *corrected = malloc(size);
    if (!corrected) return 0;
    memcpy(corrected, data, size);
    size_t end = size;
    while (end > 8 && corrected[end - 1] != '}') end--;
    uint64_t length = end - 8;
    memcpy(corrected, &length, sizeof length);
    if (tu__safetensors_parse("input", corrected, size, &file) == TU_OK) {
        tu_status status = tu__metadata_check(&file, "input");
        require(status == TU_OK || status == TU_CORRUPT);
        require(status != TU_OK || tu__metadata_is_checkpoint(&file));
        read_progress(&file, &images);
        read_progress(&file, &table);
    }
    tu__safetensors_close(&file);
    free(corrected);
    return 0;
}
