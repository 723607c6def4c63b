/* What a program weighs: the report, the table of kernels, and the refusal of what does not fit. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "run/program.h"

static bool is_read_as_leaf(const tu__part *part, uint32_t node) {
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (part->leaves[i].node == node) return true;
    return false;
}

/* Of the variables that the part reads or assigns. */
static size_t variable_bytes(const tu_program *p, const tu__part *part) {
    const tu_graph *g = p->unit.graph;
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (g->nodes[part->leaves[i].node]->op->code == TU__OP_VARIABLE)
            bytes += tu_type_bytes(g->nodes[part->leaves[i].node]->outputs[0]);
    for (uint32_t i = 0; i < part->update_count; i++)
        if (!is_read_as_leaf(part, part->updates[i].variable))
            bytes += tu_type_bytes(g->nodes[part->updates[i].variable]->outputs[0]);
    return bytes;
}

/* Constants, and the room where values wait that are exchanged between variables. */
static size_t constant_bytes(const tu_program *p, const tu__part *part) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (p->unit.graph->nodes[part->leaves[i].node]->op->code == TU__OP_CONSTANT)
            bytes += (part->plan->buffers[part->leaves[i].buffer].bytes + 63) & ~(size_t)63;
    for (uint32_t i = 0; i < part->update_count; i++)
        if (tu__update_waits(part, &part->updates[i]))
            bytes += part->plan->buffers[part->updates[i].buffer].bytes;
    return bytes;
}

tu_status tu_program_memory(const tu_program *program, size_t index, tu_memory_report *report) {
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND, "the program has %zu devices: there is no number %zu",
                       program->device_count, index);
    const tu__part *part = &program->parts[index];
    bool ran = program->bound != 0;
    *report = (tu_memory_report){.device = part->device->name,
                                 .scratch_bytes = part->memory.scratch_bytes,
                                 .constant_bytes = constant_bytes(program, part),
                                 .variable_bytes = variable_bytes(program, part),
                                 .taken_bytes = ran ? part->device->scratch_bytes + part->constant_bytes : 0};
    return TU_OK;
}

/* ---- Refusing ---- */

enum { SHOWN = 5 };

/* The largest buffers of a part, heaviest first. */
static uint32_t heaviest(const tu__part *part, uint32_t shown[SHOWN]) {
    uint32_t count = 0;
    for (uint32_t b = 0; b < part->plan->buffer_count; b++) {
        if (part->plan->buffers[b].value.node == TU_NO_NODE || part->memory.storage[b] == TU__STORAGE_UNUSED)
            continue;
        uint32_t at = count < SHOWN ? count++ : SHOWN;
        while (at > 0 && part->plan->buffers[shown[at - 1]].bytes < part->plan->buffers[b].bytes) {
            if (at < SHOWN) shown[at] = shown[at - 1];
            at--;
        }
        if (at < SHOWN) shown[at] = b;
    }
    return count;
}

static double mib(double bytes) {
    return bytes / 1048576;
}

/* Samples in a batch: the first axis of the largest batched input; 0: there is none. */
static int64_t batch_of(const tu_graph *g) {
    int64_t batch = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_INPUT && tu__attrs(g->nodes[i], input)->batched)
            batch = g->nodes[i]->outputs[0].shape.dim[0];
    return batch;
}

typedef struct shares {     /* of the bytes of all scratch buffers, which of them would shrink */
    double batched, single; /* grow with the batch; are f32 */
} shares;

static shares shares_of(const tu_program *p, const tu__part *part) {
    const tu_graph *g = p->unit.graph;
    double all = 0, batched = 0, single = 0;
    int64_t batch = batch_of(g);
    for (uint32_t b = 0; b < part->plan->buffer_count; b++) {
        const tu_buffer *buffer = &part->plan->buffers[b];
        if (part->memory.storage[b] != TU__STORAGE_SCRATCH || buffer->value.node == TU_NO_NODE) continue;
        tu_type type = tu_edge_type(g, buffer->value);
        all += (double)buffer->bytes;
        if (batch && type.shape.rank > 0 && type.shape.dim[0] % batch == 0) batched += (double)buffer->bytes;
        if (type.dtype == TU_F32) single += (double)buffer->bytes;
    }
    return all > 0 ? (shares){batched / all, single / all} : (shares){0, 0};
}

static void add_remedy(tu__text *t, const char *what, double bytes) {
    if (bytes >= 1024) tu__text_printf(t, "%s about %.3g MiB;", what, mib(bytes));
}

static tu_status refuse(const tu_program *p, const tu__part *part, size_t need, uint64_t limit) {
    uint32_t shown[SHOWN], count = heaviest(part, shown);
    tu__text t = {0};
    tu__text_printf(&t,
                    "device '%s' would need %.4g MiB, the limit is %.4g MiB. Heaviest:", part->device->name,
                    mib((double)need), mib((double)limit));
    for (uint32_t i = 0; i < count; i++) {
        const tu_buffer *b = &part->plan->buffers[shown[i]];
        tu__text_printf(&t, "%s '%s' %.3g MiB", i ? "," : "", p->unit.graph->nodes[b->value.node]->name,
                        mib((double)b->bytes));
    }
    double scratch = (double)part->memory.scratch_bytes;
    shares s = shares_of(p, part);
    tu__text_printf(&t, ". What would help, and save:");
    add_remedy(&t, " half the batch", scratch * s.batched / 2);
    add_remedy(&t, " bf16", scratch * s.single / 2);
    if (p->unit.updates) add_remedy(&t, " tu_recompute around half of the layers", scratch * s.batched / 4);
    tu_status status = tu_fail(TU_NO_MEMORY, "%s", tu__text_string(&t));
    tu__text_free(&t);
    return status;
}

/* What the device has, where it says so. */
static uint64_t memory_of(const tu__device *device) {
    tu_device_info info;
    return device->api->describe(device->options.index, &info) == TU_OK ? info.memory_bytes : 0;
}

tu_status tu__check_memory(const tu_program *program, uint64_t limit) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__part *part = &program->parts[i];
        uint64_t most = limit ? limit : memory_of(part->device);
        size_t need =
            part->memory.scratch_bytes + constant_bytes(program, part) + variable_bytes(program, part);
        if (most && need > most) return refuse(program, part, need, most);
    }
    return TU_OK;
}

/* ---- The table of kernels ---- */

tu_status tu_program_print(const tu_program *program, FILE *out) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__part *part = &program->parts[i];
        for (uint32_t k = 0; k < part->plan->kernel_count; k++) {
            const tu_kernel *kernel = &part->plan->kernels[part->order[k]];
            size_t bytes = 0;
            for (uint32_t r = 0; r < kernel->read_count; r++)
                bytes += part->plan->buffers[kernel->reads[r]].bytes;
            for (uint32_t w = 0; w < kernel->write_count; w++)
                bytes += part->plan->buffers[kernel->writes[w]].bytes;
            fprintf(out, "%-8s %-28s %3u nodes %9.2f MiB  %s\n", part->device->name, kernel->name,
                    kernel->node_count, mib((double)bytes),
                    program->unit.graph->nodes[kernel->nodes[0]]->name);
        }
        fprintf(out, "%-8s scratch %.2f MiB, constants %.2f MiB, variables %.2f MiB\n", part->device->name,
                mib((double)part->memory.scratch_bytes), mib((double)constant_bytes(program, part)),
                mib((double)variable_bytes(program, part)));
    }
    return ferror(out) ? tu_fail(TU_IO, "the table of kernels could not be written") : TU_OK;
}
