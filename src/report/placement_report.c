/* Reports where a program computes each operation, and why. Reads the decisions of the passes `place` and `partition`
 * from the program's graph, so the report always agrees with what is executed. */
#include <stdio.h>

#include "base/sized.h"
#include "run/program.h"

static bool is_copy(const tu__node *node) {
    return node->op->code == TU__OP_COPY;
}

static uint64_t bytes_of(const tu_graph *graph, tu__edge value) {
    return tu_type_bytes(tu_edge_type(graph, value));
}

/* Returns the bytes of a node's inputs that are copied from other devices. */
static uint64_t bytes_in(const tu_graph *graph, const tu__node *node) {
    if (is_copy(node)) return bytes_of(graph, node->inputs[0]);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (is_copy(graph->nodes[node->inputs[i].node])) bytes += bytes_of(graph, node->inputs[i]);
    return bytes;
}

static const char *path_of(const tu_program *program, const tu__node *copy) {
    static const char *const paths[] = {[TU__COPY_PEER_TO_PEER] = "peer to peer",
                                        [TU__COPY_THROUGH_HOST] = "through the host",
                                        [TU__COPY_DIRECT] = NULL};
    const tu__unit *unit = &program->unit;
    return paths[tu__partitions_copy_path(program->partitions, tu__partition_of(unit, copy->inputs[0].node),
                                          tu__partition_of(unit, copy->id))];
}

size_t tu_program_placement_count(const tu_program *program) {
    return program->unit.graph->node_count;
}

tu_status tu_program_placement(const tu_program *program, size_t index, tu_placement *placement) {
    TU_TRY(TU__CHECK_SIZED(tu_placement, placement));
    const tu_graph *graph = program->unit.graph;
    if (index >= graph->node_count)
        return tu_fail(TU_NOT_FOUND,
                       "node index %zu is out of range: the program has %u nodes, counted from 0", index,
                       graph->node_count);
    const tu__node *node = graph->nodes[index];
    bool copy = is_copy(node);
    tu_placement full = {.node = node->name,
                         .operation = node->op->name,
                         .type = node->outputs[0],
                         .device = node->device,
                         .reason = node->why ? node->why
                                   : copy    ? "read on this device, computed on another"
                                             : "placed with its reader",
                         .unsupported_on = node->unsupported_on,
                         .moved = node->moved,
                         .bytes_in = bytes_in(graph, node),
                         .bytes_out = program->sent_bytes[index],
                         .from = copy ? graph->nodes[node->inputs[0].node]->device : NULL,
                         .copy_path = copy ? path_of(program, node) : NULL};
    TU__COPY_SIZED(placement, full);
    return TU_OK;
}

/* Returns a notice about the first moved operation and the number of others; else about a pattern that matches
 * nothing. */
static const char *notice_of(const tu_program *program, const tu__node *first, size_t moved) {
    tu__arena *arena = &program->unit.graph->arena;
    char more[96] = "", text[1024];
    if (moved > 1)
        snprintf(more, sizeof more, ", and %zu more that were moved (see tutti explain)", moved - 1);
    if (first)
        snprintf(text, sizeof text, "%s '%s' is computed on %s: %s (%s)%s", first->op->name, first->name,
                 first->device, first->why, first->unsupported_on ? first->unsupported_on : "", more);
    else
        snprintf(text, sizeof text,
                 "the placement pattern '%s' matches no operation ('tutti explain --all' lists them)",
                 program->unit.unmatched_pattern);
    return tu__arena_string(arena, text);
}

tu_status tu_program_placement_totals(const tu_program *program, tu_placement_totals *totals) {
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
    bool notable = first || *program->unit.unmatched_pattern;
    if (notable) full.notice = notice_of(program, first, full.moved);
    TU__COPY_SIZED(totals, full);
    return notable && !full.notice ? TU_NO_MEMORY : TU_OK;
}
