/* Locks: a placement written down, so that a change of it is noticed.
 *
 * A new version of the engine, another machine or one more line in a network may move operations between devices without
 * anybody having asked for it. A lock file holds, for every operation, the device it was on: JSON, an operation a line in
 * the order of the graph, so that a version-control system shows its changes well. A program is compared with it by names.
 * Operations that are made wherever they are read, and copies, follow from the others: they are not in it. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/save.h"
#include "run/program.h"

enum { LOCK_VERSION = 1, MAX_LOCK_BYTES = 1 << 30 };

/* Placed for a reason of its own. */
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
    /* of the first: the name of what differs, the device it was locked on, and where it is; NULL: there is no such */
    const char *first, *locked, *now;
    bool *seen; /* per node: the lock knows it */
} comparison;

/* `locked` or `now` may be NULL. */
static void differ(comparison *c, const char *name, const char *locked, const char *now) {
    if (!c->differences++) c->first = name, c->locked = locked, c->now = now;
    if (locked) tu__text_printf(&c->diff, "  - %s %s\n", name, locked);
    if (now) tu__text_printf(&c->diff, "  + %s %s\n", name, now);
}

static tu_status compare_entry(comparison *c, const tu__json_value *entry, size_t index) {
    const tu__json_value *name = tu__json_member(entry, "name"), *device = tu__json_member(entry, "device");
    if (!name || name->kind != TU__JSON_STRING || !device || device->kind != TU__JSON_STRING)
        return tu_fail(TU_CORRUPT,
                       "lock '%s': operation %zu has no name and device: expected both, as strings", c->path,
                       index);
    const tu__node *node = tu__find_node(c->program->unit.graph, name->string);
    bool there = node && is_locked(node);
    if (there) c->seen[node->id] = true;
    if (there && strcmp(node->device, device->string) == 0) return TU_OK;
    differ(c, name->string, device->string, there ? node->device : NULL);
    return TU_OK;
}

static tu_status compare_all(comparison *c, const tu__json_value *lock) {
    const tu__json_value *version = tu__json_member(lock, "tutti_placement"),
                         *operations = tu__json_member(lock, "operations");
    if (!version || !version->is_integer || !operations || operations->kind != TU__JSON_ARRAY)
        return tu_fail(TU_CORRUPT, "'%s' is no lock: expected what --lock has written", c->path);
    if (version->integer != LOCK_VERSION)
        return tu_fail(TU_UNSUPPORTED, "lock '%s' has version %lld: this Tutti knows version %d", c->path,
                       (long long)version->integer, LOCK_VERSION);
    for (size_t i = 0; i < operations->count; i++) TU_TRY(compare_entry(c, &operations->values[i], i));
    const tu_graph *g = c->program->unit.graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (!is_locked(g->nodes[i]) || c->seen[i]) continue;
        differ(c, g->nodes[i]->name, NULL, g->nodes[i]->device);
    }
    return c->diff.failed ? TU_NO_MEMORY : TU_OK;
}

static tu_status read_file(const char *path, tu__text *text) {
    FILE *file = fopen(path, "rb");
    if (!file) return tu_fail(TU_IO, "cannot read the lock '%s': %s", path, strerror(errno));
    char chunk[65536];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0 && text->length < MAX_LOCK_BYTES)
        tu__text_append(text, chunk, got);
    bool failed = ferror(file);
    fclose(file);
    if (failed) return tu_fail(TU_IO, "cannot read the lock '%s': %s", path, strerror(errno));
    return text->failed ? TU_NO_MEMORY : TU_OK;
}

static tu_status compare_file(comparison *c, tu__text *text, tu__arena *arena) {
    const tu__json_value *lock;
    TU_TRY(read_file(c->path, text));
    TU_TRY(tu__json_parse(arena, c->path, tu__text_string(text), text->length, &lock));
    c->seen = tu__arena_alloc(arena, c->program->unit.graph->node_count + (size_t)1);
    if (!c->seen) return TU_NO_MEMORY;
    TU_TRY(compare_all(c, lock));
    if (!c->differences) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the placement is not the one of the lock '%s': %zu differences, the first at '%s' (locked on %s, "
        "now on %s); undo what moved them, or remove the file, and it is written anew",
        c->path, c->differences, c->first, c->locked ? c->locked : "none", c->now ? c->now : "none");
}

tu_status tu_program_lock(const tu_program *program, const char *path, bool update, char **diff) {
    if (diff) *diff = NULL;
    struct stat there;
    if (update || (stat(path, &there) != 0 && errno == ENOENT)) return write_lock(program, path);
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
