/* place: assigns a device to every node, and records the reason.
 *
 * A node can be pinned to a device. The first of these applies, so that a command line overrides a program, and a
 * program overrides the network it was given:
 *   1. a pattern of names ("conv1/" followed by a star), which also matches the gradients of the named nodes;
 *   2. the user's function over nodes;
 *   3. tu_with_device around the node.
 * A node that its device does not support is moved to the nearest device that does; with strict placement this is an
 * error. The nearest device is the one that holds most bytes of the node's inputs; among equals, the one listed
 * first.
 *
 * Defaults for nodes that are not pinned:
 *   assignment                    on the device of the variable, whose memory it changes
 *   input, constant, variable     on the device of its first reader
 *   member of a group             on the device of the group (place_groups.c)
 *   node that depends only on     on the device of its first reader
 *     variables
 *   gradient                      on the device of its forward operation, if that is of the preferred kind
 *   any other node                on a device of the preferred kind: on the GPU if one is listed, else on the first
 *                                 device; on the nearest if there are several; if none of them supports the node, on
 *                                 the nearest device that does
 *   small results (4 KiB) that only a host device reads, computed from small inputs: on that device
 *
 * Every node keeps the reason, and the reasons of the devices that do not support it: `tutti explain` shows both. */
#include "pass/place.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "base/text.h"

enum { SMALL_BYTES = 4096 }; /* too little to be worth a GPU launch */

static const tu__placement_options no_options;

/* ---- Devices ---- */

static uint32_t find_device(const tu__placer *p, const char *name, size_t length) {
    for (size_t i = 0; i < p->unit->device_count; i++) {
        const char *device_name = p->unit->devices[i];
        if (strncmp(device_name, name, length) == 0 &&
            (!device_name[length] || strcmp(device_name + length, ":0") == 0))
            return (uint32_t)i;
    }
    return TU__UNPLACED;
}

static bool same_kind(const tu__placer *p, uint32_t a, uint32_t b) {
    const char *x = p->unit->devices[a], *y = p->unit->devices[b];
    size_t length = strcspn(x, ":");
    return strncmp(x, y, length) == 0 && (y[length] == ':' || !y[length]);
}

static bool is_host(const tu__placer *p, uint32_t device) {
    return !p->options->is_host || p->options->is_host(p->options->context, device);
}

/* Inputs, constants, variables, assignments, copies and collectives are executed by the engine, for every device. */
static bool runs_on_any_device(const tu__node *node) {
    return !tu__node_is_computed(node) || node->op->code == TU__OP_COPY ||
           (node->op->traits & TU__COLLECTIVE);
}

static tu_status supports_node(const tu__placer *p, uint32_t device, const tu__node *node) {
    if (runs_on_any_device(node) || !p->options->supports) return TU_OK;
    return p->options->supports(p->options->context, device, p->unit->graph, node->id);
}

tu_status tu__placer_supports(const tu__placer *p, uint32_t device, const tu__node *node) {
    if (!node->group) return supports_node(p, device, node);
    for (uint32_t id = tu__placer_first_member(p, node); id != TU_NO_NODE; id = p->next_member[id]) {
        const tu__node *member = p->unit->graph->nodes[id];
        tu_status status = supports_node(p, device, member);
        if (status == TU_UNSUPPORTED && member != node)
            return tu_fail(status, "it is colocated with %s '%s', which is not supported: %s",
                           member->op->name, member->name, tu_message());
        TU_TRY(status);
    }
    return TU_OK;
}

/* ---- Reasons ---- */

const char *tu__placer_reason(tu__placer *p, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *reason = tu__arena_string(&p->unit->graph->arena, text);
    if (!reason) p->failed = true;
    return reason;
}

tu_status tu__placer_assign(tu__placer *p, tu__node *node, uint32_t device, const char *why) {
    p->device_of[node->id] = device;
    node->device = p->device_names[device];
    node->why = why;
    return p->failed ? TU_NO_MEMORY : TU_OK;
}

/* Records that a device does not support the node; the reason is this thread's message. */
static void record_unsupported(tu__placer *p, tu__node *node, uint32_t device) {
    node->unsupported_on =
        tu__placer_reason(p, "%s%s%s: %s", node->unsupported_on ? node->unsupported_on : "",
                          node->unsupported_on ? "; " : "", p->unit->devices[device], tu_message());
}

