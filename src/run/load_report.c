/* Reports on loading a state file: the outcome for each variable, and a one-line summary. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/name_list.h"
#include "run/state_file.h"

enum { OUTCOMES = TU_LOAD_MISMATCHED + 1 };

static const char *const outcome_names[OUTCOMES] = {[TU_LOAD_MATCHED] = "matched",
                                                    [TU_LOAD_MISSING] = "missing",
                                                    [TU_LOAD_EXTRA] = "extra",
                                                    [TU_LOAD_MISMATCHED] = "mismatched"};

typedef struct entry {
    const char *name;
    tu_type in_state, in_file;
    const char *reason;
    struct entry *next;
} entry;

struct tu_load_report {
    tu__arena arena;
    const char *path;
    size_t count[OUTCOMES];
    entry *first[OUTCOMES], *last[OUTCOMES];
    tu__text text; /* written when it is first requested */
};

tu_load_report *tu__load_report_new(const char *path) {
    tu_load_report *report = tu__alloc(sizeof *report, "a load report");
    if (!report) return NULL;
    report->arena.purpose = "a load report";
    report->path = tu__arena_string(&report->arena, path);
    if (report->path) return report;
    tu_load_report_free(report);
    return NULL;
}

tu_status tu__load_report_add(tu_load_report *report, tu_load_outcome outcome, const char *name,
                              const tu_type *in_state, const tu_type *in_file, const char *reason) {
    const tu_type none = {.dtype = TU_F32, .shape = {.rank = -1}};
    entry *e = tu__arena_alloc(&report->arena, sizeof *e);
    if (!e) return TU_NO_MEMORY;
    e->name = tu__arena_string(&report->arena, name);
    e->reason = reason ? tu__arena_string(&report->arena, reason) : NULL;
    if (!e->name || (reason && !e->reason)) return TU_NO_MEMORY;
    e->in_state = in_state ? *in_state : none;
    e->in_file = in_file ? *in_file : none;
    if (report->last[outcome])
        report->last[outcome]->next = e;
    else
        report->first[outcome] = e;
    report->last[outcome] = e;
    report->count[outcome]++;
    return TU_OK;
}

size_t tu_load_report_entry_count(const tu_load_report *report, tu_load_outcome outcome) {
    return report && (unsigned)outcome < OUTCOMES ? report->count[outcome] : 0;
}

tu_status tu_load_report_entry(const tu_load_report *report, tu_load_outcome outcome, size_t index,
                               const char **name, tu_type *in_state, tu_type *in_file) {
    size_t count = tu_load_report_entry_count(report, outcome);
    if ((unsigned)outcome >= OUTCOMES)
        return tu_fail(TU_NOT_FOUND, "load outcome is %d, expected below %d", (int)outcome, OUTCOMES);
    if (index >= count)
        return tu_fail(TU_NOT_FOUND, "index %zu: the report has %zu entries of outcome '%s'", index, count,
                       outcome_names[outcome]);
    const entry *e = report->first[outcome];
    while (index-- > 0) e = e->next;
    if (name) *name = e->name;
    if (in_state) *in_state = e->in_state;
    if (in_file) *in_file = e->in_file;
    return TU_OK;
}

/* Adds a name; if the types do not match, also both types. */
static void add_entry(tu__name_list *list, const entry *e, bool with_types) {
    tu__text text = {0};
    if (with_types && e->reason)
        tu__text_printf(&text, "%s (in the file it %s)", e->name, e->reason);
    else if (with_types)
        tu__text_printf(&text, "%s (%s in the file, %s in the state)", e->name, tu__type_string(e->in_file),
                        tu__type_string(e->in_state));
    tu__name_list_add(list, with_types && !text.failed ? text.data : e->name);
    tu__text_free(&text);
}

static void append_names(tu_load_report *report, tu_load_outcome outcome, const char *heading) {
    tu__name_list list = {0};
    for (const entry *e = report->first[outcome]; e; e = e->next)
        add_entry(&list, e, outcome == TU_LOAD_MISMATCHED);
    tu__name_list_append_to(&list, heading, &report->text);
    tu__text_free(&list.text);
}

const char *tu_load_report_text(tu_load_report *report) {
    if (!report) return "";
    if (report->text.length == 0) {
        size_t matched = report->count[TU_LOAD_MATCHED];
        tu__text_printf(&report->text, "%zu variable%s of '%s' match%s", matched, matched == 1 ? "" : "s",
                        report->path, matched == 1 ? "es" : "");
        append_names(report, TU_LOAD_MISSING, "missing in the file");
        append_names(report, TU_LOAD_MISMATCHED, "type or shape mismatch");
        append_names(report, TU_LOAD_EXTRA, "only in the file");
    }
    return tu__text_string(&report->text);
}

void tu_load_report_free(tu_load_report *report) {
    if (!report) return;
    tu__text_free(&report->text);
    tu__arena_free(&report->arena);
    tu__free(report);
}
