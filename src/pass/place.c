/* place: a device for every node, and the reason.
 *
 * Told. The first that speaks of a node counts, so that a command line can overrule a program, and a program the network it
 * was handed:
 *   1. a pattern of names ("conv1/" followed by a star), which also places the gradients of what it names;
 *   2. the user's function over nodes;
 *   3. tu_with_device around the node.
 * A node that its device does not take is moved to the nearest one that does, or refused where placement is strict. Nearest
 * is where most bytes of its inputs are, then the one listed first.
 *
 * Left to the engine:
 *   an assignment                  with its variable, whose memory it changes
 *   an input, constant, variable   with its first reader
 *   one of a group                 with the group (place_groups.c)
 *   what hangs on variables alone  with its first reader
 *   a gradient                     beside what it is the gradient of, if that is on a device of the kind below
 *   every other                    on the GPU if one is listed, else on the first device; of several of that kind on the
 *                                  nearest; where none of them takes it, on the nearest device that does
 *   a few bytes that only a host device reads, made of a few bytes: on that device
 *
 * Every node gets the reason, and the devices that would not have it with theirs: `tutti explain` shows both. */
#include "pass/place.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "base/text.h"

enum { FEW_BYTES = 4096 }; /* not worth a launch of their own */

static const tu__placing by_graph_alone;

/* ---- Devices ---- */

static uint32_t find_device(const tu__placer *p, const char *name, size_t length) {
    for (size_t i = 0; i < p->unit->device_count; i++) {
        const char *known = p->unit->devices[i];
        if (strncmp(known, name, length) == 0 && (!known[length] || strcmp(known + length, ":0") == 0))
            return (uint32_t)i;
    }
    return TU__NOWHERE;
}

static bool same_kind(const tu__placer *p, uint32_t a, uint32_t b) {
    const char *x = p->unit->devices[a], *y = p->unit->devices[b];
    size_t length = strcspn(x, ":");
    return strncmp(x, y, length) == 0 && (y[length] == ':' || !y[length]);
}

static bool is_host(const tu__placer *p, uint32_t device) {
    return !p->how->is_host || p->how->is_host(p->how->context, device);
}

/* Inputs, constants, variables, assignments, copies and collectives are the engine's affair: no device refuses them. */
static bool is_engines(const tu__node *node) {
    return !tu__node_is_computed(node) || node->op->code == TU__OP_COPY ||
           node->op->code == TU__OP_ALL_REDUCE;
}

static tu_status supports_node(const tu__placer *p, uint32_t device, const tu__node *node) {
    if (is_engines(node) || !p->how->supports) return TU_OK;
    return p->how->supports(p->how->context, device, p->unit->graph, node->id);
}

tu_status tu__placer_supports(const tu__placer *p, uint32_t device, const tu__node *node) {
    if (!node->group) return supports_node(p, device, node);
    for (uint32_t id = tu__placer_first(p, node); id != TU_NO_NODE; id = p->next_member[id]) {
        const tu__node *member = p->unit->graph->nodes[id];
        tu_status status = supports_node(p, device, member);
        if (status == TU_UNSUPPORTED && member != node)
            return tu_fail(status, "for %s '%s', colocated with it: %s", member->op->name, member->name,
                           tu_message());
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
    const char *kept = tu__arena_string(&p->unit->graph->arena, text);
    if (!kept) p->failed = true;
    return kept;
}

tu_status tu__placer_put(tu__placer *p, tu__node *node, uint32_t device, const char *why) {
    p->at[node->id] = device;
    node->device = p->own[device];
    node->why = why;
    return p->failed ? TU_NO_MEMORY : TU_OK;
}

/* Notes that a device would not have the node; this thread's message says why. */
static void note_refusal(tu__placer *p, tu__node *node, uint32_t device) {
    node->refused = tu__placer_reason(p, "%s%s%s: %s", node->refused ? node->refused : "",
                                      node->refused ? "; " : "", p->unit->devices[device], tu_message());
}

/* ---- The nearest device ---- */

static uint64_t input_bytes_on(const tu__placer *p, const tu__node *node, uint32_t device) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (p->at[node->inputs[i].node] == device)
            bytes += tu_type_bytes(tu_edge_type(p->unit->graph, node->inputs[i]));
    return bytes;
}