/* ---- The nearest device ---- */

static uint64_t input_bytes_on(const tu__placer *p, const tu__node *node, uint32_t device) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (p->device_of[node->inputs[i].node] == device)
            bytes += tu_type_bytes(tu_edge_type(p->unit->graph, node->inputs[i]));
    return bytes;
}

/* Finds the device that supports the node and has most bytes of its inputs, among devices of the kind of `kind_of`
 * (TU__UNPLACED: any kind) that are not marked unsupported. Sets `*device` to TU__UNPLACED if there is none. */
static tu_status find_nearest(tu__placer *p, tu__node *node, uint32_t kind_of, uint32_t *device) {
    *device = TU__UNPLACED;
    uint64_t max_bytes = 0;
    for (uint32_t d = 0; d < p->unit->device_count; d++) {
        if (p->unsupported[d] || (kind_of != TU__UNPLACED && !same_kind(p, kind_of, d))) continue;
        uint64_t bytes = input_bytes_on(p, node, d);
        if (*device != TU__UNPLACED && bytes <= max_bytes) continue;
        tu_status status = tu__placer_supports(p, d, node);
        if (status == TU_UNSUPPORTED) {
            p->unsupported[d] = true;
            record_unsupported(p, node, d);
            continue;
        }
        TU_TRY(status);
        *device = d;
        max_bytes = bytes;
    }
    return TU_OK;
}

/* Formats names as "a, b and c". */
static const char *list_devices(const tu__placer *p, tu__text *text) {
    for (size_t i = 0; i < p->unit->device_count; i++)
        tu__text_printf(text, "%s%s",
                        i == 0                           ? ""
                        : i + 1 == p->unit->device_count ? " and "
                                                         : ", ",
                        p->unit->devices[i]);
    return tu__text_string(text);
}

static tu_status fail_unsupported(tu__placer *p, const tu__node *node) {
    tu__text devices_text = {0};
    tu_fail(
        TU_UNSUPPORTED,
        "no device of the program supports %s '%s' (%s): its devices are %s; add one that does, as in \"%s,cpu:0\"",
        node->op->name, node->name, node->unsupported_on ? node->unsupported_on : "",
        list_devices(p, &devices_text), p->unit->devices[0]);
    tu__text_free(&devices_text);
    return TU_UNSUPPORTED;
}

/* Like find_nearest over all devices of the program; adds a host device if that is allowed and necessary. */
static tu_status find_nearest_or_add_host(tu__placer *p, tu__node *node, uint32_t *device) {
    TU_TRY(find_nearest(p, node, TU__UNPLACED, device));
    if (*device != TU__UNPLACED) return TU_OK;
    if (!p->options->add_host || p->options->strict || p->added_host) return fail_unsupported(p, node);
    TU_TRY(p->options->add_host(p->options->context, p->unit));
    p->added_host = true;
    uint32_t added = (uint32_t)p->unit->device_count - 1;
    p->device_names[added] = tu__arena_string(&p->unit->graph->arena, p->unit->devices[added]);
    if (!p->device_names[added]) return TU_NO_MEMORY;
    TU_TRY(find_nearest(p, node, TU__UNPLACED, device));
    return *device == TU__UNPLACED ? fail_unsupported(p, node) : TU_OK;
}

static void clear_unsupported(tu__placer *p) {
    memset(p->unsupported, 0, sizeof p->unsupported);
}

/* ---- Pinned nodes ---- */

static tu_status fail_unknown_device(const tu__placer *p, const tu__node *node, const char *name,
                                     const char *source) {
    tu__text devices_text = {0};
    tu_fail(TU_NOT_FOUND,
            "%s '%s' is placed on '%s'%s, which is not a device of the program: its devices are %s",
            node->op->name, node->name, name, source, list_devices(p, &devices_text));
    tu__text_free(&devices_text);
    return TU_NOT_FOUND;
}

/* Returns the part of a gradient's name after "grad/", or NULL if the name is not a gradient's. */
static const char *forward_name(const char *name) {
    if (strncmp(name, "grad/", 5) == 0) return name + 5;
    const char *grad = strstr(name, "/grad/");
    return grad ? grad + 6 : NULL;
}

