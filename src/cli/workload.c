/* The training step that `tutti bench` measures: forward pass, backward pass and update, as one program.
 *
 * The batch is generated once, with a fixed seed and without functions of the C library whose last bit may differ
 * between machines. It is fed in every step, like the batches of a loader. Images have mean 0 and standard deviation
 * 1, like normalised images. With learning rate 0.01 and momentum 0.9 the loss stays finite for any practical number
 * of steps. Networks of tokens are trained with AdamW, as GPT-2 is. */
#include "cli/workload.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/train.h>

#include "cli/branches_workload.h"
#include "cli/clock.h"
#include "cli/network.h"
#include "cli/processes.h"
#include "cli/report.h"

enum { SEED = 1 };

/* ---- The batch ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool has_tokens(const struct workload *w) {
    return tu_value_dtype(w->net.images) == TU_I32;
}

/* Tokens are their own targets. Small ones are more frequent, as in texts. */
static tu_status draw_tokens(struct workload *w) {
    uint64_t random = SEED;
    tu_shape logits = tu_value_shape(w->net.logits);
    size_t count = (size_t)tu_shape_elements(tu_value_shape(w->net.images));
    uint64_t vocabulary = (uint64_t)logits.dim[logits.rank - 1];
    w->tokens = calloc(count, sizeof *w->tokens);
    if (!w->tokens) return tu_fail(TU_NO_MEMORY, "bench: out of memory for the batch");
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = next_bits(&random);
        w->tokens[i] = (int32_t)(bits % (1 + (bits >> 32) % vocabulary));
    }
    return TU_OK;
}

/* All networks of a stack have different inputs. */
static tu_status draw_batch(struct workload *w, int64_t classes) {
    if (has_tokens(w)) return draw_tokens(w);
    uint64_t random = SEED;
    tu_shape images = tu_value_shape(w->net.images);
    size_t pixels = (size_t)tu_shape_elements(images), samples = (size_t)images.dim[0];
    w->images = calloc(pixels, sizeof *w->images);
    w->labels = calloc(samples, sizeof *w->labels);
    if (!w->images || !w->labels) return tu_fail(TU_NO_MEMORY, "bench: out of memory for the batch");
    const double span = 3.4641016151377544; /* sqrt(12): a uniform draw of this width has deviation 1 */
    for (size_t i = 0; i < pixels; i++)
        w->images[i] = (float)(((double)(next_bits(&random) >> 11) * 0x1p-53 - 0.5) * span);
    for (size_t i = 0; i < samples; i++) w->labels[i] = (int32_t)(next_bits(&random) % (uint64_t)classes);
    return TU_OK;
}

/* ---- The devices ---- */

/* Adds "bench: " to the message of a failed call. */
static tu_status prefix_bench(tu_status status) {
    return status == TU_OK ? TU_OK : tu_fail(status, "bench: %s", tu_message());
}

/* Compiles a program with one constant. Its reports have the names, threads and notices of the listed devices. */
static tu_status compile_device_list(struct workload *w, const struct workload_settings *s) {
    TU_TRY(tu_graph_new(&w->device_list_graph));
    tu_value nothing = tu_fill(w->device_list_graph, TU_F32, TU_SCALAR, 0);
    return prefix_bench(tu_compile(w->device_list_graph, &w->device_list, .devices = s->devices,
                                   .threads = s->threads, .tune_kernels = s->tune_kernels, .fetch = &nothing,
                                   .fetch_count = 1, .plan_only = true));
}

size_t workload_device_count(const struct workload *w) {
    tu_device_report report = TU_SIZED(tu_device_report);
    size_t count = 0;
    while (count < tu_program_device_count(w->device_list) &&
           tu_program_device(w->device_list, count, &report) == TU_OK)
        count++;
    return count;
}

/* ---- The program ---- */

static const char branches_name[] = "branches";

static tu_status build_model(struct workload *w, const struct workload_settings *s) {
    static const char *const others[] = {branches_name, "a C file", NULL};
    w->net = TU_SIZED(tu_network_graph);
    if (strcmp(s->model, branches_name) == 0)
        return branches_workload_build(w->graph, w->device_list, s->batch, &w->net);
    tu_status status = tu_network_build(w->graph, s->model, &w->net, .batch = s->batch, .base = s->base);
    return status == TU_NOT_FOUND ? network_fail_unknown("bench", s->model, others) : status;
}