/* The device that takes the node and holds most bytes of its inputs, among those like `like` (TU__NOWHERE: any) that were
 * not refused before; TU__NOWHERE when there is none. */
static tu_status nearest(tu__placer *p, tu__node *node, uint32_t like, uint32_t *device) {
    *device = TU__NOWHERE;
    uint64_t most = 0;
    for (uint32_t d = 0; d < p->unit->device_count; d++) {
        if (p->refused[d] || (like != TU__NOWHERE && !same_kind(p, like, d))) continue;
        uint64_t bytes = input_bytes_on(p, node, d);
        if (*device != TU__NOWHERE && bytes <= most) continue;
        tu_status status = tu__placer_supports(p, d, node);
        if (status == TU_UNSUPPORTED) {
            p->refused[d] = true;
            note_refusal(p, node, d);
            continue;
        }
        TU_TRY(status);
        *device = d;
        most = bytes;
    }
    return TU_OK;
}

/* Names with commas and a last "and". */
static const char *list_devices(const tu__placer *p, tu__text *text) {
    for (size_t i = 0; i < p->unit->device_count; i++)
        tu__text_printf(text, "%s%s",
                        i == 0                           ? ""
                        : i + 1 == p->unit->device_count ? " and "
                                                         : ", ",
                        p->unit->devices[i]);
    return tu__text_string(text);
}

static tu_status refuse_everywhere(tu__placer *p, const tu__node *node) {
    tu__text known = {0};
    tu_fail(TU_UNSUPPORTED,
            "no device of the program takes %s '%s' (%s): it has %s; add one that does, as in \"%s,cpu:0\"",
            node->op->name, node->name, node->refused ? node->refused : "", list_devices(p, &known),
            p->unit->devices[0]);
    tu__text_free(&known);
    return TU_UNSUPPORTED;
}

/* Any device of the program, and one more on the host where that is allowed. */
static tu_status nearest_of_all(tu__placer *p, tu__node *node, uint32_t *device) {
    TU_TRY(nearest(p, node, TU__NOWHERE, device));
    if (*device != TU__NOWHERE) return TU_OK;
    if (!p->how->add_host || p->how->strict || p->helped) return refuse_everywhere(p, node);
    TU_TRY(p->how->add_host(p->how->context, p->unit));
    p->helped = true;
    uint32_t added = (uint32_t)p->unit->device_count - 1;
    p->own[added] = tu__arena_string(&p->unit->graph->arena, p->unit->devices[added]);
    if (!p->own[added]) return TU_NO_MEMORY;
    TU_TRY(nearest(p, node, TU__NOWHERE, device));
    return *device == TU__NOWHERE ? refuse_everywhere(p, node) : TU_OK;
}

static void forget_refusals(tu__placer *p) {
    memset(p->refused, 0, sizeof p->refused);
}

/* ---- Told ---- */

static tu_status unknown_device(const tu__placer *p, const tu__node *node, const char *name,
                                const char *who) {
    tu__text known = {0};
    tu_fail(TU_NOT_FOUND, "%s '%s' is for the device '%s'%s, which is none of the program's: it has %s",
            node->op->name, node->name, name, who, list_devices(p, &known));
    tu__text_free(&known);
    return TU_NOT_FOUND;
}

/* What stands behind "grad/" in a name; NULL: it is no gradient's. */
static const char *after_grad(const char *name) {
    if (strncmp(name, "grad/", 5) == 0) return name + 5;
    const char *grad = strstr(name, "/grad/");
    return grad ? grad + 6 : NULL;
}

