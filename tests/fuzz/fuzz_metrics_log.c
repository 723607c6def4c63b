/* Reads arbitrary bytes as metrics.jsonl, and resumes the run at the step that the first byte selects. What a resumed run
 * keeps must be whole lines of the file, and reading them must give the same curves. */
#include <stdint.h>

#include "fuzz/input_file.h"
#include "train/metrics_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

static void require_same(const tu__series *a, const tu__series *b) {
    require(a->count == b->count);
    if (a->count == 0) return;
    require(memcmp(a->epoch, b->epoch, a->count * sizeof *a->epoch) == 0);
    require(memcmp(a->loss, b->loss, a->count * sizeof *a->loss) == 0);
    require(memcmp(a->accuracy, b->accuracy, a->count * sizeof *a->accuracy) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const tu__run_config config = {.metric_count = 1, .metrics = {{"accuracy", false}}};
    tu__metrics_log all, kept, again;
    tu__log_summary last;
    if (size < 1) return 0;
    int64_t step = data[0];
    write_input("metrics.jsonl", data + 1, size - 1);
    require(tu__metrics_log_read(input_folder(), &config, &all, &last) == TU_OK);
    require(tu__metrics_log_open(input_folder(), &config, step, &kept) == TU_OK);
    require((size_t)kept.size < size);
    require(kept.size == 0 || data[kept.size] == '\n');
    require(kept.train.count <= all.train.count && kept.validation.count <= all.validation.count &&
            kept.test.count <= all.test.count);
    require(tu__metrics_log_read(input_folder(), &config, &again, &last) == TU_OK);
    require(last.step <= step);
    require_same(&kept.train, &again.train);
    require_same(&kept.validation, &again.validation);
    require_same(&kept.test, &again.test);
    tu__metrics_log_close(&all);
    tu__metrics_log_close(&kept);
    tu__metrics_log_close(&again);
    return 0;
}