/* Matches a node's name; for a gradient also the forward name: "conv1/conv2d/dx" for "grad/conv1/conv2d/dx". */
static bool name_matches(const char *pattern, const char *name) {
    if (tu__pattern_matches(pattern, name)) return true;
    const char *forward = forward_name(name);
    return forward && tu__pattern_matches(pattern, forward);
}

/* Splits "PATTERN=DEVICE" of at most 255 characters into two strings in `text`; the second starts at
 * `*device_offset`. */
static tu_status split_rule(const char *rule, size_t length, char text[256], size_t *device_offset) {
    char *equals = NULL;
    if (length < 256) {
        snprintf(text, 256, "%.*s", (int)length, rule);
        equals = strrchr(text, '=');
    }
    if (!equals || equals == text || !equals[1])
        return tu_fail(TU_INVALID, "placement '%.*s': expected PATTERN=DEVICE, as in conv1/*=gpu:1",
                       length < 80 ? (int)length : 80, rule);
    *equals = '\0';
    *device_offset = (size_t)(equals + 1 - text);
    return TU_OK;
}

static bool matches_any_node(const tu_graph *g, const char *pattern) {
    for (uint32_t i = 0; i < g->node_count; i++)
        if (name_matches(pattern, g->nodes[i]->name)) return true;
    return false;
}

/* Validates all rules, also those that match no node, and records the first pattern that matches no node. Such a
 * pattern is probably misspelt, but is no error: other programs of the same network may have the operation. */
static tu_status find_unmatched_pattern(tu__placer *p) {
    tu__unit *unit = p->unit;
    char text[256];
    size_t device_offset;
    for (const char *rule = p->options->patterns; rule && *rule;) {
        size_t length = strcspn(rule, ",");
        TU_TRY(split_rule(rule, length, text, &device_offset));
        if (!*unit->unmatched_pattern && !matches_any_node(unit->graph, text))
            snprintf(unit->unmatched_pattern, sizeof unit->unmatched_pattern, "%s", text);
        rule += length + (rule[length] == ',');
    }
    return TU_OK;
}

static tu_status pin_by_pattern(tu__placer *p, tu__node *node) {
    char text[256];
    size_t device_offset = 0;
    for (const char *rule = p->options->patterns; rule && *rule;) {
        size_t length = strcspn(rule, ",");
        TU_TRY(split_rule(rule, length, text, &device_offset));
        if (name_matches(text, node->name)) {
            const char *name = text + device_offset;
            uint32_t device = find_device(p, name, strlen(name));
            if (device == TU__UNPLACED) return fail_unknown_device(p, node, name, " by a pattern");
            p->pinned[node->id] = true;
            return tu__placer_assign(p, node, device,
                                     tu__placer_reason(p, "placed by pattern %s=%s", text, name));
        }
        rule += length + (rule[length] == ',');
    }
    return TU_OK;
}

static tu_status pin_by_function(tu__placer *p, tu__node *node) {
    const char *name = p->options->choose_device
                           ? p->options->choose_device(p->unit->graph, node->id, p->options->choose_context)
                           : NULL;
    if (!name) return TU_OK;
    uint32_t device = find_device(p, name, strlen(name));
    if (device == TU__UNPLACED) return fail_unknown_device(p, node, name, " by the placement function");
    p->pinned[node->id] = true;
    return tu__placer_assign(p, node, device, "placed by the placement function");
}

static tu_status pin_by_graph(tu__placer *p, tu__node *node, const char *name) {
    if (!name) return TU_OK;
    uint32_t device = find_device(p, name, strlen(name));
    if (device == TU__UNPLACED) return fail_unknown_device(p, node, name, "");
    p->pinned[node->id] = true;
    bool replicated = p->unit->replication.strategy != TU__SINGLE;
    return tu__placer_assign(p, node, device,
                             replicated ? "placed by the strategy" : "placed by tu_with_device");
}

static tu_status find_pin(tu__placer *p, tu__node *node) {
    const char *scope = node->device;
    node->device = node->why = node->unsupported_on = NULL;
    if (node->op->code == TU__OP_ASSIGN) return TU_OK; /* placed with its variable */
    TU_TRY(pin_by_pattern(p, node));
    if (!p->pinned[node->id]) TU_TRY(pin_by_function(p, node));
    if (!p->pinned[node->id]) TU_TRY(pin_by_graph(p, node, scope));
    return TU_OK;
}

