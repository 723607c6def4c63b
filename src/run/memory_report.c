/* What a program weighs: the report, the table of kernels, and the refusal of what does not fit. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "run/program.h"

static size_t variable_bytes(const tu_program *p, const tu__part *part) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++) {
        const tu__node *node = p->unit.graph->nodes[part->leaves[i].node];
        if (node->op->code == TU__OP_VARIABLE) bytes += tu_type_bytes(node->outputs[0]);
    }
    return bytes;
}

static size_t constant_bytes(const tu_program *p, const tu__part *part) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < part->leaf_count; i++)
        if (p->unit.graph->nodes[part->leaves[i].node]->op->code == TU__OP_CONSTANT)
            bytes += (part->plan->buffers[part->leaves[i].buffer].bytes + 63) & ~(size_t)63;
    return bytes;
}

tu_status tu_program_memory(const tu_program *program, size_t index, tu_memory_report *report) {
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND, "the program has %zu devices: there is no number %zu",
                       program->device_count, index);
    const tu__part *part = &program->parts[index];
    bool ran = program->bound != NULL;
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

static tu_status refuse(const tu_program *p, const tu__part *part, size_t need, uint64_t limit) {
    uint32_t shown[SHOWN], count = heaviest(part, shown);
    tu__text t = {0};
    tu__text_printf(&t,
                    "device '%s' would need %.1f MiB, the limit is %.1f MiB. Heaviest:", part->device->name,
                    mib((double)need), mib((double)limit));
    for (uint32_t i = 0; i < count; i++) {
        const tu_buffer *b = &part->plan->buffers[shown[i]];
        tu__text_printf(&t, "%s '%s' %.1f MiB", i ? "," : "", p->unit.graph->nodes[b->value.node]->name,
                        mib((double)b->bytes));
    }
    double scratch = (double)part->memory.scratch_bytes;
    tu__text_printf(
        &t,
        ". What would help: half the batch saves about %.1f MiB; bf16 about %.1f MiB; recomputing the "
        "larger half of the activations (tu_recompute) up to %.1f MiB",
        mib(scratch / 2), mib(scratch / 2), mib(scratch / 2));
    tu_status status = tu_fail(TU_NO_MEMORY, "%s", tu__text_string(&t));
    tu__text_free(&t);
    return status;
}

tu_status tu__check_memory(const tu_program *program, uint64_t limit) {
    for (size_t i = 0; limit && i < program->device_count; i++) {
        const tu__part *part = &program->parts[i];
        size_t need =
            part->memory.scratch_bytes + constant_bytes(program, part) + variable_bytes(program, part);
        if (need > limit) return refuse(program, part, need, limit);
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
