/* Compiles every kernel with the real NVRTC, for the compute capability FAKE_CUDA_CAPABILITY. The driver is a fake
 * that launches nothing, so no GPU is needed and results are not checked.
 *
 * test_cuda_compiles INSTANCES_PER_CASE
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/communicator.h"
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
    const tu_collective what = {.struct_size = sizeof what, .count = 1, .combinations = combination};
    if (device->api->build_collective(device->instance, queue, &what, &executable) != TU_OK) return false;
    bool ok = device->api->launch(device->instance, executable, 0, 1) == TU_OK &&
              device->api->synchronize(queue, TU_ALL_EVENTS, -1, &done) == TU_OK;
    device->api->executable_free(device->instance, executable);
    return ok;
}

enum { RANKS = 9, ELEMENTS = 5 };

static bool is_summed(tu__collective_kind kind) {
    return kind == TU__ALL_REDUCE || kind == TU__REDUCE_SCATTER;
}

/* Runs the part of the last rank, whose rows are not aligned to 16 bytes if there are several ranks. */
static bool compile_collective(const tu__device *device, tu_queue *queue, tu__collective_kind kind,
                               tu_dtype dtype, uint32_t ranks, void *address) {
    tu__communicator c;
    const tu_type type = {dtype, TU_SHAPE(kind == TU__REDUCE_SCATTER ? ranks * ELEMENTS : ELEMENTS)};
    if (tu__communicator_new(&c, kind, 0, ranks, 1, &type) != TU_OK) return false;
    for (uint32_t r = 0; r < ranks; r++) tu__communicator_register(&c, r, 0, address, address);
    bool ok = tu__communicator_connect(&c) == TU_OK;
    for (uint32_t r = 0; ok && r<ranks; r += ranks> 1 ? ranks - 1 : 1)
        ok = run_combination(device, queue, tu__communicator_of_rank(&c, r));
    tu__communicator_free(&c);
    return ok;
}

/* Collectives are not computed by kernels of a graph: compiles the kernels of all kinds of collectives, for every type
 * and number of ranks. */
static bool compile_collectives(void) {
    tu__device *device;
    size_t count;
    void *address = NULL;
    tu_queue *queue = NULL;
    if (tu__devices_open("gpu:0", NULL, 1, &device, &count) != TU_OK) return false;
    bool ok = device->api->allocate(device->instance, false, RANKS * ELEMENTS * sizeof(double), &address) ==
                  TU_OK &&
              device->api->queue_new(device->instance, 0, &queue) == TU_OK;
    for (uint32_t i = 0; i < 4 * TU_DTYPE_COUNT * RANKS && ok; i++) {
        tu__collective_kind kind = (tu__collective_kind)(i % 4);
        tu_dtype dtype = (tu_dtype)(i / 4 % TU_DTYPE_COUNT);
        if (is_summed(kind) && !tu_dtype_is_float(dtype)) continue;
        ok = compile_collective(device, queue, kind, dtype, 1 + i / (4 * TU_DTYPE_COUNT), address);
    }
    if (!ok) printf("collectives: %s\n", tu_message());
    if (queue) device->api->queue_free(device->instance, queue);
    if (address) device->api->release(device->instance, address);
    tu__devices_close(1, &device);
    return ok;
}

/* Convolutions of models, which no case has. */
static bool compile_model_convolution(tu_dtype dtype, int64_t filters, int64_t size) {
    tu_graph *graph;
    tu_program *program = NULL;
    if (tu_graph_new(&graph) != TU_OK) return false;
    tu_value x = tu_input(graph, "x", dtype, TU_SHAPE(1, 7, 7, 64)),
             filter = tu_input(graph, "filter", dtype, TU_SHAPE(filters, size, size, 64)),
             y = tu_convolve(x, filter);
    graph->is_frozen = true;
    bool ok = tu_compile(graph, &program, .devices = "gpu:0", .fetch = &y, .fetch_count = 1) == TU_OK &&
              tu_warm_up(program, NULL) == TU_OK;
    if (!ok) printf("convolution of a model: %s\n", tu_message());
    tu_program_free(program);
    tu_graph_free(graph);
    return ok;
}

/* Few results: every number of blocks that share the depth. */
static void compile_model_convolutions(int *compiled, int *failed) {
    static const int64_t filters[] = {32, 64, 2048}, sizes[] = {1, 2, 3};
    for (int i = 0; i < 18; i++)
        ++*(compile_model_convolution(i % 2 ? TU_BF16 : TU_F16, filters[i / 2 % 3], sizes[i / 6]) ? compiled
                                                                                                  : failed);
}

/* Wide tiles: every size, and every number of blocks that share the depth. Other GPUs than those of capability 9.0 have none, and
 * use another kernel. */
static void compile_wide_convolutions(int *compiled, int *failed) {
    for (int i = 0; i < 48; i++) {
        char setting[32];
        snprintf(setting, sizeof setting, "wide %dx%d/%d", 64 << i / 16, 64 << i / 8 % 2, 1 << i / 2 % 4);
        setenv("TUTTI_CONV", setting, 1);
        ++*(compile_model_convolution(i % 2 ? TU_BF16 : TU_F16, 128, 3) ? compiled : failed);
    }
    unsetenv("TUTTI_CONV");
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
    compile_model_convolutions(&compiled, &failed);
    compile_wide_convolutions(&compiled, &failed);
    if (compile_collectives())
        compiled++;
    else
        failed++;
    printf("%d compiled, %d failed\n", compiled, failed);
    return failed || !compiled;
}
