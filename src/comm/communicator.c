/* Communicators within one process: registrations are addresses. */
#include "comm/communicator.h"

#include "comm/lines.h"

/* ---- Creating and registering ---- */

tu_status tu__communicator_new(tu__communicator *c, tu__collective_kind kind, uint32_t root, uint32_t ranks,
                               uint32_t value_count, const tu_type *types) {
    *c = (tu__communicator){.kind = kind,
                            .root = root,
                            .ranks = ranks,
                            .all_ranks = ranks,
                            .value_count = value_count,
                            .arena = {.purpose = "a communicator"},
                            .connections = {.purpose = "a communicator"}};
    size_t registrations = (size_t)value_count * ranks;
    c->dtypes = tu__arena_alloc(&c->arena, value_count * sizeof *c->dtypes);
    c->counts = tu__arena_alloc(&c->arena, value_count * sizeof *c->counts);
    c->in = tu__arena_alloc(&c->arena, registrations * sizeof *c->in);
    c->out = tu__arena_alloc(&c->arena, registrations * sizeof *c->out);
    if (!c->dtypes || !c->counts || !c->in || !c->out) {
        tu__communicator_free(c);
        return TU_NO_MEMORY;
    }
    for (uint32_t v = 0; v < value_count; v++) {
        c->dtypes[v] = types[v].dtype;
        c->counts[v] = (size_t)tu_shape_elements(types[v].shape);
    }
    return TU_OK;
}

void tu__communicator_free(tu__communicator *c) {
    tu__arena_free(&c->connections);
    tu__arena_free(&c->arena);
    *c = (tu__communicator){0};
}

void tu__communicator_span(tu__communicator *c, uint32_t first_rank, uint32_t all_ranks) {
    c->spans_processes = true;
    c->first_rank = first_rank;
    c->all_ranks = all_ranks;
}

void tu__communicator_register(tu__communicator *c, uint32_t rank, uint32_t value, const void *in,
                               void *out) {
    c->in[(size_t)value * c->ranks + rank] = in;
    c->out[(size_t)value * c->ranks + rank] = out;
}

const tu_combination *tu__communicator_of_rank(const tu__communicator *c, uint32_t rank) {
    return c->combinations + (size_t)rank * c->combination_count;
}

/* ---- Whose inputs and outputs a rank uses ---- */

/* The rows of every rank are combined separately, not slices of all elements. */
static bool has_rows(const tu__communicator *c) {
    return c->kind == TU__REDUCE_SCATTER || c->kind == TU__ALL_GATHER;
}

static bool is_sum(const tu__communicator *c) {
    return c->kind != TU__ALL_GATHER && c->kind != TU__BROADCAST;
}

typedef struct rank_range { /* of this process */
    uint32_t first, count;
} rank_range;

/* Returns a rank, of all processes, as one of this process; none if it is not here. */
static rank_range only(const tu__communicator *c, uint32_t rank) {
    bool is_here = rank >= c->first_rank && rank - c->first_rank < c->ranks;
    return is_here ? (rank_range){rank - c->first_rank, 1} : (rank_range){0, 0};
}

/* Returns the ranks whose inputs the combinations of `rank` read. */
static rank_range inputs_of(const tu__communicator *c, uint32_t rank) {
    if (is_sum(c)) return (rank_range){0, c->ranks};
    return only(c, c->kind == TU__BROADCAST ? c->root : rank);
}

static rank_range outputs_of(const tu__communicator *c, uint32_t rank) {
    if (c->kind == TU__REDUCE_SCATTER) return only(c, rank);
    return c->kind == TU__REDUCE ? only(c, c->root) : (rank_range){0, c->ranks};
}

uint32_t tu__communicator_rank_of_input(const tu__communicator *c, uint32_t rank, uint32_t index) {
    return inputs_of(c, rank).first + index;
}

uint32_t tu__communicator_rank_of_output(const tu__communicator *c, uint32_t rank, uint32_t index) {
    return outputs_of(c, rank).first + index;
}

uint32_t tu__communicator_portion_count(const tu__communicator *c) {
    return has_rows(c) ? c->all_ranks : 1;
}

uint32_t tu__communicator_rank_of_portion(const tu__communicator *c, uint32_t portion) {
    return has_rows(c) ? portion : c->root;
}

/* ---- Connecting ---- */

typedef struct share { /* elements of a value that one rank combines */
    uint32_t value;
    size_t first_in, first_out, count;
} share;

static tu_status add_segment(tu__communicator *c, uint32_t rank, const share *s, tu_combination *combination,
                             tu_combine_segment *segments) {
    size_t size = tu_dtype_size(combination->dtype), base = (size_t)s->value * c->ranks;
    const void **in = tu__arena_alloc(&c->connections, combination->in_count * sizeof *in);
    void **out = tu__arena_alloc(&c->connections, combination->out_count * sizeof *out);
    if (!in || !out) return TU_NO_MEMORY;
    const void *const *inputs = c->in + base + inputs_of(c, rank).first;
    void *const *outputs = c->out + base + outputs_of(c, rank).first;
    for (uint32_t k = 0; k < combination->in_count; k++) in[k] = (const char *)inputs[k] + s->first_in * size;
    for (uint32_t k = 0; k < combination->out_count; k++) out[k] = (char *)outputs[k] + s->first_out * size;
    segments[combination->segment_count++] = (tu_combine_segment){.in = in, .out = out, .count = s->count};
    return TU_OK;
}