/* With `branches`, --place or --lock, operations are placed one by one and the default strategy is "single". */
static tu_status choose_strategy(struct workload *w, const struct workload_settings *s) {
    bool placed = s->place || s->lock || strcmp(s->model, branches_name) == 0;
    w->strategy = s->strategy ? s->strategy
                  : s->group  ? "mirrored"
                              : tu_default_strategy(s->devices, placed, s->invariant);
    bool strategy_unknown = !s->strategy && !placed && !workload_is_sharded(w);
    if (strategy_unknown && workload_device_count(w) > 1)
        return tu_fail(
            TU_INVALID,
            "bench: --devices '%.60s' contains devices of several kinds: choose with --strategy or --place "
            "how they share the step",
            s->devices);
    return TU_OK;
}

/* Replaces the inputs and the loss by those of a stack. */
static tu_status stack_networks(struct workload *w, int64_t count) {
    if (workload_is_sharded(w))
        return tu_fail(TU_INVALID, "bench: --stack is for one device, and --devices lists %zu",
                       workload_device_count(w));
    tu_graph **networks = calloc((size_t)count, sizeof *networks);
    if (!networks) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    for (int64_t i = 0; i < count; i++) networks[i] = w->graph;
    tu_status status = prefix_bench(tu_stacked_new((size_t)count, networks, &w->stack));
    free(networks);
    TU_TRY(status);
    tu_graph *graph = tu_stacked_graph(w->stack);
    w->net.images = tu_find(graph, has_tokens(w) ? "tokens" : "images");
    if (!has_tokens(w)) w->net.labels = tu_find(graph, "labels");
    w->net.loss = tu_find_output(graph, "loss");
    return tu_graph_status(graph);
}

static tu_status build(struct workload *w, const struct workload_settings *s) {
    TU_TRY(compile_device_list(w, s));
    TU_TRY(tu_graph_new(&w->graph));
    tu_set_training(w->graph, true);
    TU_TRY(build_model(w, s));
    TU_TRY(choose_strategy(w, s));
    TU_TRY(has_tokens(w) ? tu_add_optimizer(w->net.loss, NULL, .name = "adamw", .constant_rate = 3e-4,
                                            .beta2 = 0.95, .unguarded = true, .weight_decay = 0.1)
                         : tu_add_sgd(w->net.loss, 0.01, 0.9));
    return s->stack > 1 ? stack_networks(w, s->stack) : TU_OK;
}

static tu_status compile(struct workload *w, const struct workload_settings *s, bool plan_only) {
    double start = cli_now();
    tu_status status = tu_compile(
        w->stack ? tu_stacked_graph(w->stack) : w->graph, &w->step, .devices = s->devices,
        .threads = s->threads, .strategy = w->strategy, .central = s->central, .invariant = s->invariant,
        .bf16_gradients = s->bf16_gradients, .precision = s->precision, .memory_limit = s->memory_limit,
        .gpu_memory_limit = s->gpu_memory_limit, .gpu_memory_reserve = s->gpu_memory_reserve,
        .place = s->place, .strict_placement = s->strict_placement, .tune_kernels = s->tune_kernels,
        .fetch = &w->net.loss, .fetch_count = 1, .updates = true, .plan_only = plan_only, .group = s->group);
    w->compile_seconds = cli_now() - start;
    tu_multi_step_report many = TU_SIZED(tu_multi_step_report);
    w->multi_step = status == TU_OK && tu_program_multi_step(w->step, &many) == TU_OK && many.in_one_call;
    return prefix_bench(status);
}

bool workload_is_sharded(const struct workload *w) {
    return strcmp(w->strategy, "single") != 0;
}

/* False for the processes other than 0 with strategy "central": they need no memory for variables. */
static bool has_variables(const struct workload *w, const struct workload_settings *s) {
    return cli_prints(s->group) || strcmp(w->strategy, "central") != 0;
}

tu_status workload_plan(struct workload *w, const struct workload_settings *settings) {
    *w = (struct workload){0};
    TU_TRY(build(w, settings));
    return compile(w, settings, true);
}

