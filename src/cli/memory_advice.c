/* Explains why a step does not fit into the memory of a device.
 *
 * The error message is followed by two tables. The first lists the buffers in memory at the planned peak; its rows
 * add up to the memory needed. The second lists remedies: options with which the step needs less memory. The need
 * with a remedy is computed by planning the step again, which takes milliseconds and allocates nothing on the device.
 * Each remedy is listed in the weakest form with which the step fits: the largest batch, the fewest micro-batches. A
 * remedy is not listed if it cannot be planned, if it does not fit but another one does, or if a simpler remedy
 * achieves the same. */
#include "cli/memory_advice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/byte_size.h"
#include "cli/report.h"

enum {
    MAX_ROWS = 8,
    KINDS = TU_MEMORY_GAP + 1,
    MAX_HALVINGS = 10, /* of the batch; the step is planned once for each */
};

/* Finds the first device that needs more memory than its limit. Returns false if there is none. */
static bool find_full_device(const tu_program *program, size_t *index, tu_memory_report *report) {
    for (*index = 0;
         *index < tu_program_device_count(program) && tu_program_memory(program, *index, report) == TU_OK;
         ++*index)
        if (report->limit_bytes && report->need_bytes > report->limit_bytes) return true;
    return false;
}

/* ---- Buffers at the peak ---- */

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
    fprintf(stderr, "  %-40s  %-9s  %-22s  %10s  %5.1f%%\n", name, kind, type, cli_format_bytes(bytes).text,
            100 * (double)bytes / (double)need);
}

static const char *const kinds[KINDS] = {
    [TU_MEMORY_TENSOR] = "tensor",     [TU_MEMORY_WORKSPACE] = "workspace", [TU_MEMORY_VARIABLE] = "variable",
    [TU_MEMORY_CONSTANT] = "constant", [TU_MEMORY_OVERHEAD] = "overhead",   [TU_MEMORY_GAP] = "gap"};

