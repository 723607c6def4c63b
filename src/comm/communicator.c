/* Communicators within one process: registrations are addresses. */
#include "comm/communicator.h"

static void sort_values(tu__communicator *c, const tu_type *types) {
    uint32_t sorted = 0;
    for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++) {
        uint32_t first = sorted;
        for (uint32_t v = 0; v < c->value_count; v++) {
            if ((int)types[v].dtype != dtype) continue;
            c->segment_of[v] = sorted;
            void **in = c->addresses + 2 * (size_t)sorted * c->ranks;
            c->segments[sorted++] = (tu_combine_segment){.in = (const void *const *)in,
                                                         .out = in + c->ranks,
                                                         .count = (size_t)tu_shape_elements(types[v].shape)};
        }
        if (sorted == first) continue;
        c->combinations[c->combination_count++] = (tu_combination){.struct_size = sizeof(tu_combination),
                                                                   .dtype = (tu_dtype)dtype,
                                                                   .ranks = c->ranks,
                                                                   .segment_count = sorted - first,
                                                                   .segments = c->segments + first};
    }
}

tu_status tu__communicator_new(tu__communicator *c, uint32_t ranks, uint32_t value_count,
                               const tu_type *types) {
    *c = (tu__communicator){
        .ranks = ranks, .value_count = value_count, .arena = {.purpose = "a communicator"}};
    c->combinations = tu__arena_alloc(&c->arena, (size_t)ranks * TU_DTYPE_COUNT * sizeof *c->combinations);
    c->segments = tu__arena_alloc(&c->arena, value_count * sizeof *c->segments);
    c->segment_of = tu__arena_alloc(&c->arena, value_count * sizeof *c->segment_of);
    c->addresses = tu__arena_alloc(&c->arena, 2 * (size_t)value_count * ranks * sizeof(void *));
    if (!c->combinations || !c->segments || !c->segment_of || !c->addresses) {
        tu__communicator_free(c);
        return TU_NO_MEMORY;
    }
    sort_values(c, types);
    for (uint32_t r = 1; r < ranks; r++)
        for (uint32_t i = 0; i < c->combination_count; i++) {
            c->combinations[r * c->combination_count + i] = c->combinations[i];
            c->combinations[r * c->combination_count + i].rank = r;
        }
    return TU_OK;
}

const tu_combination *tu__communicator_of_rank(const tu__communicator *c, uint32_t rank) {
    return c->combinations + (size_t)rank * c->combination_count;
}

void tu__communicator_free(tu__communicator *c) {
    tu__arena_free(&c->arena);
    *c = (tu__communicator){0};
}

void tu__communicator_register(tu__communicator *c, uint32_t rank, uint32_t value, const void *in,
                               void *out) {
    union { /* the array has one type for inputs and results */
        const void *constant;
        void *address;
    } cast = {in};
    void **addresses = c->addresses + 2 * (size_t)c->segment_of[value] * c->ranks;
    addresses[rank] = cast.address;
    addresses[c->ranks + rank] = out;
}
