/* Classifies values as sharded, replicated or partial sums: a forward iteration applies the shard rules, a backward
 * one finds which results are read. */
#include "pass/replicate.h"

static bool has_sharded_operand(const tu__replicator *p, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (tu__distributed_value_of(p, node->inputs[i])->layout >= 0) return true;
    return false;
}

static tu__sharding *new_sharding(tu__replicator *p, const tu__node *node) {
    tu__sharding *s = tu__arena_alloc(&p->arena, sizeof *s);
    int *in = tu__arena_alloc(&p->arena, 2 * ((size_t)node->input_count + 1) * sizeof *in);
    if (!s || !in) return NULL;
    *s = (tu__sharding){.strategy = p->strategy,
                        .invariant = p->options->invariant > 0,
                        .graph = p->r.from,
                        .node = node,
                        .samples = p->samples,
                        .in = in,
                        .read = in + node->input_count + 1};
    for (uint32_t i = 0; i < node->input_count; i++)
        in[i] = tu__distributed_value_of(p, node->inputs[i])->layout;
    return s;
}

static tu_status classify_node(tu__replicator *p, const tu__node *node) {
    if (!has_sharded_operand(p, node)) {
        for (uint32_t i = 0; i < node->output_count; i++)
            tu__distributed_value_of(p, (tu__edge){node->id, i})->layout =
                tu__is_batched(node) ? 0 : TU__REPLICATED;
        return TU_OK;
    }
    tu__sharding *s = new_sharding(p, node);
    if (!s) return TU_NO_MEMORY;
    TU_TRY(tu__apply_shard_rule(s));
    for (uint32_t i = 0; i < node->output_count; i++) {
        tu__distributed_value *value = tu__distributed_value_of(p, (tu__edge){node->id, i});
        value->layout = s->out[i] == TU__PARTIAL ? TU__REPLICATED : s->out[i];
    }
    p->sharded[node->id] = s;
    return TU_OK;
}

/* Marks the inputs of a node (called in reverse order): that they are read, that sharded computations depend on them,
 * and which per-shard statistics must be combined into those of the batch. */
static void mark_inputs(tu__replicator *p, const tu__node *node) {
    const tu__sharding *sharding = p->sharded[node->id];
    bool feeds_shards = sharding != NULL;
    for (uint32_t i = 0; i < node->output_count; i++)
        feeds_shards = feeds_shards || tu__distributed_value_of(p, (tu__edge){node->id, i})->feeds_shards;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__distributed_value *value = tu__distributed_value_of(p, node->inputs[i]);
        bool reads_per_shard = sharding && sharding->read[i] == TU__PER_SHARD; /* not the sum over shards */
        value->is_read = true;
        value->feeds_shards = value->feeds_shards || (feeds_shards && !reads_per_shard);
        if (value->layout == TU__PER_SHARD && !reads_per_shard) value->is_summed = true;
    }
    for (uint32_t i = 0; feeds_shards && i < node->after_count; i++)
        tu__distributed_value_of(p, (tu__edge){node->after[i], 0})->feeds_shards = true;
}

static void mark_fetches(tu__replicator *p) {
    for (size_t i = 0; i < p->unit->fetch_count; i++) {
        tu__distributed_value *value = tu__distributed_value_of(p, p->unit->fetch[i]);
        value->is_read = true;
        if (value->layout == TU__PER_SHARD) value->is_summed = true;
    }
}

/* Partial sums that no node reads are not added. */
static void mark_sums(tu__replicator *p, const tu__node *node) {
    const tu__sharding *sharding = p->sharded[node->id];
    for (uint32_t i = 0; sharding && i < node->output_count; i++) {
        tu__distributed_value *value = tu__distributed_value_of(p, (tu__edge){node->id, i});
        if (sharding->out[i] == TU__PARTIAL && value->is_read) value->is_summed = true;
    }
}

tu_status tu__replicator_classify(tu__replicator *p) {
    uint32_t count = p->r.from->node_count;
    for (uint32_t id = 0; id < count; id++) TU_TRY(classify_node(p, p->r.from->nodes[id]));
    mark_fetches(p);
    for (uint32_t id = count; id-- > 0;) {
        mark_sums(p, p->r.from->nodes[id]);
        mark_inputs(p, p->r.from->nodes[id]);
    }
    if (p->has_central_processes) tu__number_variables(p);
    bool has_collectives = p->options->strategy == TU__MIRRORED || p->has_central_processes;
    return has_collectives ? tu__number_collectives(p) : TU_OK;
}