/* Prints a row for the buffers of a kind that have no row of their own: "37 others". */
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
        if (item->kind != TU_MEMORY_GAP && shown < MAX_ROWS) {
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

/* Lists what is in memory at the planned peak; the caller frees it. NULL if memory runs out. */
static tu_memory_item *list_peak(const tu_program *program, size_t index, size_t *count) {
    size_t all = tu_program_peak_count(program, index);
    tu_memory_item *items = calloc(all + 1, sizeof *items);
    if (!items) return NULL;
    items->struct_size = sizeof *items;
    if (tu_program_peak(program, index, all, items, count) == TU_OK) return items;
    free(items);
    return NULL;
}

static void print_peak(const tu_program *program, size_t index, uint64_t need) {
    size_t count;
    tu_memory_item *items = list_peak(program, index, &count);
    if (!items) return; /* out of memory: the error message has been printed */
    print_items(count, items, need);
    free(items);
}

/* ---- Remedies ---- */

static const struct remedy {
    bool halve;  /* halve the batch */
    bool split;  /* double the number of micro-batches */
    bool narrow; /* use bf16 */
} remedies[] = {{.halve = true},
                {.split = true},
                {.narrow = true},
                {.halve = true, .narrow = true},
                {.split = true, .narrow = true}};
enum { REMEDIES = sizeof remedies / sizeof *remedies };

/* Computes the settings with a remedy; the batch is halved or split `depth` times. Returns false if they are
 * invalid. */
static bool apply_remedy(const struct remedy *remedy, int depth, const struct memory_settings *current,
                         struct memory_settings *with) {
    *with = *current;
    if (remedy->halve) with->batch >>= depth;
    if (remedy->split) with->accumulate <<= depth;
    if (remedy->narrow) with->precision = "bf16";
    return with->batch > 0 && (!remedy->split || (with->accumulate > 0 && with->accumulate <= with->batch)) &&
           (!remedy->narrow || strstr(current->precision, "f32")); /* matches tf32 too */
}

/* The options that change the settings `current` to `with`: "--batch 64 --precision bf16". */
struct option_text {
    char text[96];
};

static struct option_text option_text(const struct memory_settings *with,
                                      const struct memory_settings *current) {
    struct option_text options = {""};
    char batch[32] = "", accumulate[32] = "", precision[32] = "";
    if (with->batch != current->batch) snprintf(batch, sizeof batch, " --batch %" PRId64, with->batch);
    if (with->accumulate != current->accumulate)
        snprintf(accumulate, sizeof accumulate, " --accumulate %" PRId64, with->accumulate);
    if (strcmp(with->precision, current->precision) != 0)
        snprintf(precision, sizeof precision, " --precision %.8s", with->precision);
    snprintf(options.text, sizeof options.text, "%s%s%s", batch, accumulate, precision);
    return options;
}

/* Returns the memory that the device needs with these settings, or `fallback` if they cannot be planned. */
static uint64_t plan_need(const struct memory_planner *planner, const struct memory_settings *settings,
                          size_t index, uint64_t fallback) {
    struct memory_plan plan;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    uint64_t need = fallback;
    if (planner->plan(planner->context, settings, &plan) == TU_OK &&
        tu_program_memory(plan.program, index, &report) == TU_OK)
        need = report.need_bytes;
    planner->release(&plan);
    return need;
}

/* A remedy and the memory needed with it. */
struct remedy_plan {
    struct memory_settings with;
    uint64_t need;
    int depth; /* 0: not possible, or saves nothing */
    bool fits;
};

/* Plans a remedy with increasing depth and returns the first form with which the step fits; if none fits, depth 1. */
static struct remedy_plan plan_remedy(const struct memory_planner *planner, const struct remedy *remedy,
                                      const struct memory_settings *current, size_t index, uint64_t need,
                                      uint64_t limit) {
    struct remedy_plan plan = {0}, deeper = {0};
    int max_depth = remedy->halve || remedy->split ? MAX_HALVINGS : 1;
    for (int depth = 1;
         depth <= max_depth && !plan.fits && apply_remedy(remedy, depth, current, &deeper.with); depth++) {
        deeper.need = plan_need(planner, &deeper.with, index, need);
        deeper.fits = deeper.need <= limit;
        deeper.depth = depth;
        if (deeper.need >= need) break;
        if (depth == 1 || deeper.fits) plan = deeper;
    }
    return plan;
}

static bool is_part_of(const struct remedy *part, const struct remedy *whole) {
    return part->halve <= whole->halve && part->split <= whole->split && part->narrow <= whole->narrow;
}

/* True if a remedy achieves more than each simpler remedy that is a part of it, at the same or a smaller depth. */
static bool is_worth_listing(size_t remedy, const struct remedy_plan plans[REMEDIES]) {
    const struct remedy_plan *whole = &plans[remedy];
    bool more = whole->depth > 0;
    for (size_t i = 0; i < remedy; i++) {
        if (!is_part_of(&remedies[i], &remedies[remedy]) || !plans[i].depth || plans[i].depth > whole->depth)
            continue;
        more = more && (whole->fits ? !plans[i].fits : plans[i].need > whole->need);
    }
    return more;
}

/* Prints the remedies with which the step fits; if there are none, all that save memory. */
static void print_remedies(const struct memory_planner *planner, const struct memory_settings *current,
                           size_t index, uint64_t need, uint64_t limit) {
    struct remedy_plan plans[REMEDIES];
    bool has_heading = false, any_fits = false;
    for (size_t i = 0; i < REMEDIES; i++) {
        plans[i] = plan_remedy(planner, &remedies[i], current, index, need, limit);
        any_fits = any_fits || plans[i].fits;
    }
    for (size_t i = 0; i < REMEDIES; i++) {
        const struct remedy_plan *plan = &plans[i];
        if (!is_worth_listing(i, plans) || plan->fits != any_fits) continue;
        if (!has_heading)
            fprintf(stderr, "\n  %-40s  %10s  %10s  %s\n", "what would help", "would need", "saves", "fits");
        has_heading = true;
        fprintf(stderr, " %-41s  %10s  %10s  %s\n", option_text(&plan->with, current).text,
                cli_format_bytes(plan->need).text, cli_format_bytes(need - plan->need).text,
                plan->fits ? "yes" : "no");
    }
}

/* Prints the bytes of activations that are kept for the backward pass. tu_recompute avoids keeping them. */
static void print_recomputation(const tu_program *program, size_t index, int64_t batch) {
    size_t count;
    tu_memory_item *items = list_peak(program, index, &count);
    uint64_t kept = 0;
    if (!items) return;
    for (size_t i = 0; i < count; i++) {
        const tu_memory_item *item = &items[i];
        bool batched = item->type.shape.rank > 1 && item->type.shape.dim[0] == batch;
        if (item->kind == TU_MEMORY_TENSOR && batched && strncmp(item->name, "grad/", 5) != 0 &&
            strcmp(item->name, "images") != 0)
            kept += item->bytes;
    }
    free(items);
    if (kept)
        fprintf(stderr, "\n  calling tu_recompute around layers in the network's C file saves up to %s\n",
                cli_format_bytes(kept).text);
}

/* ---- The report ---- */

/* Prints the error and the tables if a device needs more than its limit; else returns false. */
static bool report_full_device(const struct memory_planner *planner, const struct memory_plan *plan) {
    size_t index;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    if (!find_full_device(plan->program, &index, &report)) return false;
    cli_input_error("%s: device '%s' would need %s, the limit is %s: expected %s that fits", planner->command,
                    report.device, cli_format_bytes(report.need_bytes).text,
                    cli_format_bytes(report.limit_bytes).text, planner->what);
    print_peak(plan->program, index, report.need_bytes);
    if (planner->settings_fixed) return true;
    print_remedies(planner, &plan->settings, index, report.need_bytes, report.limit_bytes);
    if (planner->is_user_network) print_recomputation(plan->program, index, plan->settings.batch);
    return true;
}

int cli_report_memory(const struct memory_planner *planner) {
    char message[1024]; /* a copy, because planning again may change tu_message() */
    snprintf(message, sizeof message, "%s", tu_message());
    struct memory_plan plan;
    bool planned = planner->plan(planner->context, NULL, &plan) == TU_OK;
    bool full = planned && report_full_device(planner, &plan);
    planner->release(&plan);
    return full ? CLI_BAD_INPUT : cli_fail("%s", message);
}
