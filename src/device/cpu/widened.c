/* Conversion between bf16 and f32 around a kernel: see widened.h. */
#include "device/cpu/widened.h"

#include "base/parallel.h"

enum { GRAIN = 1 << 14 }; /* minimum elements per worker */

static size_t f32_bytes(int64_t elements) {
    return ((size_t)elements * sizeof(float) + 63) / 64 * 64;
}

size_t cpu_widened_workspace(const cpu_widened *w) {
    return f32_bytes(w->first) + f32_bytes(w->second) + f32_bytes(w->out);
}

typedef struct conversion {
    const cpu_loops_convert *loops;
    const void *from;
    void *to;
} conversion;

static void widen_range(void *context, int64_t first, int64_t last, int worker) {
    const conversion *c = context;
    (void)worker;
    c->loops->load[TU_BF16](last - first, (const uint16_t *)c->from + first, (float *)c->to + first);
}

static void narrow_range(void *context, int64_t first, int64_t last, int worker) {
    const conversion *c = context;
    (void)worker;
    c->loops->store[TU_BF16](last - first, (const float *)c->from + first, (uint16_t *)c->to + first);
}

void cpu_widen(const cpu_widened *w, const cpu_direct_operands *narrow, cpu_direct_operands *wide) {
    char *first = narrow->workspace, *second = first + f32_bytes(w->first),
         *out = second + f32_bytes(w->second);
    conversion first_operand = {w->loops->convert, narrow->first, first};
    conversion second_operand = {w->loops->convert, narrow->second, second};
    tu__parallel_for(w->first, GRAIN, widen_range, &first_operand);
    tu__parallel_for(w->second, GRAIN, widen_range, &second_operand);
    *wide = (cpu_direct_operands){
        .first = first, .second = second, .out = out, .workspace = out + f32_bytes(w->out)};
}

void cpu_narrow(const cpu_widened *w, const cpu_direct_operands *wide, const cpu_direct_operands *narrow) {
    conversion result = {w->loops->convert, wide->out, narrow->out};
    tu__parallel_for(w->out, GRAIN, narrow_range, &result);
}