/* A node's name, or what a gradient is the gradient of: "grad/conv1/conv2d/dx" fits what fits "conv1/conv2d/dx". */
static bool fits(const char *pattern, const char *name) {
    if (tu__pattern_fits(pattern, name)) return true;
    const char *forward = after_grad(name);
    return forward && tu__pattern_fits(pattern, forward);
}

/* "PATTERN=DEVICE" of at most 256 characters, as two strings in `text`, the second from `*device_at` on. */
static tu_status cut_rule(const char *rule, size_t length, char text[256], size_t *device_at) {
    char *equals = NULL;
    if (length < 256) {
        snprintf(text, 256, "%.*s", (int)length, rule);
        equals = strrchr(text, '=');
    }
    if (!equals || equals == text || !equals[1])
        return tu_fail(TU_INVALID, "placement '%.*s': expected PATTERN=DEVICE, as in conv1/*=gpu:1",
                       length < 80 ? (int)length : 80, rule);
    *equals = '\0';
    *device_at = (size_t)(equals + 1 - text);
    return TU_OK;
}

static bool fits_any(const tu_graph *g, const char *pattern) {
    for (uint32_t i = 0; i < g->node_count; i++)
        if (fits(pattern, g->nodes[i]->name)) return true;
    return false;
}

/* Also those that no node would reach. One that fits no name is misspelt more often than not, but noted only: the programs of
 * one network have different operations. */
static tu_status check_patterns(tu__placer *p) {
    tu__unit *unit = p->unit;
    char text[256];
    size_t device_at;
    for (const char *rule = p->how->patterns; rule && *rule;) {
        size_t length = strcspn(rule, ",");
        TU_TRY(cut_rule(rule, length, text, &device_at));
        if (!*unit->unfitting && !fits_any(unit->graph, text))
            snprintf(unit->unfitting, sizeof unit->unfitting, "%s", text);
        rule += length + (rule[length] == ',');
    }
    return TU_OK;
}

static tu_status told_by_pattern(tu__placer *p, tu__node *node) {
    char text[256];
    size_t device_at = 0;
    for (const char *rule = p->how->patterns; rule && *rule;) {
        size_t length = strcspn(rule, ",");
        TU_TRY(cut_rule(rule, length, text, &device_at));
        if (fits(text, node->name)) {
            const char *device = text + device_at;
            uint32_t at = find_device(p, device, strlen(device));
            if (at == TU__NOWHERE) return unknown_device(p, node, device, " by a pattern");
            p->told[node->id] = true;
            return tu__placer_put(p, node, at,
                                  tu__placer_reason(p, "told by the pattern %s=%s", text, device));
        }
        rule += length + (rule[length] == ',');
    }
    return TU_OK;
}

static tu_status told_by_function(tu__placer *p, tu__node *node) {
    const char *name = p->how->by ? p->how->by(p->unit->graph, node->id, p->how->by_context) : NULL;
    if (!name) return TU_OK;
    uint32_t at = find_device(p, name, strlen(name));
    if (at == TU__NOWHERE) return unknown_device(p, node, name, " by the placement function");
    p->told[node->id] = true;
    return tu__placer_put(p, node, at, "told by the placement function");
}

static tu_status told_by_graph(tu__placer *p, tu__node *node, const char *name) {
    if (!name) return TU_OK;
    uint32_t at = find_device(p, name, strlen(name));
    if (at == TU__NOWHERE) return unknown_device(p, node, name, "");
    p->told[node->id] = true;
    bool replicated = p->unit->replication.strategy != TU__SINGLE;
    return tu__placer_put(p, node, at, replicated ? "told by the strategy" : "told by tu_with_device");
}

static tu_status find_told(tu__placer *p, tu__node *node) {
    const char *scope = node->device;
    node->device = node->why = node->refused = NULL;
    if (node->op->code == TU__OP_ASSIGN) return TU_OK; /* where its variable is */
    TU_TRY(told_by_pattern(p, node));
    if (!p->told[node->id]) TU_TRY(told_by_function(p, node));
    if (!p->told[node->id]) TU_TRY(told_by_graph(p, node, scope));
    return TU_OK;
}

