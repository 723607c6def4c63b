/* A step that does not fit its device, explained: of a workload to be measured, or of a run to be begun.
 *
 * After the one line of every refusal come two tables: what lies in memory at the planned peak, whose rows add up to
 * what is needed; and what would help. A remedy's saving is measured by planning the step again with it, which takes
 * milliseconds and allocates nothing on the device. What cannot be planned, or saves nothing beyond what a part of it
 * does, is not offered. */
#include "cli/memory_refusal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"
#include "cli/size.h"

enum { SHOWN = 8, KINDS = TU_MEMORY_GAP + 1 };

/* The number of the first device that needs more than it has; false: there is none. */
static bool find_full_device(const tu_program *program, size_t *index, tu_memory_report *report) {
    for (*index = 0; tu_program_memory(program, *index, report) == TU_OK; ++*index)
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

static void print_peak(const tu_program *program, size_t index, uint64_t need) {
    size_t count = tu_program_peak(program, index, 0, NULL);
    tu_memory_item *items = calloc(count + 1, sizeof *items);
    if (!items) return; /* the line above has said what matters */
    tu_program_peak(program, index, count, items);
    print_items(count, items, need);
    free(items);
}

/* ---- What would help ---- */

static const struct remedy {
    bool halve, split, narrow; /* the batch; it into pieces; the type of products and activations */
} remedies[] = {{.halve = true},
                {.split = true},
                {.narrow = true},
                {.halve = true, .narrow = true},
                {.split = true, .narrow = true}};
enum { REMEDIES = sizeof remedies / sizeof *remedies };

/* The settings with a remedy; false where a part of it cannot be had. */
static bool apply(const struct remedy *remedy, const struct memory_settings *now,
                  struct memory_settings *with) {
    *with = *now;
    if (remedy->halve) with->batch /= 2;
    if (remedy->split) with->accumulate *= 2;
    if (remedy->narrow) with->precision = "bf16";
    return with->batch > 0 && (!remedy->split || with->accumulate > 0) &&
           (!remedy->narrow || strstr(now->precision, "f32")); /* or tf32 */
}

/* "--batch 64 --precision bf16": what differs from the settings of now. */
struct option_text {
    char text[96];
};

static struct option_text option_text(const struct memory_settings *with, const struct memory_settings *now) {
    struct option_text options = {""};
    char batch[32] = "", accumulate[32] = "", precision[32] = "";
    if (with->batch != now->batch) snprintf(batch, sizeof batch, " --batch %" PRId64, with->batch);
    if (with->accumulate != now->accumulate)
        snprintf(accumulate, sizeof accumulate, " --accumulate %" PRId64, with->accumulate);
    if (strcmp(with->precision, now->precision) != 0)
        snprintf(precision, sizeof precision, " --precision %.8s", with->precision);
    snprintf(options.text, sizeof options.text, "%s%s%s", batch, accumulate, precision);
    return options;
}

/* What the device would need with these settings; `otherwise` when that cannot be planned. */
static uint64_t planned_need(const struct memory_planner *planner, const struct memory_settings *settings,
                             size_t index, uint64_t otherwise) {
    struct memory_plan plan;
    tu_memory_report report;
    uint64_t need = otherwise;
    if (planner->plan(planner->context, settings, &plan) == TU_OK &&
        tu_program_memory(plan.program, index, &report) == TU_OK)
        need = report.need_bytes;
    planner->release(&plan);
    return need;
}

static bool is_part_of(const struct remedy *part, const struct remedy *whole) {
    return part->halve <= whole->halve && part->split <= whole->split && part->narrow <= whole->narrow;
}

/* Whether a remedy saves anything, and more than any part of it does alone. */
static bool pays(size_t remedy, const uint64_t needs[REMEDIES], uint64_t need) {
    bool less = needs[remedy] < need;
    for (size_t i = 0; i < remedy; i++)
        less = less && !(is_part_of(&remedies[i], &remedies[remedy]) && needs[i] <= needs[remedy]);
    return less;
}

static void print_remedies(const struct memory_planner *planner, const struct memory_settings *now,
                           size_t index, uint64_t need, uint64_t limit) {
    uint64_t needs[REMEDIES];
    bool headed = false;
    for (size_t i = 0; i < REMEDIES; i++) {
        struct memory_settings with;
        needs[i] = apply(&remedies[i], now, &with) ? planned_need(planner, &with, index, need) : need;
        if (!pays(i, needs, need)) continue;
        if (!headed)
            fprintf(stderr, "\n  %-40s  %10s  %10s  %s\n", "what would help", "would need", "saves", "fits");
        headed = true;
        fprintf(stderr, " %-41s  %10s  %10s  %s\n", option_text(&with, now).text, cli_size(needs[i]).text,
                cli_size(need - needs[i]).text, needs[i] <= limit ? "yes" : "no");
    }
}

/* ---- The refusal ---- */

static bool refuse_if_full(const struct memory_planner *planner, const struct memory_plan *plan) {
    size_t index;
    tu_memory_report report;
    if (!find_full_device(plan->program, &index, &report)) return false;
    cli_refuse("%s: device '%s' would need %s, the limit is %s: expected %s that fits", planner->command,
               report.device, cli_size(report.need_bytes).text, cli_size(report.limit_bytes).text,
               planner->what);
    print_peak(plan->program, index, report.need_bytes);
    if (!planner->fixed)
        print_remedies(planner, &plan->settings, index, report.need_bytes, report.limit_bytes);
    return true;
}

int cli_report_memory(const struct memory_planner *planner) {
    char message[1024]; /* planning again may leave another one */
    snprintf(message, sizeof message, "%s", tu_message());
    struct memory_plan plan;
    bool planned = planner->plan(planner->context, NULL, &plan) == TU_OK;
    bool full = planned && refuse_if_full(planner, &plan);
    planner->release(&plan);
    return full ? CLI_BAD_INPUT : cli_fail("%s", message);
}
