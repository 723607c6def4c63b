/* A step that does not fit its device, explained: of a workload to be measured, or of a run to be begun.
 *
 * After the one line of every refusal come two tables: what lies in memory at the planned peak, whose rows add up to
 * what is needed; and what would help. A remedy's saving is measured by planning the step again with it, which takes
 * milliseconds and allocates nothing on the device. A remedy is offered in its mildest form with which the step fits: as
 * large a batch, as few pieces as possible. What cannot be planned, does not fit where something else does, or achieves
 * nothing beyond a part of it is not offered. */
#include "cli/memory_advice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"
#include "cli/size.h"

enum {
    SHOWN = 8,
    KINDS = TU_MEMORY_GAP + 1,
    MAX_HALVINGS = 10, /* of the batch: each is a plan to be made */
};

/* The number of the first device that needs more than it has; false: there is none. */
static bool find_full_device(const tu_program *program, size_t *index, tu_memory_report *report) {
    for (*index = 0;
         *index < tu_program_device_count(program) && tu_program_memory(program, *index, report) == TU_OK;
         ++*index)
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
    if (!items) return; /* the line above has said what matters */
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

/* The settings with a remedy, the batch halved or split `depth` times; false where a part of it cannot be had. */
static bool apply(const struct remedy *remedy, int depth, const struct memory_settings *now,
                  struct memory_settings *with) {
    *with = *now;
    if (remedy->halve) with->batch >>= depth;
    if (remedy->split) with->accumulate <<= depth;
    if (remedy->narrow) with->precision = "bf16";
    return with->batch > 0 && (!remedy->split || (with->accumulate > 0 && with->accumulate <= with->batch)) &&
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
    tu_memory_report report = TU_SIZED(tu_memory_report);
    uint64_t need = otherwise;
    if (planner->plan(planner->context, settings, &plan) == TU_OK &&
        tu_program_memory(plan.program, index, &report) == TU_OK)
        need = report.need_bytes;
    planner->release(&plan);
    return need;
}

/* A remedy as it is offered. */
struct offer {
    struct memory_settings with;
    uint64_t need;
    int depth; /* 0: it cannot be had, or saves nothing */
    bool fits;
};

/* The mildest form of a remedy with which the step fits; where there is none, its first. */
static struct offer make_offer(const struct memory_planner *planner, const struct remedy *remedy,
                               const struct memory_settings *now, size_t index, uint64_t need,
                               uint64_t limit) {
    struct offer offer = {0}, deeper = {0};
    int most = remedy->halve || remedy->split ? MAX_HALVINGS : 1;
    for (int depth = 1; depth <= most && !offer.fits && apply(remedy, depth, now, &deeper.with); depth++) {
        deeper.need = planned_need(planner, &deeper.with, index, need);
        deeper.fits = deeper.need <= limit;
        deeper.depth = depth;
        if (deeper.need >= need) break;
        if (depth == 1 || deeper.fits) offer = deeper;
    }
    return offer;
}

static bool is_part_of(const struct remedy *part, const struct remedy *whole) {
    return part->halve <= whole->halve && part->split <= whole->split && part->narrow <= whole->narrow;
}

/* Whether a remedy is more than a part of it, as mild or milder, achieves alone. */
static bool pays(size_t remedy, const struct offer offers[REMEDIES]) {
    const struct offer *whole = &offers[remedy];
    bool more = whole->depth > 0;
    for (size_t i = 0; i < remedy; i++) {
        if (!is_part_of(&remedies[i], &remedies[remedy]) || !offers[i].depth ||
            offers[i].depth > whole->depth)
            continue;
        more = more && (whole->fits ? !offers[i].fits : offers[i].need > whole->need);
    }
    return more;
}

/* The remedies with which the step fits; where none does, what each saves. */
static void print_remedies(const struct memory_planner *planner, const struct memory_settings *now,
                           size_t index, uint64_t need, uint64_t limit) {
    struct offer offers[REMEDIES];
    bool headed = false, any_fits = false;
    for (size_t i = 0; i < REMEDIES; i++) {
        offers[i] = make_offer(planner, &remedies[i], now, index, need, limit);
        any_fits = any_fits || offers[i].fits;
    }
    for (size_t i = 0; i < REMEDIES; i++) {
        const struct offer *o = &offers[i];
        if (!pays(i, offers) || o->fits != any_fits) continue;
        if (!headed)
            fprintf(stderr, "\n  %-40s  %10s  %10s  %s\n", "what would help", "would need", "saves", "fits");
        headed = true;
        fprintf(stderr, " %-41s  %10s  %10s  %s\n", option_text(&o->with, now).text, cli_size(o->need).text,
                cli_size(need - o->need).text, o->fits ? "yes" : "no");
    }
}

/* What the backward pass keeps of the forward one: its author can have it computed again instead. */
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
        fprintf(stderr, "\n  tu_recompute around layers of the network's C file saves up to %s\n",
                cli_size(kept).text);
}

/* ---- The refusal ---- */

static bool refuse_if_full(const struct memory_planner *planner, const struct memory_plan *plan) {
    size_t index;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    if (!find_full_device(plan->program, &index, &report)) return false;
    cli_refuse("%s: device '%s' would need %s, the limit is %s: expected %s that fits", planner->command,
               report.device, cli_size(report.need_bytes).text, cli_size(report.limit_bytes).text,
               planner->what);
    print_peak(plan->program, index, report.need_bytes);
    if (planner->fixed) return true;
    print_remedies(planner, &plan->settings, index, report.need_bytes, report.limit_bytes);
    if (planner->own_network) print_recomputation(plan->program, index, plan->settings.batch);
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