/* Moves a node that was told to be where it cannot, with its reason. */
static tu_status confirm_told(tu__placer *p, tu__node *node) {
    uint32_t told = p->at[node->id], at;
    tu_status status = tu__placer_supports(p, told, node);
    if (status != TU_UNSUPPORTED) return status;
    if (p->how->strict)
        return tu_fail(TU_UNSUPPORTED, "%s '%s' cannot be on %s: %s (it is %s, and placement is strict)",
                       node->op->name, node->name, p->unit->devices[told], tu_message(), node->why);
    forget_refusals(p);
    p->refused[told] = true;
    note_refusal(p, node, told);
    p->at[node->id] = TU__NOWHERE;
    TU_TRY(nearest_of_all(p, node, &at));
    node->moved = true;
    return tu__placer_put(p, node, at,
                          tu__placer_reason(p, "%s, but %s does not take it: the nearest that does",
                                            node->why, p->unit->devices[told]));
}

/* ---- Left to the engine ---- */

/* The operation whose gradient a node is part of: "conv1/conv2d" of "grad/conv1/conv2d/dx". */
static tu_status find_forward(const tu__placer *p, const tu__node *node, const tu__node **forward) {
    const char *name = after_grad(node->name);
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

/* Places a gradient beside what it is the gradient of, where that was free to choose too. */
static tu_status place_gradient(tu__placer *p, tu__node *node) {
    const tu__node *forward;
    TU_TRY(find_forward(p, node, &forward));
    uint32_t at = forward ? p->at[forward->id] : TU__NOWHERE;
    if (at == TU__NOWHERE || !same_kind(p, p->preferred, at)) return TU_OK;
    tu_status status = tu__placer_supports(p, at, node);
    if (status != TU_OK) return status == TU_UNSUPPORTED ? TU_OK : status;
    return tu__placer_put(p, node, at,
                          tu__placer_reason(p, "beside '%s', whose gradient it is", forward->name));
}

static const char *why_free(tu__placer *p, const tu__node *node, uint32_t at) {
    if (p->unit->device_count == 1) return "the only device";
    uint64_t bytes = input_bytes_on(p, node, at);
    if (bytes) return tu__placer_reason(p, "near its inputs: %" PRIu64 " bytes of them are there", bytes);
    if (at != p->preferred) return "the first of its kind that takes it";
    return is_host(p, at) ? "the first device" : "the first GPU";
}

static tu_status place_freely(tu__placer *p, tu__node *node) {
    uint32_t at;
    if (p->unit->device_count > 1 && !node->group) TU_TRY(place_gradient(p, node));
    if (p->at[node->id] != TU__NOWHERE) return TU_OK;
    forget_refusals(p);
    TU_TRY(nearest(p, node, p->preferred, &at));
    if (at == TU__NOWHERE) {
        TU_TRY(nearest_of_all(p, node, &at));
        node->moved = p->helped && at + 1 == p->unit->device_count;
        return tu__placer_put(p, node, at, "the nearest device that takes it");
    }
    return tu__placer_put(p, node, at, why_free(p, node, at));
}

/* What hangs on no input and on nothing that is placed: steps of an optimizer before they meet a gradient, a learning rate. */
static bool follows_reader(tu__placer *p, const tu__node *node) {
    if (node->group || p->unit->device_count == 1) return false;
    bool read = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t source = node->inputs[i].node;
        tu__opcode code = p->unit->graph->nodes[source]->op->code;
        if (code == TU__OP_INPUT || p->at[source] != TU__NOWHERE) return false;
        read = true;
    }
    return read;
}

