/* The refusal of a program that does not fit a device: how much is missing, what weighs most, what would help.
 *
 * One line, like every message; tu_program_peak lists the rest. What would help is computed, not guessed, and what saves
 * nothing is not offered: bf16 by planning the program again in bf16; the batch by the bytes at the peak whose first axis
 * counts samples; the batch in two pieces by half of these, less the sums of gradients it takes; recomputation by what the
 * backward pass keeps of the forward one. Nothing has been allocated on a device by then. */
#include <inttypes.h>
#include <string.h>

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

static bool is_gradient(const tu__node *node) {
    return strncmp(node->name, "grad/", 5) == 0 || strstr(node->name, "/grad/");
}

/* Whether a value of the forward pass is kept for the backward one, which tu_recompute would compute it again for. */
static bool is_kept(const tu_graph *g, const char *name) {
    const tu__node *node = tu__find_node(g, name);
    if (!node || node->op->code == TU__OP_INPUT || is_gradient(node)) return false;
    for (uint32_t i = node->id + 1; i < g->node_count; i++)
        for (uint32_t k = 0; is_gradient(g->nodes[i]) && k < g->nodes[i]->input_count; k++)
            if (g->nodes[i]->inputs[k].node == node->id) return true;
    return false;
}

typedef struct savings { /* bytes */
    uint64_t batched;    /* at the peak, that grow with the batch */
    uint64_t pieces;     /* by the batch in two pieces */
    uint64_t kept;       /* of `batched`, for the backward pass */
    uint64_t half;       /* by bf16 */
} savings;

static tu_status find_batched(const tu_program *p, size_t index, savings *s) {
    const tu_graph *g = p->unit.graph;
    int64_t batch = batch_of(g);
    size_t count = tu_program_peak_count(p, index);
    tu_memory_item *items = tu__alloc_array(count + 1, sizeof *items, "a memory report");
    if (!items) return TU_NO_MEMORY;
    items->struct_size = sizeof *items;
    tu_status status = tu_program_peak(p, index, count, items, &count);
    for (size_t i = 0; i < count && batch > 1; i++) {
        tu_shape shape = items[i].type.shape;
        if (items[i].kind != TU_MEMORY_TENSOR || shape.rank < 1 || shape.dim[0] % batch != 0 ||
            is_shaped_like_variable(g, shape))
            continue;
        s->batched += items[i].bytes;
        if (is_kept(g, items[i].name)) s->kept += items[i].bytes;
    }
    tu__free(items);
    return status;
}

/* Of the variables that are trained: as many bytes of gradients are summed up over the pieces of a batch. */
static uint64_t trained_bytes(const tu_graph *source) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < source->node_count; i++) {
        const tu__node *node = source->nodes[i];
        if (node->op->code != TU__OP_ASSIGN) continue;
        const tu__node *variable = source->nodes[node->inputs[0].node];
        if (!tu__attrs(variable, variable)->frozen) bytes += tu_type_bytes(variable->outputs[0]);
    }
    return bytes;
}

/* What the same program needs in bf16; as much as now where it cannot be had. */
static uint64_t need_in_bf16(const tu_program *p, size_t index, const tu_compile_options *options,
                             uint64_t now) {
    tu_compile_options o = *options;
    o.precision = "bf16";
    o.plan_only = true;
    tu_program *half = NULL;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    uint64_t need = now;
    if (tu_compile_with(p->source, &half, &o) != TU_OK) return now;
    if (tu_program_memory(half, index, &report) == TU_OK && report.need_bytes < now) need = report.need_bytes;
    tu_program_free(half);
    return need;
}

/* ---- The line ---- */

static void add_heaviest(tu__text *t, const tu_program *p, size_t index) {
    tu_memory_item items[SHOWN + 1] = {TU_SIZED(tu_memory_item)}; /* gaps may be among them */
    size_t count, shown = 0;
    if (tu_program_peak(p, index, SHOWN + 1, items, &count) != TU_OK) return;
    tu__text_printf(t, ". Heaviest at the peak:");
    for (size_t i = 0; i < count && shown < SHOWN; i++) {
        if (items[i].kind == TU_MEMORY_GAP) continue;
        tu__text_printf(t, "%s '%s' %.4g MiB", shown++ ? "," : "", items[i].name, mib(items[i].bytes));
    }
}

static tu_status find_savings(const tu_program *p, size_t index, const tu_compile_options *o, uint64_t need,
                              savings *s) {
    *s = (savings){.half = need - need_in_bf16(p, index, o, need)};
    TU_TRY(find_batched(p, index, s));
    uint64_t sums = trained_bytes(p->source);
    if (!o->updates)
        s->kept = 0; /* nothing is trained: it is no training step whose layers could be changed */
    if (o->updates && s->batched / 2 > sums) s->pieces = s->batched / 2 - sums;
    return TU_OK;
}

static void add_remedies(tu__text *t, const savings *s) {
    tu__text_printf(t, ". What would help:");
    if (s->batched) tu__text_printf(t, " a smaller batch, with which %.4g MiB shrink;", mib(s->batched));
    if (s->pieces)
        tu__text_printf(t, " the batch in two pieces (tu_add_accumulation), which saves about %.4g MiB;",
                        mib(s->pieces));
    if (s->kept) tu__text_printf(t, " tu_recompute around layers, which saves up to %.4g MiB;", mib(s->kept));
    if (s->half) tu__text_printf(t, " bf16, which saves %.4g MiB;", mib(s->half));
    tu__text_printf(t, " more memory");
}

static tu_status refuse(const tu_program *p, size_t index, const tu_compile_options *o,
                        const tu_memory_report *report) {
    savings s;
    TU_TRY(find_savings(p, index, o, report->need_bytes, &s));
    tu__text t = {0};
    tu__text_printf(&t, "device '%s' would need %.4g MiB, the limit is %.4g MiB", report->device,
                    mib(report->need_bytes), mib(report->limit_bytes));
    add_heaviest(&t, p, index);
    add_remedies(&t, &s);
    tu_status status = tu_fail(TU_NO_MEMORY, "%s", tu__text_string(&t));
    tu__text_free(&t);
    return status;
}

tu_status tu__check_memory(const tu_program *program, const tu_compile_options *options) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    for (size_t i = 0; i < program->device_count; i++) {
        TU_TRY(tu_program_memory(program, i, &report));
        if (report.limit_bytes && report.need_bytes > report.limit_bytes)
            return refuse(program, i, options, &report);
    }
    return TU_OK;
}
