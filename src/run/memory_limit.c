/* The error message for a program that does not fit a device: how much is missing, what is largest, what would help.
 *
 * It is one line, like every message; tu_program_peak lists the rest. Savings are computed: for bf16, by planning the
 * program again in bf16; for a smaller batch, from the bytes at the peak whose first axis is the batch; for two
 * micro-batches, half of these bytes minus the accumulated gradients; for recomputation, the activations kept for the
 * backward pass. What saves nothing is not listed. At this point nothing has been allocated on a device. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "run/program.h"

enum { MAX_SHOWN = 3 };

static double mib(uint64_t bytes) {
    return (double)bytes / 1048576;
}

/* ---- Savings ---- */

/* Returns the batch size, from the first axis of the batched inputs; 0 if there is none. */
static int64_t batch_of(const tu_graph *g) {
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_INPUT && tu__attrs(g->nodes[i], input)->batched)
            return g->nodes[i]->outputs[0].shape.dim[0];
    return 0;
}

/* True for gradients and next values, whose axes are a variable's, even if the first one has the length of the
 * batch. */
static bool is_shaped_like_variable(const tu_graph *g, tu_shape shape) {
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_VARIABLE && tu_shape_equal(g->nodes[i]->outputs[0].shape, shape))
            return true;
    return false;
}

static bool is_gradient(const tu__node *node) {
    return strncmp(node->name, "grad/", 5) == 0 || strstr(node->name, "/grad/");
}

/* True if a value of the forward pass is kept for the backward pass. tu_recompute would compute it again instead. */
static bool is_kept_for_backward(const tu_graph *g, const char *name) {
    const tu__node *node = tu__find_node(g, name);
    if (!node || node->op->code == TU__OP_INPUT || is_gradient(node)) return false;
    for (uint32_t i = node->id + 1; i < g->node_count; i++)
        for (uint32_t k = 0; is_gradient(g->nodes[i]) && k < g->nodes[i]->input_count; k++)
            if (g->nodes[i]->inputs[k].node == node->id) return true;
    return false;
}

typedef struct savings {        /* bytes */
    uint64_t batched;           /* at the peak, proportional to the batch size */
    uint64_t microbatches;      /* saved by two micro-batches */
    uint64_t kept_for_backward; /* of `batched`, kept for the backward pass */
    uint64_t bf16;              /* saved by bf16 */
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
        if (is_kept_for_backward(g, items[i].name)) s->kept_for_backward += items[i].bytes;
    }
    tu__free(items);
    return status;
}

/* Returns the bytes of the trained variables, which is also the size of the accumulated gradients. */
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

/* Returns the bytes that the program needs in bf16; `current_need` if it cannot be compiled in bf16. */
static uint64_t need_in_bf16(const tu_program *p, size_t index, const tu_compile_options *options,
                             uint64_t current_need) {
    tu_compile_options o = *options;
    o.precision = "bf16";
    o.plan_only = true;
    tu_program *bf16_program = NULL;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    uint64_t need = current_need;
    if (tu_compile_with(p->source, &bf16_program, &o) != TU_OK) return current_need;
    if (tu_program_memory(bf16_program, index, &report) == TU_OK && report.need_bytes < current_need)
        need = report.need_bytes;
    tu_program_free(bf16_program);
    return need;
}

/* ---- The message ---- */

static void add_largest(tu__text *t, const tu_program *p, size_t index) {
    tu_memory_item items[MAX_SHOWN + 1] = {TU_SIZED(tu_memory_item)}; /* one may be a gap */
    size_t count, shown = 0;
    if (tu_program_peak(p, index, MAX_SHOWN + 1, items, &count) != TU_OK) return;
    tu__text_printf(t, ". Largest at the peak:");
    for (size_t i = 0; i < count && shown < MAX_SHOWN; i++) {
        if (items[i].kind == TU_MEMORY_GAP) continue;
        tu__text_printf(t, "%s '%s' %.4g MiB", shown++ ? "," : "", items[i].name, mib(items[i].bytes));
    }
}

static tu_status find_savings(const tu_program *p, size_t index, const tu_compile_options *o, uint64_t need,
                              savings *s) {
    *s = (savings){.bf16 = need - need_in_bf16(p, index, o, need)};
    TU_TRY(find_batched(p, index, s));
    uint64_t gradient_bytes = trained_bytes(p->source);
    if (!o->updates)
        s->kept_for_backward = 0; /* it is not a training step, whose layers could be recomputed */
    if (o->updates && s->batched / 2 > gradient_bytes) s->microbatches = s->batched / 2 - gradient_bytes;
    return TU_OK;
}

static void add_remedies(tu__text *t, const savings *s) {
    tu__text_printf(t, ". What would help:");
    if (s->batched)
        tu__text_printf(t, " a smaller batch, to which %.4g MiB are proportional;", mib(s->batched));
    if (s->microbatches)
        tu__text_printf(t, " two micro-batches (tu_add_accumulation), which saves about %.4g MiB;",
                        mib(s->microbatches));
    if (s->kept_for_backward)
        tu__text_printf(t, " tu_recompute around layers, which saves up to %.4g MiB;",
                        mib(s->kept_for_backward));
    if (s->bf16) tu__text_printf(t, " bf16, which saves %.4g MiB;", mib(s->bf16));
    tu__text_printf(t, " more memory");
}

static tu_status fail_does_not_fit(const tu_program *p, size_t index, const tu_compile_options *o,
                                   const tu_memory_report *report) {
    savings s;
    TU_TRY(find_savings(p, index, o, report->need_bytes, &s));
    tu__text t = {0};
    tu__text_printf(&t, "device '%s' would need %.4g MiB, the limit is %.4g MiB", report->device,
                    mib(report->need_bytes), mib(report->limit_bytes));
    add_largest(&t, p, index);
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
            return fail_does_not_fit(program, i, options, &report);
    }
    return TU_OK;
}