/* From the end to the beginning, so that a chain goes where its last member does. */
static tu_status place_followers(tu__placer *p) {
    const tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) p->reader[i] = TU__NOWHERE;
    for (uint32_t id = g->node_count; id-- > 0;) {
        tu__node *node = g->nodes[id];
        if (p->at[id] == TU__NOWHERE && tu__node_is_computed(node)) {
            uint32_t at = p->reader[id] == TU__NOWHERE ? TU__NOWHERE : p->at[p->reader[id]];
            tu_status status = at == TU__NOWHERE ? TU_UNSUPPORTED : tu__placer_supports(p, at, node);
            if (status == TU_OK)
                status = tu__placer_put(
                    p, node, at,
                    tu__placer_reason(p, "with its first reader '%s'", g->nodes[p->reader[id]]->name));
            else if (status == TU_UNSUPPORTED)
                status = place_freely(p, node);
            TU_TRY(status);
        }
        for (uint32_t i = 0; i < node->input_count; i++) /* the last one noted is the first in the graph */
            if (p->at[id] != TU__NOWHERE) p->reader[node->inputs[i].node] = id;
    }
    return TU_OK;
}

static tu_status place_computed(tu__placer *p) {
    for (uint32_t i = 0; i < p->unit->graph->node_count; i++) {
        tu__node *node = p->unit->graph->nodes[i];
        if (p->at[i] != TU__NOWHERE)
            TU_TRY(p->told[i] ? confirm_told(p, node) : TU_OK);
        else if (tu__node_is_computed(node) && !follows_reader(p, node))
            TU_TRY(place_freely(p, node));
        if (node->group) TU_TRY(tu__placer_gather(p, node));
    }
    return TU_OK;
}

/* ---- Small work of the host's ---- */

enum { BY_NOBODY = TU__NOWHERE, BY_SEVERAL = TU__NOWHERE - 1 };

static bool is_small(const tu__placer *p, const tu__node *node) {
    uint64_t in = 0, out = 0;
    for (uint32_t i = 0; i < node->output_count; i++) out += tu_type_bytes(node->outputs[i]);
    for (uint32_t i = 0; i < node->input_count; i++)
        in += tu_type_bytes(tu_edge_type(p->unit->graph, node->inputs[i]));
    return in <= FEW_BYTES && out <= FEW_BYTES;
}

static tu_status bring_to_reader(tu__placer *p, tu__node *node, uint32_t reader) {
    bool free = tu__node_is_computed(node) && !p->told[node->id] && !node->group && !node->moved;
    if (!free || reader >= p->unit->device_count || reader == p->at[node->id]) return TU_OK;
    if (is_host(p, p->at[node->id]) || !is_host(p, reader) || !is_small(p, node)) return TU_OK;
    tu_status status = tu__placer_supports(p, reader, node);
    if (status != TU_OK) return status == TU_UNSUPPORTED ? TU_OK : status;
    return tu__placer_put(p, node, reader,
                          tu__placer_reason(p, "a few bytes, which only %s reads", p->unit->devices[reader]));
}

/* From the end to the beginning, so that a chain of small steps comes along. */
static tu_status keep_small_work_on_host(tu__placer *p) {
    uint32_t count = p->unit->graph->node_count;
    for (uint32_t i = 0; i < count; i++) p->reader[i] = BY_NOBODY;
    for (size_t i = 0; i < p->unit->fetch_count; i++) p->reader[p->unit->fetch[i].node] = BY_SEVERAL;
    for (uint32_t id = count; id-- > 0;) {
        tu__node *node = p->unit->graph->nodes[id];
        TU_TRY(bring_to_reader(p, node, p->reader[id]));
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t *reader = &p->reader[node->inputs[i].node], at = p->at[id];
            *reader = *reader == BY_NOBODY && at != TU__NOWHERE ? at : *reader == at ? at : BY_SEVERAL;
        }
    }
    return TU_OK;
}

/* ---- Leaves and assignments ---- */