/* Moves a pinned node if its device does not support it, and records the reason. */
static tu_status check_pin(tu__placer *p, tu__node *node) {
    uint32_t pinned = p->device_of[node->id], device;
    tu_status status = tu__placer_supports(p, pinned, node);
    if (status != TU_UNSUPPORTED) return status;
    if (p->options->strict)
        return tu_fail(TU_UNSUPPORTED, "%s '%s' cannot run on %s: %s (it was %s, and placement is strict)",
                       node->op->name, node->name, p->unit->devices[pinned], tu_message(), node->why);
    clear_unsupported(p);
    p->unsupported[pinned] = true;
    record_unsupported(p, node, pinned);
    p->device_of[node->id] = TU__UNPLACED;
    TU_TRY(find_nearest_or_add_host(p, node, &device));
    node->moved = true;
    return tu__placer_assign(
        p, node, device,
        tu__placer_reason(p, "%s, but %s does not support it: moved to the nearest device that does",
                          node->why, p->unit->devices[pinned]));
}

/* ---- Default placement ---- */

/* Finds the forward operation that a gradient belongs to: "conv1/conv2d" for "grad/conv1/conv2d/dx". */
static tu_status find_forward(const tu__placer *p, const tu__node *node, const tu__node **forward) {
    const char *name = forward_name(node->name);
    *forward = NULL;
    if (!name) return TU_OK;
    char *path = tu__alloc(strlen(name) + 1, "a name");
    if (!path) return TU_NO_MEMORY;
    memcpy(path, name, strlen(name) + 1);
    for (char *slash = strrchr(path, '/'); slash && !*forward; slash = strrchr(path, '/')) {
        *slash = '\0';
        *forward = tu__find_node(p->unit->graph, path);
    }
    tu__free(path);
    return TU_OK;
}

/* Places a gradient on the device of its forward operation, if that device is of the preferred kind. */
static tu_status place_gradient(tu__placer *p, tu__node *node) {
    const tu__node *forward;
    TU_TRY(find_forward(p, node, &forward));
    uint32_t device = forward ? p->device_of[forward->id] : TU__UNPLACED;
    if (device == TU__UNPLACED || !same_kind(p, p->preferred, device)) return TU_OK;
    tu_status status = tu__placer_supports(p, device, node);
    if (status != TU_OK) return status == TU_UNSUPPORTED ? TU_OK : status;
    return tu__placer_assign(
        p, node, device, tu__placer_reason(p, "on the device of '%s', whose gradient it is", forward->name));
}

static const char *free_choice_reason(tu__placer *p, const tu__node *node, uint32_t device) {
    if (p->unit->device_count == 1) return "the only device";
    uint64_t bytes = input_bytes_on(p, node, device);
    if (bytes)
        return tu__placer_reason(p, "near its inputs: %" PRIu64 " bytes of them are on this device", bytes);
    if (device != p->preferred) return "the first device of its kind that supports it";
    return is_host(p, device) ? "the first device" : "the first GPU";
}

static tu_status place_by_default(tu__placer *p, tu__node *node) {
    uint32_t device;
    if (p->unit->device_count > 1 && !node->group) TU_TRY(place_gradient(p, node));
    if (p->device_of[node->id] != TU__UNPLACED) return TU_OK;
    clear_unsupported(p);
    TU_TRY(find_nearest(p, node, p->preferred, &device));
    if (device == TU__UNPLACED) {
        TU_TRY(find_nearest_or_add_host(p, node, &device));
        node->moved = p->added_host && device + 1 == p->unit->device_count;
        return tu__placer_assign(p, node, device, "the nearest device that supports it");
    }
    return tu__placer_assign(p, node, device, free_choice_reason(p, node, device));
}

/* True if the node depends on no input and on nothing placed yet: optimizer state updates, a learning rate. */
static bool can_follow_reader(tu__placer *p, const tu__node *node) {
    if (node->group || p->unit->device_count == 1) return false;
    bool read = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t source = node->inputs[i].node;
        tu__opcode code = p->unit->graph->nodes[source]->op->code;
        if (code == TU__OP_INPUT || p->device_of[source] != TU__UNPLACED) return false;
        read = true;
    }
    return read;
}