/* The values of one element type: `elements` has a segment per value, of which only `count` is set. */
typedef struct typed_values {
    tu_combination elements;
    const uint32_t *values; /* per segment */
} typed_values;

/* Adds a rank's slice of all elements, for kinds whose results have the elements of their inputs. */
static tu_status add_slice(tu__communicator *c, uint32_t rank, const typed_values *t, tu_combination *to,
                           tu_combine_segment *segments) {
    size_t first, lines = tu__lines_of_rank(&t->elements, rank, c->spans_processes ? 1 : c->ranks, &first);
    tu__line_iterator iterator = tu__lines_begin(&t->elements, first, lines);
    tu__segment_range range;
    while (tu__lines_next(&iterator, SIZE_MAX, &range)) {
        share s = {t->values[range.segment], range.first, range.first, range.count};
        TU_TRY(add_segment(c, rank, &s, to, segments));
    }
    return TU_OK;
}

/* Adds a rank's rows of every value. */
static tu_status add_rows(tu__communicator *c, uint32_t rank, const typed_values *t, tu_combination *to,
                          tu_combine_segment *segments) {
    for (uint32_t i = 0; i < t->elements.segment_count; i++) {
        size_t count = t->elements.segments[i].count;
        if (c->kind == TU__REDUCE_SCATTER) count /= c->all_ranks;
        share s = {.value = t->values[i], .count = count};
        *(c->kind == TU__REDUCE_SCATTER ? &s.first_in : &s.first_out) = rank * count;
        TU_TRY(add_segment(c, rank, &s, to, segments));
    }
    return TU_OK;
}

static tu_status connect_rank(tu__communicator *c, uint32_t rank, const typed_values *t, tu_combination *to) {
    tu_combine_segment *segments =
        tu__arena_alloc(&c->connections, t->elements.segment_count * sizeof *segments);
    if (!segments) return TU_NO_MEMORY;
    *to = (tu_combination){.struct_size = sizeof *to,
                           .dtype = t->elements.dtype,
                           .in_count = inputs_of(c, rank).count,
                           .out_count = outputs_of(c, rank).count,
                           .segments = segments};
    return has_rows(c) ? add_rows(c, rank, t, to, segments) : add_slice(c, rank, t, to, segments);
}

/* Lists the values of one element type. */
static tu_status list_values(tu__communicator *c, tu_dtype dtype, typed_values *t) {
    uint32_t *values = tu__arena_alloc(&c->connections, c->value_count * sizeof *values);
    tu_combine_segment *segments = tu__arena_alloc(&c->connections, c->value_count * sizeof *segments);
    if (!values || !segments) return TU_NO_MEMORY;
    *t = (typed_values){.elements = {.dtype = dtype, .segments = segments}, .values = values};
    for (uint32_t v = 0; v < c->value_count; v++) {
        if (c->dtypes[v] != dtype) continue;
        segments[t->elements.segment_count] = (tu_combine_segment){.count = c->counts[v]};
        values[t->elements.segment_count++] = v;
    }
    return TU_OK;
}

static bool has_value_of(const tu__communicator *c, tu_dtype dtype) {
    for (uint32_t v = 0; v < c->value_count; v++)
        if (c->dtypes[v] == dtype) return true;
    return false;
}

static tu_status make_combinations(tu__communicator *c, uint32_t count) {
    uint32_t ranks = c->spans_processes ? tu__communicator_portion_count(c) : c->ranks;
    c->combinations = tu__arena_alloc(&c->connections, (size_t)ranks * count * sizeof *c->combinations);
    if (!c->combinations) return TU_NO_MEMORY;
    for (uint32_t dtype = 0, index = 0; dtype < TU_DTYPE_COUNT; dtype++) {
        typed_values values;
        if (!has_value_of(c, (tu_dtype)dtype)) continue;
        TU_TRY(list_values(c, (tu_dtype)dtype, &values));
        for (uint32_t r = 0; r < ranks; r++)
            TU_TRY(connect_rank(c, r, &values, &c->combinations[r * count + index]));
        index++;
    }
    return TU_OK;
}

tu_status tu__communicator_connect(tu__communicator *c) {
    uint32_t count = 0;
    for (uint32_t dtype = 0; dtype < TU_DTYPE_COUNT; dtype++) count += has_value_of(c, (tu_dtype)dtype);
    tu__arena_free(&c->connections);
    c->combination_count = 0;
    TU_TRY(make_combinations(c, count));
    c->combination_count = count;
    return TU_OK;
}
