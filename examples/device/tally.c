/* Example of a device plug-in: "tally" has memory separate from the host's, computes every node by its reference
 * kernel, and counts how many kernels it launched.
 *
 *     cc -shared -fPIC tally.c $(pkg-config --cflags --libs tutti) -o tally.so
 *     TUTTI_DEVICES=./tally.so tutti devices
 *
 * To support your own hardware, start from this file: first implement memory and copies, then replace
 * tu_node_evaluate by your own kernels, one operation after another. ../pointwise_source.c generates those of pointwise
 * operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#ifndef TALLY_ABI /* the tests also build a plug-in with another ABI, and one with an older, shorter table */
#define TALLY_ABI TU_DEVICE_ABI
#endif
#ifndef TALLY_SIZE
#define TALLY_SIZE sizeof(tu_device_api)
#define TALLY_KIND "tally"
#endif

struct tu_device_instance {
    uint64_t launched;
};

typedef struct tally_plan { /* one kernel per node, one buffer per value */
    tu_plan plan;
    const tu_graph *graph;
    tu_buffer *buffers;
    tu_kernel *kernels;
    uint32_t *indices; /* the kernels' lists of nodes, reads and writes, concatenated */
} tally_plan;

struct tu_executable {
    const tally_plan *plan;
    tu_binding binding;
};

static tu_status describe(tu_device_instance *device, int index, tu_device_info *info) {
    (void)device;
    if (index > 0) return TU_NOT_FOUND;
    *info = (tu_device_info){.name = TALLY_KIND ":0",
                             .kind = TALLY_KIND,
                             .description = "example plug-in: counts the kernels it launches",
                             .cores = 1};
    return TU_OK;
}

static tu_status open_device(const tu_open_options *options, tu_device_instance **device) {
    (void)options;
    *device = calloc(1, sizeof **device);
    return *device ? TU_OK : tu_fail(TU_NO_MEMORY, "tally: out of memory");
}

static void close_device(tu_device_instance *device) {
    if (getenv("TALLY_VERBOSE"))
        fprintf(stderr, "tally: %llu kernels launched\n", (unsigned long long)device->launched);
    free(device);
}

static tu_status allocate(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    (void)device, (void)on_host;
    *address = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    return *address ? TU_OK : tu_fail(TU_NO_MEMORY, "tally: cannot allocate %zu bytes", bytes);
}

static void release(tu_device_instance *device, void *address) {
    (void)device;
    free(address);
}

static tu_status copy(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                      size_t bytes) {
    (void)device, (void)queue;
    memcpy(to.address, from.address, bytes);
    return TU_OK;
}

static void plan_free(tu_device_instance *device, tu_plan *plan) {
    (void)device;
    tally_plan *p = (tally_plan *)plan;
    free(p->buffers);
    free(p->kernels);
    free(p->indices);
    free(p);
}

/* Returns the index of a value's buffer; adds the buffer on first use. */
static uint32_t buffer_of(tally_plan *p, tu_edge value) {
    for (uint32_t i = 0; i < p->plan.buffer_count; i++)
        if (p->buffers[i].value.node == value.node && p->buffers[i].value.output == value.output) return i;
    p->buffers[p->plan.buffer_count] =
        (tu_buffer){.bytes = tu_type_bytes(tu_edge_type(p->graph, value)), .value = value, .dense = true};
    return p->plan.buffer_count++;
}

static tu_status lower(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    tally_plan *p = calloc(1, sizeof *p);
    if (!p) return tu_fail(TU_NO_MEMORY, "tally: out of memory");
    size_t values = partition->export_count;
    for (uint32_t i = 0; i < partition->node_count; i++)
        values += 1 + tu_node_inputs(partition->graph, partition->nodes[i], 0, NULL) +
                  tu_node_outputs(partition->graph, partition->nodes[i]);
    p->graph = partition->graph;
    p->plan.struct_size = sizeof p->plan;
    p->buffers = calloc(values + 1, sizeof *p->buffers);
    p->kernels = calloc(partition->node_count + 1, sizeof *p->kernels);
    p->indices = calloc(values + 1, sizeof *p->indices);
    tu_edge *inputs = calloc(values + 1, sizeof *inputs);
    if (!p->buffers || !p->kernels || !p->indices || !inputs) {
        free(inputs);
        plan_free(device, &p->plan);
        return tu_fail(TU_NO_MEMORY, "tally: out of memory");
    }
    uint32_t *next = p->indices;
    for (uint32_t i = 0; i < partition->node_count; i++) {
        uint32_t node = partition->nodes[i],
                 reads = tu_node_inputs(partition->graph, node, (uint32_t)values, inputs);
        uint32_t writes = tu_node_outputs(partition->graph, node);
        p->kernels[i] = (tu_kernel){.name = tu_node_operation(partition->graph, node),
                                    .node_count = 1,
                                    .nodes = next,
                                    .read_count = reads,
                                    .write_count = writes,
                                    .reads = next + 1,
                                    .writes = next + 1 + reads};
        *next++ = node;
        for (uint32_t k = 0; k < reads; k++) *next++ = buffer_of(p, inputs[k]);
        for (uint32_t k = 0; k < writes; k++) *next++ = buffer_of(p, (tu_edge){node, k});
    }
    for (uint32_t i = 0; i < partition->export_count; i++) buffer_of(p, partition->exports[i]);
    free(inputs);
    p->plan.buffers = p->buffers;
    p->plan.kernels = p->kernels;
    p->plan.kernel_count = partition->node_count;
    *plan = &p->plan;
    return TU_OK;
}

static tu_status build(tu_device_instance *device, tu_queue *queue, tu_plan *plan, const tu_binding *binding,
                       tu_executable **executable) {
    (void)device, (void)queue;
    *executable = malloc(sizeof **executable);
    if (!*executable) return tu_fail(TU_NO_MEMORY, "tally: out of memory");
    **executable = (tu_executable){(const tally_plan *)plan, *binding};
    return TU_OK;
}

static void executable_free(tu_device_instance *device, tu_executable *executable) {
    (void)device;
    free(executable);
}

enum { MAX_OPERANDS = 64 };

static tu_status launch(tu_device_instance *device, tu_executable *e, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++) {
        const tu_kernel *k = &e->plan->plan.kernels[e->binding.order[i]];
        const void *in[MAX_OPERANDS];
        void *out[MAX_OPERANDS];
        if (k->read_count > MAX_OPERANDS || k->write_count > MAX_OPERANDS)
            return tu_fail(TU_UNSUPPORTED, "tally: %s has more than %d operands", k->name, MAX_OPERANDS);
        for (uint32_t r = 0; r < k->read_count; r++) in[r] = e->binding.buffers[k->reads[r]];
        for (uint32_t w = 0; w < k->write_count; w++) out[w] = e->binding.buffers[k->writes[w]];
        TU_TRY(tu_node_evaluate(e->plan->graph, k->nodes[0], *e->binding.seed, in, out));
        device->launched++;
    }
    return TU_OK;
}

TU_API const tu_device_api *tu_device_plugin(void);
const tu_device_api *tu_device_plugin(void) {
    static const tu_device_api api = {
        .abi = TALLY_ABI,
        .struct_size = TALLY_SIZE,
        .kind = TALLY_KIND,
        .describe = describe,
        .open = open_device,
        .close = close_device,
        .allocate = allocate,
        .release = release,
        .copy = copy,
        .lower = lower,
        .plan_free = plan_free,
        .build = build,
        .executable_free = executable_free,
        .launch = launch,
    };
    return &api;
}