/* Iterates backwards, so that a chain of nodes is placed with the reader of its last node. */
static tu_status place_followers(tu__placer *p) {
    const tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) p->reader[i] = TU__UNPLACED;
    for (uint32_t id = g->node_count; id-- > 0;) {
        tu__node *node = g->nodes[id];
        if (p->device_of[id] == TU__UNPLACED && tu__node_is_computed(node)) {
            uint32_t device = p->reader[id] == TU__UNPLACED ? TU__UNPLACED : p->device_of[p->reader[id]];
            tu_status status = device == TU__UNPLACED ? TU_UNSUPPORTED : tu__placer_supports(p, device, node);
            if (status == TU_OK)
                status = tu__placer_assign(
                    p, node, device,
                    tu__placer_reason(p, "with its first reader '%s'", g->nodes[p->reader[id]]->name));
            else if (status == TU_UNSUPPORTED)
                status = place_by_default(p, node);
            TU_TRY(status);
        }
        for (uint32_t i = 0; i < node->input_count; i++) /* backwards: the last write is the first reader */
            if (p->device_of[id] != TU__UNPLACED) p->reader[node->inputs[i].node] = id;
    }
    return TU_OK;
}

static tu_status place_computed(tu__placer *p) {
    for (uint32_t i = 0; i < p->unit->graph->node_count; i++) {
        tu__node *node = p->unit->graph->nodes[i];
        if (p->device_of[i] != TU__UNPLACED)
            TU_TRY(p->pinned[i] ? check_pin(p, node) : TU_OK);
        else if (tu__node_is_computed(node) && !can_follow_reader(p, node))
            TU_TRY(place_by_default(p, node));
        if (node->group) TU_TRY(tu__placer_place_group(p, node));
    }
    return TU_OK;
}

/* ---- Small results that the host reads ---- */

enum { NO_READER = TU__UNPLACED, SEVERAL_READERS = TU__UNPLACED - 1 };

static bool is_small(const tu__placer *p, const tu__node *node) {
    uint64_t in = 0, out = 0;
    for (uint32_t i = 0; i < node->output_count; i++) out += tu_type_bytes(node->outputs[i]);
    for (uint32_t i = 0; i < node->input_count; i++)
        in += tu_type_bytes(tu_edge_type(p->unit->graph, node->inputs[i]));
    return in <= SMALL_BYTES && out <= SMALL_BYTES;
}

static tu_status move_to_reader(tu__placer *p, tu__node *node, uint32_t reader) {
    bool is_movable = tu__node_is_computed(node) && !p->pinned[node->id] && !node->group && !node->moved;
    if (!is_movable || reader >= p->unit->device_count || reader == p->device_of[node->id]) return TU_OK;
    if (is_host(p, p->device_of[node->id]) || !is_host(p, reader) || !is_small(p, node)) return TU_OK;
    tu_status status = tu__placer_supports(p, reader, node);
    if (status != TU_OK) return status == TU_UNSUPPORTED ? TU_OK : status;
    return tu__placer_assign(p, node, reader,
                             tu__placer_reason(p, "small, and only %s reads it", p->unit->devices[reader]));
}

/* Iterates backwards, so that a chain of small operations moves as a whole. */
static tu_status move_small_nodes_to_host(tu__placer *p) {
    uint32_t count = p->unit->graph->node_count;
    for (uint32_t i = 0; i < count; i++) p->reader[i] = NO_READER;
    for (size_t i = 0; i < p->unit->fetch_count; i++) p->reader[p->unit->fetch[i].node] = SEVERAL_READERS;
    for (uint32_t id = count; id-- > 0;) {
        tu__node *node = p->unit->graph->nodes[id];
        TU_TRY(move_to_reader(p, node, p->reader[id]));
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t *reader = &p->reader[node->inputs[i].node], device = p->device_of[id];
            *reader = *reader == NO_READER && device != TU__UNPLACED ? device
                      : *reader == device                            ? device
                                                                     : SEVERAL_READERS;
        }
    }
    return TU_OK;
}

/* ---- Leaves and assignments ---- */

