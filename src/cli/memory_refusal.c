/* A workload that does not fit its device, explained.
 *
 * After the one line of every refusal come two tables: what lies in memory at the planned peak, whose rows add up to
 * what is needed; and what would help. A remedy's saving is measured by planning the workload again with it, which
 * takes milliseconds and allocates nothing on the device. */
#include "cli/memory_refusal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"
#include "cli/size.h"

enum { SHOWN = 8, KINDS = TU_MEMORY_GAP + 1 };

/* The number of the first device that needs more than it has; false: there is none. */
static bool find_full_device(const struct workload *work, size_t *index, tu_memory_report *report) {
    for (*index = 0; tu_program_memory(work->step, *index, report) == TU_OK; ++*index)
        if (report->limit_bytes && report->need_bytes > report->limit_bytes) return true;
    return false;
}

/* ---- What weighs most ---- */

/* "f32[128,24,24,64]" */
struct type_text {
    char text[96];
};

static struct type_text type_text(const tu_memory_item *item) {
    struct type_text t = {""};
    if (item->kind == TU_MEMORY_WORKSPACE || item->kind == TU_MEMORY_OVERHEAD) return t;
    size_t used = (size_t)snprintf(t.text, sizeof t.text, "%s[", tu_dtype_name(item->type.dtype));
    for (int64_t i = 0; i < item->type.shape.rank && used < sizeof t.text; i++)
        used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%" PRId64, i ? "," : "",
                                 item->type.shape.dim[i]);
    if (used < sizeof t.text) snprintf(t.text + used, sizeof t.text - used, "]");
    return t;
}

static void print_row(const char *name, const char *kind, const char *type, uint64_t bytes, uint64_t need) {
    fprintf(stderr, "  %-40s  %-9s  %-22s  %10s  %5.1f%%\n", name, kind, type, cli_size(bytes).text,
            100 * (double)bytes / (double)need);
}

static const char *const kinds[KINDS] = {
    [TU_MEMORY_TENSOR] = "tensor",     [TU_MEMORY_WORKSPACE] = "workspace", [TU_MEMORY_VARIABLE] = "variable",
    [TU_MEMORY_CONSTANT] = "constant", [TU_MEMORY_OVERHEAD] = "overhead",   [TU_MEMORY_GAP] = "gap"};

/* The rest of a kind: "37 others", or all of it where none was heavy enough for a row of its own. */
static void print_rest(tu_memory_kind kind, size_t count, uint64_t bytes, uint64_t need) {
    char name[64];
    if (!count) return;
    if (kind == TU_MEMORY_GAP)
        snprintf(name, sizeof name, "gaps between tensors");
    else
        snprintf(name, sizeof name, "%zu other%s", count, count == 1 ? "" : "s");
    print_row(name, kinds[kind], "", bytes, need);
}

static void print_items(size_t count, const tu_memory_item *items, uint64_t need) {
    size_t rest[KINDS] = {0}, shown = 0;
    uint64_t rest_bytes[KINDS] = {0};
    fprintf(stderr, "\n  %-40s  %-9s  %-22s  %10s  %6s\n", "at the planned peak", "kind", "type", "memory",
            "share");
    for (size_t i = 0; i < count; i++) {
        const tu_memory_item *item = &items[i];
        if (item->kind != TU_MEMORY_GAP && shown < SHOWN) {
            shown++;
            print_row(item->name, kinds[item->kind], type_text(item).text, item->bytes, need);
        } else {
            rest[item->kind]++;
            rest_bytes[item->kind] += item->bytes;
        }
    }
    for (int kind = 0; kind < KINDS; kind++)
        print_rest((tu_memory_kind)kind, rest[kind], rest_bytes[kind], need);
    print_row("all", "", "", need, need);
}

static void print_peak(const struct workload *work, size_t index, uint64_t need) {
    size_t count = tu_program_peak(work->step, index, 0, NULL);
    tu_memory_item *items = calloc(count + 1, sizeof *items);
    if (!items) return; /* the line above has said what matters */
    tu_program_peak(work->step, index, count, items);
    print_items(count, items, need);
    free(items);
}

/* ---- What would help ---- */

/* What the device would need with these settings; `otherwise` when that cannot be planned. */
static uint64_t planned_need(const struct workload_settings *settings, size_t index, uint64_t otherwise) {
    struct workload work;
    tu_memory_report report;
    uint64_t need = otherwise;
    if (workload_plan(&work, settings) == TU_OK && tu_program_memory(work.step, index, &report) == TU_OK)
        need = report.need_bytes;
    workload_end(&work);
    return need;
}

static void print_remedy(const struct workload_settings *with, const struct workload_settings *now,
                         size_t index, uint64_t need, uint64_t limit) {
    char options[64] = "";
    if (with->batch != now->batch) snprintf(options, sizeof options, "--batch %" PRId64, with->batch);
    if (strcmp(with->precision, now->precision) != 0) {
        size_t used = strlen(options);
        snprintf(options + used, sizeof options - used, "%s--precision %s", used ? " " : "", with->precision);
    }
    uint64_t less = planned_need(with, index, need);
    if (less >= need) return;
    fprintf(stderr, "  %-40s  %10s  %10s  %s\n", options, cli_size(less).text, cli_size(need - less).text,
            less <= limit ? "yes" : "no");
}

static void print_remedies(const struct workload_settings *now, size_t index, uint64_t need, uint64_t limit) {
    struct workload_settings half = *now, bf16 = *now, both;
    if (now->batch > 1) half.batch = now->batch / 2;
    bf16.precision = "bf16";
    both = bf16;
    both.batch = half.batch;
    bool can_halve = half.batch != now->batch,
         can_narrow = strstr(now->precision, "f32") != NULL; /* or tf32 */
    if (!can_halve && !can_narrow) return;
    fprintf(stderr, "\n  %-40s  %10s  %10s  %s\n", "what would help", "would need", "saves", "fits");
    if (can_halve) print_remedy(&half, now, index, need, limit);
    if (can_narrow) print_remedy(&bf16, now, index, need, limit);
    if (can_halve && can_narrow) print_remedy(&both, now, index, need, limit);
}

int cli_refuse_memory(const struct workload_settings *settings) {
    struct workload work;
    size_t index;
    tu_memory_report report;
    bool full = workload_plan(&work, settings) == TU_OK && find_full_device(&work, &index, &report);
    if (full) {
        uint64_t need = report.need_bytes;
        cli_refuse("bench: device '%s' would need %s, the limit is %s: expected a workload that fits",
                   report.device, cli_size(need).text, cli_size(report.limit_bytes).text);
        print_peak(&work, index, need);
        print_remedies(settings, index, need, report.limit_bytes);
    }
    workload_end(&work);
    return full ? CLI_BAD_INPUT : CLI_DONE;
}
