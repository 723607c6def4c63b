/* place: a device for every node.
 *
 *   a node made inside tu_with_device      the device named there
 *   an assignment                          with its variable, whose memory it changes
 *   an input, a constant, a fill           with its first reader
 *   every other                            the program's first device
 *
 * A name that is not among the program's devices is refused. "ref" stands for "ref:0". */
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "pass/pass.h"

static const char *find_device(const tu__unit *unit, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < unit->device_count; i++) {
        const char *known = unit->devices[i];
        if (strncmp(known, name, length) == 0 && (!known[length] || strcmp(known + length, ":0") == 0))
            return known;
    }
    return NULL;
}

static tu_status unknown_device(const tu__unit *unit, const tu__node *node) {
    tu__text known = {0};
    for (size_t i = 0; i < unit->device_count; i++)
        tu__text_printf(&known, "%s%s",
                        i == 0                        ? ""
                        : i + 1 == unit->device_count ? " and "
                                                      : ", ",
                        unit->devices[i]);
    tu_fail(TU_NOT_FOUND, "%s '%s' is for the device '%s', which is none of the program's: it has %s",
            node->op->name, node->name, node->device, tu__text_string(&known));
    tu__text_free(&known);
    return TU_NOT_FOUND;
}

static bool goes_with_reader(const tu__node *node) {
    tu__opcode code = node->op->code;
    return code == TU__OP_INPUT || code == TU__OP_CONSTANT || code == TU__OP_FILL;
}

/* Explicit devices, and the first one for all that does not follow another node. The strings are the graph's
 * own, as it may outlive the list. */
static tu_status place_by_name(tu__unit *unit, char *const *own) {
    for (uint32_t i = 0; i < unit->graph->node_count; i++) {
        tu__node *node = unit->graph->nodes[i];
        if (!node->device) {
            if (!goes_with_reader(node)) node->device = own[0];
            continue;
        }
        const char *known = find_device(unit, node->device);
        if (!known) return unknown_device(unit, node);
        for (size_t k = 0; k < unit->device_count; k++)
            if (unit->devices[k] == known) node->device = own[k];
    }
    return TU_OK;
}

static void place_followers(tu_graph *graph, const char *first) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        tu__node *node = graph->nodes[i];
        if (node->op->code == TU__OP_ASSIGN) node->device = graph->nodes[node->inputs[0].node]->device;
        for (uint32_t k = 0; k < node->input_count; k++) {
            tu__node *source = graph->nodes[node->inputs[k].node];
            if (!source->device) source->device = node->device;
        }
    }
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!graph->nodes[i]->device) graph->nodes[i]->device = first; /* nobody reads it but the user */
}

tu_status tu__pass_place(tu__unit *unit) {
    if (unit->device_count == 0)
        return tu_fail(TU_INVALID, "a program needs a device: expected for example \"cpu:0\"");
    char **own = tu__alloc_array(unit->device_count, sizeof *own, "a pass");
    if (!own) return TU_NO_MEMORY;
    tu_status status = TU_OK;
    for (size_t i = 0; i < unit->device_count && status == TU_OK; i++) {
        own[i] = tu__arena_string(&unit->graph->arena, unit->devices[i]);
        if (!own[i]) status = TU_NO_MEMORY;
    }
    if (status == TU_OK) status = place_by_name(unit, own);
    if (status == TU_OK) place_followers(unit->graph, own[0]);
    tu__free(own);
    return status;
}