static tu_status place_on_device_of(tu__placer *p, tu__node *node, const tu__node *leader,
                                    const char *relation) {
    if (p->device_of[node->id] != TU__UNPLACED || p->device_of[leader->id] == TU__UNPLACED) return TU_OK;
    TU_TRY(tu__placer_assign(p, node, p->device_of[leader->id],
                             tu__placer_reason(p, "with %s '%s'", relation, leader->name)));
    return node->group ? tu__placer_place_group(p, node) : TU_OK;
}

/* Places a leaf with its first reader. */
static tu_status place_read_leaves(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        for (uint32_t k = 0; node->op->code != TU__OP_ASSIGN && k < node->input_count; k++)
            TU_TRY(place_on_device_of(p, g->nodes[node->inputs[k].node], node, "its first reader"));
    }
    return TU_OK;
}

/* Places a variable that is only assigned with the assigned value, and a leaf that is only assigned with its
 * variable. */
static tu_status place_assigned_leaves(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i]->op->code != TU__OP_ASSIGN) continue;
        tu__node *variable = g->nodes[g->nodes[i]->inputs[0].node],
                 *next = g->nodes[g->nodes[i]->inputs[1].node];
        TU_TRY(place_on_device_of(p, variable, next, "its next value"));
        TU_TRY(place_on_device_of(p, next, variable, "its target variable"));
    }
    return TU_OK;
}

static tu_status place_leaves(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    TU_TRY(place_read_leaves(p));
    TU_TRY(place_assigned_leaves(p));
    for (uint32_t i = 0; i < g->node_count; i++)
        if (p->device_of[i] == TU__UNPLACED && g->nodes[i]->op->code != TU__OP_ASSIGN)
            TU_TRY(
                tu__placer_assign(p, g->nodes[i], p->preferred, "no operation reads it: the first device"));
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_ASSIGN)
            TU_TRY(place_on_device_of(p, g->nodes[i], g->nodes[g->nodes[i]->inputs[0].node], "its variable"));
    return TU_OK;
}

/* ---- The pass ---- */

static tu_status place_all(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) p->device_of[i] = TU__UNPLACED;
    for (size_t i = 0; i < p->unit->device_count; i++) {
        p->device_names[i] = tu__arena_string(&g->arena, p->unit->devices[i]);
        if (!p->device_names[i]) return TU_NO_MEMORY;
    }
    while (p->preferred < p->unit->device_count && is_host(p, p->preferred)) p->preferred++;
    if (p->preferred == p->unit->device_count) p->preferred = 0;
    TU_TRY(find_unmatched_pattern(p));
    for (uint32_t i = 0; i < g->node_count; i++) TU_TRY(find_pin(p, g->nodes[i]));
    TU_TRY(tu__placer_pin_groups(p));
    TU_TRY(place_computed(p));
    TU_TRY(place_followers(p));
    TU_TRY(move_small_nodes_to_host(p));
    return place_leaves(p);
}

tu_status tu__pass_place(tu__unit *unit) {
    if (unit->device_count == 0)
        return tu_fail(TU_INVALID, "a program needs a device: expected for example \"cpu:0\"");
    if (unit->device_count > TU__MAX_PLACED_DEVICES)
        return tu_fail(TU_UNSUPPORTED, "%zu devices: a program has at most %d", unit->device_count,
                       TU__MAX_PLACED_DEVICES);
    size_t nodes = (size_t)unit->graph->node_count + 1;
    tu__arena arena = {.purpose = "a pass"};
    tu__placer p = {.unit = unit,
                    .options = unit->placement ? unit->placement : &no_options,
                    .device_of = tu__arena_alloc(&arena, nodes * sizeof *p.device_of),
                    .pinned = tu__arena_alloc(&arena, nodes),
                    .reader = tu__arena_alloc(&arena, nodes * sizeof *p.reader),
                    .next_member = tu__arena_alloc(&arena, nodes * sizeof *p.next_member),
                    .first_member = tu__arena_alloc(&arena, ((size_t)unit->graph->group_count + 1) *
                                                                sizeof *p.first_member)};
    bool is_allocated = p.device_of && p.pinned && p.reader && p.next_member && p.first_member;
    tu_status status = is_allocated ? place_all(&p) : TU_NO_MEMORY;
    tu__arena_free(&arena);
    return status;
}
