/* Sums over parts: how the pass `replicate` makes one value out of shares.
 *
 * The parts of one replica are added first, by halves, then the sums of the replicas, pairwise: at a collective of the
 * mirrored ones (all_reduce), or on the central device, in the same order. With as many replicas as a power of two that is
 * one and the same tree over the parts, however many replicas there are, which is what --invariant promises. A replica
 * that is alone meets nobody, but meets: devices fuse what stands between collectives, and what they fuse can be seen in the
 * last bits.
 *
 * A collective has its price whatever its size, so sums share one: they fill a bucket in the order in which the backward pass
 * makes them, until it holds enough to be worth its way. What later sums are computed from (statistics of batch-norm)
 * cannot wait for these: such sums have buckets of their own, closed by the first sum that hangs on one. Collectives are numbered by
 * their last sums, so a collective hangs on collectives with lower numbers alone. */
#include <stdio.h>

#include "base/alloc.h"
#include "pass/replicate.h"

enum {
    BUCKET_BYTES = 4 << 20,
    FEWEST_ROUNDED = 1024, /* elements of a share that travels as bf16: smaller ones weigh nothing */
};

/* ---- What travels ---- */

/* Gradients as bf16 where asked for, but not what parts go on to compute with: statistics. Whole numbers as f64, which
 * holds those below 2^53, since collectives add floats. */
static tu_dtype travelling_type(const tu__replicator *p, tu__edge edge) {
    tu_type type = tu_edge_type(p->r.from, edge);
    if (!tu_dtype_is_float(type.dtype)) return p->how->strategy == TU__MIRRORED ? TU_F64 : type.dtype;
    bool rounds = p->how->bf16_gradients && !tu__replicated_at(p, edge)->feeds_parts &&
                  type.dtype == TU_F32 && tu_shape_elements(type.shape) >= FEWEST_ROUNDED;
    return rounds ? TU_BF16 : type.dtype;
}

/* ---- Collectives ---- */

enum { NO_BUCKET = -1 };

typedef struct bucket {
    uint64_t bytes;
    size_t last; /* the sum that closed it, by its place among all */
    uint32_t number;
} bucket;

typedef struct bucketing {
    bucket *buckets;
    int64_t count;
    int64_t at_once, at_leisure; /* the open ones; NO_BUCKET: none */
    int64_t *of_sum;             /* sum, by its place among all -> its bucket */
    size_t sums;
    int64_t *newest; /* per node: the newest bucket for sums needed at once that it hangs on */
} bucketing;

static int64_t open_bucket(bucketing *b) {
    return b->count++;
}

static void put_in_bucket(const tu__replicator *p, bucketing *b, tu__edge edge) {
    const tu__replicated *value = tu__replicated_at(p, edge);
    tu_type type = p->r.from->nodes[edge.node]->outputs[edge.output];
    if (b->at_once != NO_BUCKET && b->newest[edge.node] == b->at_once) b->at_once = NO_BUCKET;
    int64_t *open = value->feeds_parts ? &b->at_once : &b->at_leisure;
    if (*open == NO_BUCKET) *open = open_bucket(b);
    bucket *into = &b->buckets[*open];
    type.dtype = travelling_type(p, edge);
    into->bytes += tu_type_bytes(type);
    into->last = b->sums;
    b->of_sum[b->sums++] = *open;
    if (!value->feeds_parts && into->bytes >= BUCKET_BYTES) b->at_leisure = NO_BUCKET;
}

/* The newest bucket that a node hangs on through its inputs, before its own sums are put into theirs. */
static int64_t newest_of_inputs(const bucketing *b, const tu__node *node) {
    int64_t newest = NO_BUCKET;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (b->newest[node->inputs[i].node] > newest) newest = b->newest[node->inputs[i].node];
    for (uint32_t i = 0; i < node->after_count; i++)
        if (b->newest[node->after[i]] > newest) newest = b->newest[node->after[i]];
    return newest;
}

static void fill_buckets(const tu__replicator *p, bucketing *b) {
    for (uint32_t id = 0; id < p->r.from->node_count; id++) {
        const tu__node *node = p->r.from->nodes[id];
        b->newest[id] = newest_of_inputs(b, node);
        int64_t own = NO_BUCKET;
        for (uint32_t i = 0; i < node->output_count; i++) {
            const tu__replicated *value = tu__replicated_at(p, (tu__edge){id, i});
            if (!value->summed) continue;
            put_in_bucket(p, b, (tu__edge){id, i});
            if (value->feeds_parts) own = b->of_sum[b->sums - 1];
        }
        if (own != NO_BUCKET) b->newest[id] = own;
    }
}

static void number_buckets(const tu__replicator *p, bucketing *b) {
    uint32_t number = 0;
    for (size_t i = 0; i < b->sums; i++)
        if (b->buckets[b->of_sum[i]].last == i) b->buckets[b->of_sum[i]].number = number++;
    size_t sum = 0;
    for (uint32_t id = 0; id < p->r.from->node_count; id++)
        for (uint32_t i = 0; i < p->r.from->nodes[id]->output_count; i++) {
            tu__replicated *value = tu__replicated_at(p, (tu__edge){id, i});
            if (value->summed) value->collective = b->buckets[b->of_sum[sum++]].number;
        }
}

static size_t count_sums(const tu__replicator *p) {
    size_t count = 0;
    for (uint32_t id = 0; id < p->r.from->node_count; id++)
        for (uint32_t i = 0; i < p->r.from->nodes[id]->output_count; i++)
            count += tu__replicated_at(p, (tu__edge){id, i})->summed;
    return count;
}

