/* The refusal of a program that does not fit a device: how much is missing, what weighs most, what would help.
 *
 * One line, like every message; tu_program_peak lists the rest. What would help is computed, not guessed: bf16 by
 * planning the program again in bf16; the batch by the bytes at the peak whose first axis counts samples. Nothing has
 * been allocated on a device by then. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/text.h"
#include "run/program.h"

enum { SHOWN = 3 };

static double mib(uint64_t bytes) {
    return (double)bytes / 1048576;
}

/* ---- What would help ---- */

/* Samples in a batch: the first axis of the batched inputs; 0: there is none. */
static int64_t batch_of(const tu_graph *g) {
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_INPUT && tu__attrs(g->nodes[i], input)->batched)
            return g->nodes[i]->outputs[0].shape.dim[0];
    return 0;
}

/* A gradient or a next value: its axes are a variable's, whatever their lengths. */
static bool is_shaped_like_variable(const tu_graph *g, tu_shape shape) {
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_VARIABLE && tu_shape_equal(g->nodes[i]->outputs[0].shape, shape))
            return true;
    return false;
}

/* Bytes at the peak that grow with the batch. */
static tu_status batch_bytes(const tu_program *p, size_t index, uint64_t *bytes) {
    const tu_graph *g = p->unit.graph;
    int64_t batch = batch_of(g);
    size_t count = tu_program_peak(p, index, 0, NULL);
    tu_memory_item *items = tu__alloc_array(count, sizeof *items, "a memory report");
    if (!items) return TU_NO_MEMORY;
    tu_program_peak(p, index, count, items);
    *bytes = 0;
    for (size_t i = 0; i < count && batch > 1; i++) {
        tu_shape shape = items[i].type.shape;
        if (items[i].kind == TU_MEMORY_TENSOR && shape.rank > 0 && shape.dim[0] % batch == 0 &&
            !is_shaped_like_variable(g, shape))
            *bytes += items[i].bytes;
    }
    tu__free(items);
    return TU_OK;
}

/* What the same program needs in bf16; as much as now where it cannot be had. */
static uint64_t need_in_bf16(const tu_program *p, size_t index, const tu_compile_options *options,
                             uint64_t now) {
    tu_compile_options o = *options;
    o.precision = "bf16";
    o.plan_only = true;
    tu_program *half = NULL;
    tu_memory_report report;
    uint64_t need = now;
    if (tu_compile_with(p->source, &half, &o) != TU_OK) return now;
    if (tu_program_memory(half, index, &report) == TU_OK) need = report.need_bytes;
    tu_program_free(half);
    return need;
}

/* ---- The line ---- */

static void add_heaviest(tu__text *t, const tu_program *p, size_t index) {
    tu_memory_item items[SHOWN + 1]; /* gaps may be among them */
    size_t count = tu_program_peak(p, index, SHOWN + 1, items), shown = 0;
    tu__text_printf(t, ". Heaviest at the peak:");
    for (size_t i = 0; i < count && i <= SHOWN && shown < SHOWN; i++) {
        if (items[i].kind == TU_MEMORY_GAP) continue;
        tu__text_printf(t, "%s '%s' %.4g MiB", shown++ ? "," : "", items[i].name, mib(items[i].bytes));
    }
}

static tu_status refuse(const tu_program *p, size_t index, const tu_compile_options *o,
                        const tu_memory_report *report) {
    uint64_t need = report->need_bytes, batched, half = need_in_bf16(p, index, o, need);
    TU_TRY(batch_bytes(p, index, &batched));
    tu__text t = {0};
    tu__text_printf(&t, "device '%s' would need %.4g MiB, the limit is %.4g MiB", report->device, mib(need),
                    mib(report->limit_bytes));
    add_heaviest(&t, p, index);
    tu__text_printf(&t, ". What would help:");
    if (batched) tu__text_printf(&t, " a smaller batch, with which %.4g MiB shrink;", mib(batched));
    if (batched && o->updates) tu__text_printf(&t, " tu_recompute around layers, which drops some of these;");
    if (half < need) tu__text_printf(&t, " bf16, which saves %.4g MiB;", mib(need - half));
    tu__text_printf(&t, " more memory");
    tu_status status = tu_fail(TU_NO_MEMORY, "%s", tu__text_string(&t));
    tu__text_free(&t);
    return status;
}

tu_status tu__check_memory(const tu_program *program, const tu_compile_options *options) {
    tu_memory_report report;
    for (size_t i = 0; i < program->device_count; i++) {
        TU_TRY(tu_program_memory(program, i, &report));
        if (report.limit_bytes && report.need_bytes > report.limit_bytes)
            return refuse(program, i, options, &report);
    }
    return TU_OK;
}