/* Initialises the networks of a stack with a seed each. */
static tu_status init_networks(struct workload *w) {
    TU_TRY(tu_state_new(tu_stacked_graph(w->stack), &w->state));
    tu_status status = TU_OK;
    for (size_t i = 0; status == TU_OK && i < tu_stacked_members(w->stack); i++) {
        tu_state *one = NULL;
        status = tu_state_new(w->graph, &one, .seed = SEED + i);
        if (status == TU_OK) status = tu_stacked_insert(w->stack, w->state, i, w->graph, one);
        tu_state_free(one);
    }
    return status;
}

tu_status workload_init(struct workload *w, const struct workload_settings *settings) {
    *w = (struct workload){0};
    TU_TRY(build(w, settings));
    TU_TRY(compile(w, settings, false));
    if (settings->lock)
        TU_TRY(prefix_bench(tu_program_check_placement(w->step, settings->lock, false, NULL)));
    TU_TRY(draw_batch(w, tu_value_shape(w->net.logits).dim[1]));
    w->losses = calloc(w->stack ? tu_stacked_members(w->stack) : 1, sizeof *w->losses);
    if (!w->losses) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    if (w->stack) return init_networks(w);
    return tu_state_new(has_variables(w, settings) ? w->graph : w->device_list_graph, &w->state,
                        .seed = SEED);
}

void workload_free(struct workload *w) {
    tu_program_free(w->step);
    tu_state_free(w->state);
    tu_stacked_free(w->stack);
    tu_graph_free(w->graph);
    tu_program_free(w->device_list);
    tu_graph_free(w->device_list_graph);
    free(w->images);
    free(w->labels);
    free(w->tokens);
    free(w->losses);
}

static size_t feed_count(const struct workload *w) {
    return has_tokens(w) ? 1 : 2;
}

tu_status workload_step(struct workload *w) {
    const tu_feed feeds[] = {{w->net.images, has_tokens(w) ? (void *)w->tokens : w->images},
                             {w->net.labels, w->labels}};
    TU_TRY(tu_run(w->step, w->state, feed_count(w), feeds, (void *[]){w->losses}));
    w->loss = w->losses[0];
    return TU_OK;
}

/* Runs all steps in one call. The batch stays on the device, which also collects the losses. */
static tu_status run_multi_step(struct workload *w, size_t count) {
    const void *input = has_tokens(w) ? (const void *)w->tokens : w->images;
    const tu_feed_many feeds[] = {{.input = w->net.images, .data = input, .same_batch = true},
                                  {.input = w->net.labels, .data = w->labels, .same_batch = true}};
    size_t networks = w->stack ? tu_stacked_members(w->stack) : 1;
    float *losses = calloc(count * networks, sizeof *losses);
    if (!losses) return tu_fail(TU_NO_MEMORY, "bench: out of memory for the losses of %zu steps", count);
    tu_status status = tu_run_many(w->step, w->state, count, feed_count(w), feeds, (void *[]){losses});
    if (status == TU_OK) w->loss = losses[(count - 1) * networks];
    free(losses);
    return status;
}

tu_status workload_steps(struct workload *w, int64_t count) {
    if (count <= 0) return TU_OK;
    if (w->multi_step) return run_multi_step(w, (size_t)count);
    for (int64_t i = 0; i < count; i++) TU_TRY(workload_step(w));
    return TU_OK;
}

tu_status workload_check_loss(const struct workload *w) {
    if (isfinite(w->loss)) return TU_OK;
    return tu_fail(TU_INTERNAL,
                   "bench: the loss is no longer finite: the times of such steps are meaningless");
}

/* ---- Digest and memory ---- */

tu_status workload_digest(const struct workload *w, char digest[TU_DIGEST_TEXT]) {
    return tu_state_digest(w->state, digest);
}

struct workload_memory workload_memory(const struct workload *w) {
    struct workload_memory memory = {0};
    tu_memory_report report = TU_SIZED(tu_memory_report);
    for (size_t i = 0;
         i < tu_program_device_count(w->step) && tu_program_memory(w->step, i, &report) == TU_OK; i++) {
        memory.peak += report.need_bytes - report.overhead_bytes;
        memory.overhead += report.overhead_bytes;
        memory.tables += report.table_bytes;
    }
    return memory;
}
