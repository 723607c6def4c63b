/* Sums over shards: how the pass `replicate` adds partial sums.
 *
 * The shards of one replica are added first, in a binary tree, then the sums of the replicas, pairwise: by an
 * all-reduce if mirrored, or on the central device, in the same order. If the number of replicas is a power of two,
 * this is the same tree over the shards for any number of replicas, which is what --invariant guarantees. A single
 * replica also gets an all-reduce node: devices do not fuse across collectives, and fusion can change the last bits
 * of results.
 *
 * A collective has a fixed cost, so several sums share one: sums are put into a bucket in the order in which the
 * backward pass computes them, until the bucket is large enough. Sums that later sums depend on (batch-norm
 * statistics) cannot wait that long: they are put into separate buckets, closed by the first sum that depends on one.
 * Collectives are numbered by their last sums, so a collective depends only on collectives with lower numbers. */
#include <stdio.h>

#include "base/alloc.h"
#include "pass/replicate.h"

enum {
    /* Of the first bucket, if it is sent over a network: until it is full, nothing is sent. */
    FIRST_BUCKET_BYTES = 512 << 10,
    MIN_ROUNDED_ELEMENTS = 1024, /* smaller partial sums are not sent as bf16: it would save too little */
};

/* ---- Transfer types ---- */

/* Returns the dtype in which a partial sum is sent: bf16 for gradients if requested, but not for values that shards
 * continue to compute with (statistics). Integers are sent as f64, which is exact below 2^53, since collectives add
 * floats. */
static tu_dtype transfer_dtype(const tu__replicator *p, tu__edge edge) {
    tu_type type = tu_edge_type(p->r.from, edge);
    if (!tu_dtype_is_float(type.dtype)) return p->options->strategy == TU__MIRRORED ? TU_F64 : type.dtype;
    bool is_rounded = p->options->bf16_gradients && !tu__distributed_value_of(p, edge)->feeds_shards &&
                      type.dtype == TU_F32 && tu_shape_elements(type.shape) >= MIN_ROUNDED_ELEMENTS;
    return is_rounded ? TU_BF16 : type.dtype;
}

/* ---- Collectives ---- */

enum { NO_BUCKET = -1 };

typedef struct bucket {
    uint64_t bytes;
    size_t last;         /* index of the last sum put into it */
    uint32_t collective; /* its number */
} bucket;

typedef struct bucketing {
    bucket *buckets;
    int64_t count;
    int64_t urgent, deferred; /* the open buckets; NO_BUCKET: none. Urgent: sums that later sums depend on */
    int64_t full;             /* number of deferred buckets that are full */
    int64_t *bucket_of_sum;   /* indexed like the sums, in order */
    size_t sums;
    int64_t *newest_urgent; /* per node: the newest urgent bucket that it depends on */
} bucketing;

static int64_t open_bucket(bucketing *b) {
    return b->count++;
}

/* Returns the size from which on the open deferred bucket is full. */
static uint64_t full_bytes(const tu__replicator *p, const bucketing *b) {
    bool over_network = p->options->process_count && !p->options->processes_share_memory;
    return over_network && !b->full ? FIRST_BUCKET_BYTES : TU__BUCKET_BYTES;
}

static void add_to_bucket(const tu__replicator *p, bucketing *b, tu__edge edge) {
    const tu__distributed_value *value = tu__distributed_value_of(p, edge);
    tu_type type = p->r.from->nodes[edge.node]->outputs[edge.output];
    if (b->urgent != NO_BUCKET && b->newest_urgent[edge.node] == b->urgent) b->urgent = NO_BUCKET;
    int64_t *open = value->feeds_shards ? &b->urgent : &b->deferred;
    if (*open == NO_BUCKET) *open = open_bucket(b);
    bucket *into = &b->buckets[*open];
    type.dtype = transfer_dtype(p, edge);
    into->bytes += tu_type_bytes(type);
    into->last = b->sums;
    b->bucket_of_sum[b->sums++] = *open;
    if (value->feeds_shards || into->bytes < full_bytes(p, b)) return;
    b->deferred = NO_BUCKET;
    b->full++;
}

