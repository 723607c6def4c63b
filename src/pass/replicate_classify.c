/* Which values are cut, which are whole, and which are sums over parts: one sweep forward by the shard rules, and one back
 * for what is read of them. */
#include "pass/replicate.h"

static bool has_cut_operand(const tu__replicator *p, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (tu__replicated_at(p, node->inputs[i])->as >= 0) return true;
    return false;
}

static tu__shard *new_shard(tu__replicator *p, const tu__node *node) {
    tu__shard *s = tu__arena_alloc(&p->arena, sizeof *s);
    int *in = tu__arena_alloc(&p->arena, 2 * ((size_t)node->input_count + 1) * sizeof *in);
    if (!s || !in) return NULL;
    *s = (tu__shard){.strategy = p->strategy,
                     .invariant = p->how->invariant > 0,
                     .graph = p->r.from,
                     .node = node,
                     .samples = p->samples,
                     .in = in,
                     .read = in + node->input_count + 1};
    for (uint32_t i = 0; i < node->input_count; i++) in[i] = tu__replicated_at(p, node->inputs[i])->as;
    return s;
}

static tu_status classify_node(tu__replicator *p, const tu__node *node) {
    if (!has_cut_operand(p, node)) {
        for (uint32_t i = 0; i < node->output_count; i++)
            tu__replicated_at(p, (tu__edge){node->id, i})->as = tu__is_batched(node) ? 0 : TU__REPLICATED;
        return TU_OK;
    }
    tu__shard *s = new_shard(p, node);
    if (!s) return TU_NO_MEMORY;
    TU_TRY(tu__shard_node(s));
    for (uint32_t i = 0; i < node->output_count; i++) {
        tu__replicated *value = tu__replicated_at(p, (tu__edge){node->id, i});
        value->as = s->out[i] == TU__PARTIAL ? TU__REPLICATED : s->out[i];
    }
    p->sharded[node->id] = s;
    return TU_OK;
}

/* Marks what a node reads, from the end of the graph to its beginning: that it is read, whether parts are computed from
 * it, and which statistics of parts are wanted as those of the batch. */
static void mark_inputs(tu__replicator *p, const tu__node *node) {
    const tu__shard *shard = p->sharded[node->id];
    bool feeds = shard != NULL;
    for (uint32_t i = 0; i < node->output_count; i++)
        feeds = feeds || tu__replicated_at(p, (tu__edge){node->id, i})->feeds_parts;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__replicated *value = tu__replicated_at(p, node->inputs[i]);
        bool own = shard && shard->read[i] == TU__PER_SHARD; /* a part reads its own, not the sum */
        value->is_read = true;
        value->feeds_parts = value->feeds_parts || (feeds && !own);
        if (value->as == TU__PER_SHARD && !own) value->summed = true;
    }
    for (uint32_t i = 0; feeds && i < node->after_count; i++)
        tu__replicated_at(p, (tu__edge){node->after[i], 0})->feeds_parts = true;
}

static void mark_fetches(tu__replicator *p) {
    for (size_t i = 0; i < p->unit->fetch_count; i++) {
        tu__replicated *value = tu__replicated_at(p, p->unit->fetch[i]);
        value->is_read = true;
        if (value->as == TU__PER_SHARD) value->summed = true;
    }
}

/* A share that nobody reads is not added up. */
static void mark_sums(tu__replicator *p, const tu__node *node) {
    const tu__shard *shard = p->sharded[node->id];
    for (uint32_t i = 0; shard && i < node->output_count; i++) {
        tu__replicated *value = tu__replicated_at(p, (tu__edge){node->id, i});
        if (shard->out[i] == TU__PARTIAL && value->is_read) value->summed = true;
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
    return p->how->strategy == TU__MIRRORED ? tu__number_collectives(p) : TU_OK;
}