static tu_status follow(tu__placer *p, tu__node *node, const tu__node *leader, const char *what) {
    if (p->at[node->id] != TU__NOWHERE || p->at[leader->id] == TU__NOWHERE) return TU_OK;
    TU_TRY(
        tu__placer_put(p, node, p->at[leader->id], tu__placer_reason(p, "with %s '%s'", what, leader->name)));
    return node->group ? tu__placer_gather(p, node) : TU_OK;
}

/* A leaf goes with its first reader. */
static tu_status place_read_leaves(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        for (uint32_t k = 0; node->op->code != TU__OP_ASSIGN && k < node->input_count; k++)
            TU_TRY(follow(p, g->nodes[node->inputs[k].node], node, "its first reader"));
    }
    return TU_OK;
}

/* A variable that is only assigned goes with what is assigned to it, and a leaf that is only assigned with its variable. */
static tu_status place_assigned_leaves(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i]->op->code != TU__OP_ASSIGN) continue;
        tu__node *variable = g->nodes[g->nodes[i]->inputs[0].node],
                 *next = g->nodes[g->nodes[i]->inputs[1].node];
        TU_TRY(follow(p, variable, next, "its next value"));
        TU_TRY(follow(p, next, variable, "the variable it goes to,"));
    }
    return TU_OK;
}

static tu_status place_leaves(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    TU_TRY(place_read_leaves(p));
    TU_TRY(place_assigned_leaves(p));
    for (uint32_t i = 0; i < g->node_count; i++)
        if (p->at[i] == TU__NOWHERE && g->nodes[i]->op->code != TU__OP_ASSIGN)
            TU_TRY(tu__placer_put(p, g->nodes[i], p->preferred, "no operation reads it: the first device"));
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op->code == TU__OP_ASSIGN)
            TU_TRY(follow(p, g->nodes[i], g->nodes[g->nodes[i]->inputs[0].node], "its variable"));
    return TU_OK;
}

/* ---- All of it ---- */

static tu_status place_all(tu__placer *p) {
    tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i < g->node_count; i++) p->at[i] = TU__NOWHERE;
    for (size_t i = 0; i < p->unit->device_count; i++) {
        p->own[i] = tu__arena_string(&g->arena, p->unit->devices[i]);
        if (!p->own[i]) return TU_NO_MEMORY;
    }
    while (p->preferred < p->unit->device_count && is_host(p, p->preferred)) p->preferred++;
    if (p->preferred == p->unit->device_count) p->preferred = 0;
    TU_TRY(check_patterns(p));
    for (uint32_t i = 0; i < g->node_count; i++) TU_TRY(find_told(p, g->nodes[i]));
    TU_TRY(tu__placer_group(p));
    TU_TRY(place_computed(p));
    TU_TRY(place_followers(p));
    TU_TRY(keep_small_work_on_host(p));
    return place_leaves(p);
}

tu_status tu__pass_place(tu__unit *unit) {
    if (unit->device_count == 0)
        return tu_fail(TU_INVALID, "a program needs a device: expected for example \"cpu:0\"");
    if (unit->device_count > TU__MAX_PLACES)
        return tu_fail(TU_UNSUPPORTED, "at most %d devices in one program", TU__MAX_PLACES);
    size_t nodes = (size_t)unit->graph->node_count + 1;
    tu__arena arena = {.purpose = "a pass"};
    tu__placer p = {.unit = unit,
                    .how = unit->placing ? unit->placing : &by_graph_alone,
                    .at = tu__arena_alloc(&arena, nodes * sizeof *p.at),
                    .told = tu__arena_alloc(&arena, nodes),
                    .reader = tu__arena_alloc(&arena, nodes * sizeof *p.reader),
                    .next_member = tu__arena_alloc(&arena, nodes * sizeof *p.next_member),
                    .first_member = tu__arena_alloc(&arena, ((size_t)unit->graph->group_count + 1) *
                                                                sizeof *p.first_member)};
    bool ready = p.at && p.told && p.reader && p.next_member && p.first_member;
    tu_status status = ready ? place_all(&p) : TU_NO_MEMORY;
    tu__arena_free(&arena);
    return status;
}
