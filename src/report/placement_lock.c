/* Placement locks: files that record a placement, so that changes are detected.
 *
 * A new version of the engine, another machine, or a change of the network may move operations between devices
 * unexpectedly. A placement lock file contains the device of every operation: JSON, one operation per line in the
 * order of the graph, so that version control shows changes well. Operations are compared by name. Copies, and operations that are
 * placed with their reader, follow from the others and are not in the file. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/open_file.h"
#include "base/save.h"
#include "run/program.h"

enum { LOCK_VERSION = 1, MAX_LOCK_BYTES = 1 << 30 };

/* True if the node is in the lock file: it was not placed with its reader, and is no copy. */
static bool is_locked(const tu__node *node) {
    return node->why && node->op->code != TU__OP_COPY;
}

/* ---- Writing ---- */

static void put_node(tu__text *text, const tu__node *node, bool first) {
    tu__text_printf(text, first ? "\n" : ",\n");
    tu_json json = tu__json_to_text(text);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "name", node->name);
    tu_json_string(&json, "device", node->device);
    tu_json_end_object(&json);
}

static tu_status write_lock(const tu_program *program, const char *path) {
    const tu_graph *g = program->unit.graph;
    tu__text text = {0};
    bool first = true;
    tu__text_printf(&text, "{\"tutti_placement\":%d,\"operations\":[", LOCK_VERSION);
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (!is_locked(g->nodes[i])) continue;
        put_node(&text, g->nodes[i], first);
        first = false;
    }
    tu__text_printf(&text, "\n]}\n");
    tu_status status = text.failed ? TU_NO_MEMORY : tu_file_save(path, tu__text_string(&text), text.length);
    tu__text_free(&text);
    return status;
}

/* ---- Comparing ---- */

typedef struct comparison {
    const tu_program *program;
    const char *path;
    tu__text diff;
    size_t differences;
    /* The first difference: the operation's name, its device in the lock (NULL: not in the lock) and its current
     * device (NULL: not in the program). */
    const char *first, *locked, *current;
    bool *is_in_lock; /* per node: it is in the lock */
} comparison;

/* Adds a difference. `locked` or `current` may be NULL. */
static void add_difference(comparison *c, const char *name, const char *locked, const char *current) {
    if (!c->differences++) c->first = name, c->locked = locked, c->current = current;
    if (locked) tu__text_printf(&c->diff, "  - %s %s\n", name, locked);
    if (current) tu__text_printf(&c->diff, "  + %s %s\n", name, current);
}

static tu_status compare_entry(comparison *c, const tu__json_value *entry, size_t index) {
    const tu__json_value *name = tu__json_member(entry, "name"), *device = tu__json_member(entry, "device");
    if (!name || name->kind != TU__JSON_STRING || !device || device->kind != TU__JSON_STRING)
        return tu_fail(TU_CORRUPT,
                       "placement lock file '%s': operation %zu has no name or device: expected two strings",
                       c->path, index);
    const tu__node *node = tu__find_node(c->program->unit.graph, name->string);
    bool is_placed = node && is_locked(node);
    if (is_placed) c->is_in_lock[node->id] = true;
    if (is_placed && strcmp(node->device, device->string) == 0) return TU_OK;
    add_difference(c, name->string, device->string, is_placed ? node->device : NULL);
    return TU_OK;
}

static tu_status compare_all(comparison *c, const tu__json_value *lock) {
    const tu__json_value *version = tu__json_member(lock, "tutti_placement"),
                         *operations = tu__json_member(lock, "operations");
    if (!version || !version->is_integer || !operations || operations->kind != TU__JSON_ARRAY)
        return tu_fail(TU_CORRUPT, "'%s' is not a placement lock file: expected a file written by --lock",
                       c->path);
    if (version->integer != LOCK_VERSION)
        return tu_fail(TU_UNSUPPORTED,
                       "placement lock file '%s' has version %lld: this Tutti reads version %d", c->path,
                       (long long)version->integer, LOCK_VERSION);
    for (size_t i = 0; i < operations->count; i++) TU_TRY(compare_entry(c, &operations->values[i], i));
    const tu_graph *g = c->program->unit.graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (!is_locked(g->nodes[i]) || c->is_in_lock[i]) continue;
        add_difference(c, g->nodes[i]->name, NULL, g->nodes[i]->device);
    }
    return c->diff.failed ? TU_NO_MEMORY : TU_OK;
}

static tu_status compare_file(comparison *c, tu__text *text, tu__arena *arena) {
    const tu__json_value *lock;
    TU_TRY(tu__read_file(NULL, c->path, MAX_LOCK_BYTES, text));
    TU_TRY(tu__json_parse(arena, c->path, tu__text_string(text), text->length, &lock));
    c->is_in_lock = tu__arena_alloc(arena, c->program->unit.graph->node_count + (size_t)1);
    if (!c->is_in_lock) return TU_NO_MEMORY;
    TU_TRY(compare_all(c, lock));
    if (!c->differences) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the placement differs from the lock file '%s': %zu differences, the first at '%s' (locked on %s, "
        "now on %s); undo the change that moved them, or remove the file to write a new one",
        c->path, c->differences, c->first, c->locked ? c->locked : "none", c->current ? c->current : "none");
}

tu_status tu_program_check_placement(const tu_program *program, const char *path, bool update, char **diff) {
    if (diff) *diff = NULL;
    struct stat info;
    if (update || (stat(path, &info) != 0 && errno == ENOENT)) return write_lock(program, path);
    comparison c = {.program = program, .path = path};
    tu__text text = {0};
    tu__arena arena = {.purpose = "a lock"};
    tu_status status = compare_file(&c, &text, &arena);
    if (diff && status == TU_INVALID && c.differences)
        *diff = c.diff.data;
    else
        tu__text_free(&c.diff);
    tu__text_free(&text);
    tu__arena_free(&arena);
    return status;
}
