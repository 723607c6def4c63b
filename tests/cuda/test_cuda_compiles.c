/* Compiles every kernel with the real NVRTC, for the compute capability FAKE_CUDA_CAPABILITY. The driver is a fake
 * that launches nothing, so no GPU is needed and results are not checked.
 *
 * test_cuda_compiles INSTANCES_PER_CASE
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "ops/run_case.h"

static bool compile_instance(case_run *c) {
    double *results[CASE_MAX_OUTPUTS] = {0};
    bool ok = case_evaluate(c, "gpu", 1, results);
    for (int i = 0; i < c->output_count; i++) free(results[i]);
    return ok;
}

static bool compile_case(const op_case *entry, tu_dtype dtype, int instances) {
    case_run *c = case_begin(entry, dtype, 21);
    bool ok = true;
    for (int i = 0; i < instances && ok; i++) {
        case_next_instance(c);
        if (dtype == TU_F32 && !(entry->flags & CASE_NO_GRADIENT)) case_add_gradients(c);
        ok = tu_graph_status(c->graph) == TU_OK && compile_instance(c);
    }
    case_end(c);
    return ok;
}

static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};

static bool run_combination(const tu__device *device, tu_queue *queue, const tu_combination *combination) {
    tu_executable *executable;
    bool done;
    if (device->api->build_collective(device->instance, queue, 1, combination, &executable) != TU_OK)
        return false;
    bool ok = device->api->launch(device->instance, executable, 0, 1) == TU_OK &&
              device->api->synchronize(queue, TU_ALL_EVENTS, -1, &done) == TU_OK;
    device->api->executable_free(device->instance, executable);
    return ok;
}

/* Collective sums are not operations of a graph: compiles their kernel for every type and number of ranks. */
static bool compile_combinations(void) {
    enum { RANKS = 9, ELEMENTS = 5 };
    tu__device *device;
    size_t count;
    void *address = NULL;
    tu_queue *queue = NULL;
    if (tu__devices_open("gpu:0", NULL, 1, &device, &count) != TU_OK) return false;
    bool ok = device->api->allocate(device->instance, false, ELEMENTS * sizeof(double), &address) == TU_OK &&
              device->api->queue_new(device->instance, 0, &queue) == TU_OK;
    for (uint32_t i = 0; i < 4 * RANKS && ok; i++) {
        const void *in[RANKS];
        void *out[RANKS];
        for (int r = 0; r < RANKS; r++) in[r] = out[r] = address;
        const tu_combine_segment segment = {in, out, ELEMENTS};
        const tu_combination combination = {.struct_size = sizeof combination,
                                            .dtype = types[i % 4],
                                            .ranks = 1 + i / 4,
                                            .segment_count = 1,
                                            .segments = &segment};
        ok = run_combination(device, queue, &combination);
    }
    if (!ok) printf("combinations: %s\n", tu_message());
    if (queue) device->api->queue_free(device->instance, queue);
    if (address) device->api->release(device->instance, address);
    tu__devices_close(1, &device);
    return ok;
}

int main(int argc, char **argv) {
    int compiled = 0, failed = 0, instances = argc > 1 ? atoi(argv[1]) : 2;
    for (const op_case *e = case_first(); e; e = e->next)
        for (int i = 0; i < 4 && !(e->flags & CASE_CPU_ONLY); i++) {
            if (types[i] != TU_F32 && types[i] != TU_F64 && e->flags & CASE_NO_16_BIT) continue;
            if (compile_case(e, types[i], instances))
                compiled++;
            else
                failed++;
        }
    if (compile_combinations())
        compiled++;
    else
        failed++;
    printf("%d compiled, %d failed\n", compiled, failed);
    return failed || !compiled;
}
