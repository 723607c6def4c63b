/* Where a program computes what, and why: the decisions of the pass `place` and the copies of the pass `partition`, as they
 * stand in the program's graph. Nothing is worked out a second time, so what is told is what is done. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "run/program.h"

static bool is_copy(const tu__node *node) {
    return node->op->code == TU__OP_COPY;
}

static uint64_t bytes_of(const tu_graph *graph, tu__edge value) {
    return tu_type_bytes(tu_edge_type(graph, value));
}

/* What arrives for a node: its inputs that are copies. */
static uint64_t bytes_in(const tu_graph *graph, const tu__node *node) {
    if (is_copy(node)) return bytes_of(graph, node->inputs[0]);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (is_copy(graph->nodes[node->inputs[i].node])) bytes += bytes_of(graph, node->inputs[i]);
    return bytes;
}

static const char *way_of(const tu_program *program, const tu__node *copy) {
    static const char *const ways[] = {[TU__COPY_PEERS] = "peer to peer",
                                       [TU__COPY_THROUGH_HOST] = "through the host",
                                       [TU__COPY_DIRECT] = NULL};
    const tu__unit *unit = &program->unit;
    return ways[tu__partitions_copy_way(program->parts, tu__partition_of(unit, copy->inputs[0].node),
                                        tu__partition_of(unit, copy->id))];
}

tu_status tu__program_count_departing(tu_program *program) {
    const tu_graph *graph = program->unit.graph;
    program->departing = tu__alloc_array(graph->node_count, sizeof *program->departing, "a program");
    if (!program->departing) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (is_copy(graph->nodes[i])) {
            tu__edge source = graph->nodes[i]->inputs[0];
            program->departing[source.node] += bytes_of(graph, source);
        }
    return TU_OK;
}

size_t tu_program_placement_count(const tu_program *program) {
    return program->unit.graph->node_count;
}

tu_status tu_program_placement(const tu_program *program, size_t index, tu_placement *placement) {
    TU_TRY(TU__CHECK_SIZED(tu_placement, placement));
    const tu_graph *graph = program->unit.graph;
    if (index >= graph->node_count)
        return tu_fail(TU_NOT_FOUND, "the program has %u operations: there is no number %zu",
                       graph->node_count, index);
    const tu__node *node = graph->nodes[index];
    bool copy = is_copy(node);
    tu_placement full = {.node = node->name,
                         .operation = node->op->name,
                         .type = node->outputs[0],
                         .device = node->device,
                         .reason = node->why ? node->why
                                   : copy    ? "read there, made elsewhere"
                                             : "made where it is read",
                         .refused = node->refused,
                         .moved = node->moved,
                         .bytes_in = bytes_in(graph, node),
                         .bytes_out = program->departing[index],
                         .from = copy ? graph->nodes[node->inputs[0].node]->device : NULL,
                         .way = copy ? way_of(program, node) : NULL};
    TU__GIVE_SIZED(placement, full);
    return TU_OK;
}

/* The first that was moved, and how many there are; else a pattern that fits nothing. */
static const char *notice_of(const tu_program *program, const tu__node *first, size_t moved) {
    tu__arena *arena = &program->unit.graph->arena;
    char others[96] = "", text[1024];
    if (moved > 1)
        snprintf(others, sizeof others, ", and %zu more that were moved (see tutti explain)", moved - 1);
    if (first)
        snprintf(text, sizeof text, "%s '%s' is computed on %s: %s (%s)%s", first->op->name, first->name,
                 first->device, first->why, first->refused ? first->refused : "", others);
    else
        snprintf(
            text, sizeof text,
            "the placement's pattern '%s' fits the name of no operation ('tutti explain --all' lists them)",
            program->unit.unfitting);
    return tu__arena_string(arena, text);
}

tu_status tu_program_placed(const tu_program *program, tu_placement_totals *totals) {
    const tu_graph *graph = program->unit.graph;
    const tu__node *first = NULL;
    tu_placement_totals full = TU_SIZED(tu_placement_totals);
    TU_TRY(TU__CHECK_SIZED(tu_placement_totals, totals));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        full.operations += !is_copy(node);
        full.copies += is_copy(node);
        full.moved += node->moved;
        if (is_copy(node)) full.copied_bytes += bytes_of(graph, node->inputs[0]);
        if (node->moved && !first) first = node;
    }
    bool notable = first || *program->unit.unfitting;
    if (notable) full.notice = notice_of(program, first, full.moved);
    TU__GIVE_SIZED(totals, full);
    return notable && !full.notice ? TU_NO_MEMORY : TU_OK;
}