tu_status tu__number_collectives(tu__replicator *p) {
    size_t sums = count_sums(p), nodes = p->r.from->node_count;
    bucketing b = {.at_once = NO_BUCKET,
                   .at_leisure = NO_BUCKET,
                   .buckets = tu__arena_alloc(&p->arena, (sums + 1) * sizeof *b.buckets),
                   .of_sum = tu__arena_alloc(&p->arena, (sums + 1) * sizeof *b.of_sum),
                   .newest = tu__arena_alloc(&p->arena, (nodes + 1) * sizeof *b.newest)};
    if (!b.buckets || !b.of_sum || !b.newest) return TU_NO_MEMORY;
    fill_buckets(p, &b);
    number_buckets(p, &b);
    return TU_OK;
}

/* ---- Adding up ---- */

/* What is being added: an output of a node, for the names of what it takes. */
typedef struct sum {
    tu__replicator *p;
    const tu__node *node;
    uint32_t output;
} sum;

static tu_value insert(const sum *s, const char *what, size_t number, tu__node_request request) {
    char suffix[48];
    if (s->output)
        snprintf(suffix, sizeof suffix, ":%u%s", s->output, what);
    else
        snprintf(suffix, sizeof suffix, "%s", what);
    return tu__replicator_insert(s->p, s->node, suffix, number, &request);
}

static tu_value add(const sum *s, size_t number, const char *device, tu_value a, tu_value b) {
    return insert(s, "/add", number,
                  (tu__node_request){
                      .op = TU__OP_ADD, .inputs = (tu_value[]){a, b}, .input_count = 2, .device = device});
}

static tu_value cast(const sum *s, size_t number, const char *device, tu_value x, tu_dtype dtype) {
    if (!tu_ok(x) || tu_value_dtype(x) == dtype) return x;
    struct tu__cast_attrs a = {.dtype = dtype};
    return insert(
        s, "/cast", number,
        (tu__node_request){.op = TU__OP_CAST, .attrs = &a, .inputs = &x, .input_count = 1, .device = device});
}

/* By halves, so that half of a replica's parts is the sum that one of twice as many replicas would bring. An odd number
 * adds its last to the sum of the others. */
static tu_value add_by_halves(const sum *s, size_t replica, const tu_value *values, size_t count) {
    if (count == 1) return values[0];
    size_t first = count % 2 ? count - 1 : count / 2;
    return add(s, replica, tu__place_device(s->p, replica), add_by_halves(s, replica, values, first),
               add_by_halves(s, replica, values + first, count - first));
}

/* ((0 + 1) + (2 + 3)) + 4: as a collective does. */
static tu_value add_pairwise(const sum *s, const char *device, tu_value *values, size_t count) {
    for (; count > 1; count = (count + 1) / 2)
        for (size_t i = 0; i < count; i += 2)
            values[i / 2] = i + 1 < count ? add(s, 0, device, values[i], values[i + 1]) : values[i];
    return values[0];
}

/* Every replica brings its sum and takes away that of all. The sums that are brought are made before the first meets, so
 * that the order of nodes is one in which they can be computed. */
static void meet(const sum *s, tu_value *sums, tu_dtype dtype, tu__edge *whole) {
    tu__replicator *p = s->p;
    tu__edge edge = {s->node->id, s->output};
    for (size_t i = 0; i < p->replicas; i++)
        sums[i] = cast(s, i, tu__place_device(p, i), sums[i], travelling_type(p, edge));
    for (size_t i = 0; i < p->replicas; i++) {
        struct tu__all_reduce_attrs a = {.collective = tu__replicated_at(p, edge)->collective,
                                         .rank = (int64_t)i,
                                         .ranks = (int64_t)p->replicas};
        sums[i] = insert(s, "/sum", i,
                         (tu__node_request){.op = TU__OP_ALL_REDUCE,
                                            .attrs = &a,
                                            .inputs = (tu_value[]){sums[i]},
                                            .input_count = 1,
                                            .device = tu__place_device(p, i)});
    }
    for (size_t i = 0; i < p->replicas; i++) {
        tu_value result = cast(s, i, tu__place_device(p, i), sums[i], dtype);
        whole[i] = (tu__edge){result.node, result.output};
    }
}

static void add_on_central(const sum *s, tu_value *sums, tu_dtype dtype, tu__edge *whole) {
    tu__replicator *p = s->p;
    size_t central = p->places - 1;
    const char *device = tu__place_device(p, central);
    tu__edge edge = {s->node->id, s->output};
    for (size_t i = 0; i < p->replicas; i++) {
        sums[i] = cast(s, i, tu__place_device(p, i), sums[i], travelling_type(p, edge));
        sums[i] = cast(s, i, device, sums[i], dtype);
    }
    tu_value result = add_pairwise(s, device, sums, p->replicas);
    whole[central] = (tu__edge){result.node, result.output};
}

tu_status tu__sum_partials(tu__replicator *p, const tu__node *node, uint32_t output, tu_value *shares) {
    sum s = {.p = p, .node = node, .output = output};
    tu_dtype dtype = node->outputs[output].dtype;
    size_t each = p->parts / p->replicas;
    tu__edge *whole = tu__replicator_edges(p, p->places);
    if (!whole) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->replicas; i++) shares[i] = add_by_halves(&s, i, shares + i * each, each);
    if (p->how->strategy == TU__CENTRAL)
        add_on_central(&s, shares, dtype, whole);
    else
        meet(&s, shares, dtype, whole);
    tu__replicated_at(p, (tu__edge){node->id, output})->whole = whole;
    return tu_graph_status(p->r.to);
}