/* Returns the newest urgent bucket that a node's inputs depend on. */
static int64_t newest_urgent_of_inputs(const bucketing *b, const tu__node *node) {
    int64_t newest_urgent = NO_BUCKET;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (b->newest_urgent[node->inputs[i].node] > newest_urgent)
            newest_urgent = b->newest_urgent[node->inputs[i].node];
    for (uint32_t i = 0; i < node->after_count; i++)
        if (b->newest_urgent[node->after[i]] > newest_urgent)
            newest_urgent = b->newest_urgent[node->after[i]];
    return newest_urgent;
}

static void fill_buckets(const tu__replicator *p, bucketing *b) {
    for (uint32_t id = 0; id < p->r.from->node_count; id++) {
        const tu__node *node = p->r.from->nodes[id];
        b->newest_urgent[id] = newest_urgent_of_inputs(b, node);
        int64_t node_bucket = NO_BUCKET;
        for (uint32_t i = 0; i < node->output_count; i++) {
            const tu__distributed_value *value = tu__distributed_value_of(p, (tu__edge){id, i});
            if (!value->is_summed) continue;
            add_to_bucket(p, b, (tu__edge){id, i});
            if (value->feeds_shards) node_bucket = b->bucket_of_sum[b->sums - 1];
        }
        if (node_bucket != NO_BUCKET) b->newest_urgent[id] = node_bucket;
    }
}

static void number_buckets(tu__replicator *p, const bucketing *b) {
    for (size_t i = 0; i < b->sums; i++)
        if (b->buckets[b->bucket_of_sum[i]].last == i)
            b->buckets[b->bucket_of_sum[i]].collective = p->collective_count++;
    size_t sum = 0;
    for (uint32_t id = 0; id < p->r.from->node_count; id++)
        for (uint32_t i = 0; i < p->r.from->nodes[id]->output_count; i++) {
            tu__distributed_value *value = tu__distributed_value_of(p, (tu__edge){id, i});
            if (value->is_summed) value->collective = b->buckets[b->bucket_of_sum[sum++]].collective;
        }
}

static size_t count_sums(const tu__replicator *p) {
    size_t count = 0;
    for (uint32_t id = 0; id < p->r.from->node_count; id++)
        for (uint32_t i = 0; i < p->r.from->nodes[id]->output_count; i++)
            count += tu__distributed_value_of(p, (tu__edge){id, i})->is_summed;
    return count;
}

tu_status tu__number_collectives(tu__replicator *p) {
    size_t sums = count_sums(p), nodes = p->r.from->node_count;
    bucketing b = {.urgent = NO_BUCKET,
                   .deferred = NO_BUCKET,
                   .buckets = tu__arena_alloc(&p->arena, (sums + 1) * sizeof *b.buckets),
                   .bucket_of_sum = tu__arena_alloc(&p->arena, (sums + 1) * sizeof *b.bucket_of_sum),
                   .newest_urgent = tu__arena_alloc(&p->arena, (nodes + 1) * sizeof *b.newest_urgent)};
    if (!b.buckets || !b.bucket_of_sum || !b.newest_urgent) return TU_NO_MEMORY;
    fill_buckets(p, &b);
    number_buckets(p, &b);
    return TU_OK;
}

/* ---- Additions ---- */

/* The sum being built: its original output, from which the new nodes' names are derived. */
typedef struct sum {
    tu__replicator *p;
    const tu__node *node;
    uint32_t output;
} sum;

static tu_value insert_node(const sum *s, const char *kind, size_t instance, tu__node_request request) {
    char suffix[48];
    if (s->output)
        snprintf(suffix, sizeof suffix, ":%u%s", s->output, kind);
    else
        snprintf(suffix, sizeof suffix, "%s", kind);
    return tu__replicator_insert(s->p, s->node, suffix, instance, &request);
}

static tu_value add(const sum *s, size_t instance, const char *device, tu_value a, tu_value b) {
    return insert_node(
        s, "/add", instance,
        (tu__node_request){
            .op = TU__OP_ADD, .inputs = (tu_value[]){a, b}, .input_count = 2, .device = device});
}

static tu_value cast(const sum *s, size_t instance, const char *device, tu_value x, tu_dtype dtype) {
    if (!tu_ok(x) || tu_value_dtype(x) == dtype) return x;
    struct tu__cast_attrs a = {.dtype = dtype};
    return insert_node(
        s, "/cast", instance,
        (tu__node_request){.op = TU__OP_CAST, .attrs = &a, .inputs = &x, .input_count = 1, .device = device});
}

/* Adds in a binary tree, so that half of a replica's shards have the sum that one of twice as many replicas would
 * contribute. For an odd count the last value is added to the sum of the others. */
static tu_value add_by_halves(const sum *s, size_t replica, const tu_value *values, size_t count) {
    if (count == 1) return values[0];
    size_t first = count % 2 ? count - 1 : count / 2;
    return add(s, replica, tu__replicator_device_name(s->p, replica),
               add_by_halves(s, replica, values, first),
               add_by_halves(s, replica, values + first, count - first));
}

/* Adds ((0 + 1) + (2 + 3)) + 4, in the order of an all-reduce. */
static tu_value add_pairwise(const sum *s, const char *device, tu_value *values, size_t count) {
    for (; count > 1; count = (count + 1) / 2)
        for (size_t i = 0; i < count; i += 2)
            values[i / 2] = i + 1 < count ? add(s, 0, device, values[i], values[i + 1]) : values[i];
    return values[0];
}

/* Adds the replicas' sums by all-reduce nodes. All casts are built before the first all-reduce, so that the order of
 * nodes is one in which they can be executed. */
static void all_reduce(const sum *s, tu_value *sums, tu_dtype dtype, tu__edge *by_device) {
    tu__replicator *p = s->p;
    tu__edge edge = {s->node->id, s->output};
    for (size_t i = 0; i < p->replicas; i++)
        sums[i] = cast(s, i, tu__replicator_device_name(p, i), sums[i], transfer_dtype(p, edge));
    for (size_t i = 0; i < p->replicas; i++) {
        struct tu__all_reduce_attrs a = {.collective = tu__distributed_value_of(p, edge)->collective,
                                         .rank = (int64_t)(tu__first_replica(p->options) + i),
                                         .ranks = (int64_t)tu__all_replicas(p->options)};
        sums[i] = insert_node(s, "/sum", i,
                              (tu__node_request){.op = TU__OP_ALL_REDUCE,
                                                 .attrs = &a,
                                                 .inputs = (tu_value[]){sums[i]},
                                                 .input_count = 1,
                                                 .device = tu__replicator_device_name(p, i)});
    }
    for (size_t i = 0; i < p->replicas; i++) {
        tu_value result = cast(s, i, tu__replicator_device_name(p, i), sums[i], dtype);
        by_device[i] = (tu__edge){result.node, result.output};
    }
}

static void add_on_central(const sum *s, tu_value *sums, tu_dtype dtype, tu__edge *by_device) {
    tu__replicator *p = s->p;
    size_t central = p->device_count - 1;
    const char *device = tu__replicator_device_name(p, central);
    tu__edge edge = {s->node->id, s->output};
    tu_dtype transfer = transfer_dtype(p, edge);
    for (size_t i = 0; i < p->replicas; i++) {
        sums[i] = cast(s, i, tu__replicator_device_name(p, i), sums[i], transfer);
        sums[i] = cast(s, i, device, sums[i], dtype);
    }
    tu_value result = add_pairwise(s, device, sums, p->replicas);
    if (p->has_central_processes) result = tu__add_processes(p, edge, transfer, result);
    if (tu_ok(result)) by_device[central] = (tu__edge){result.node, result.output};
}

tu_status tu__sum_partials(tu__replicator *p, const tu__node *node, uint32_t output, tu_value *partials) {
    sum s = {.p = p, .node = node, .output = output};
    tu_dtype dtype = node->outputs[output].dtype;
    size_t shards_per_replica = (p->end_shard - p->first_shard) / p->replicas;
    tu__edge *by_device = tu__replicator_new_edges(p, p->device_count);
    if (!by_device) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->replicas; i++)
        partials[i] = add_by_halves(&s, i, partials + i * shards_per_replica, shards_per_replica);
    if (p->options->strategy == TU__CENTRAL)
        add_on_central(&s, partials, dtype, by_device);
    else
        all_reduce(&s, partials, dtype, by_device);
    tu__distributed_value_of(p, (tu__edge){node->id, output})->by_device = by_device;
    return tu_graph_status(p->r.to);
}
