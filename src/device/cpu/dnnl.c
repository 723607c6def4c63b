/* The adapter to oneDNN: convolution and matrix product over dense tensors, for its versions 2.x and 3.x.
 *
 * Layouts. Activations are NHWC at both ends of a primitive: as measured on a Xeon with AMX and on Zen 4
 * (docs/performance.md), oneDNN's kernels for blocked activations are no faster than those for NHWC, and all our
 * kernels read NHWC. Filters may have any layout, since a small reorder per step is cheap; the reorder is part of
 * the operation and uses its workspace. So blocked tensors exist only inside this file.
 *
 * An implementation named "ref" is oneDNN's plain C, a hundred times slower: it is not used.
 *
 * Memory. Scratchpads are in the caller's workspace (k->workspace), planned like any other buffer. An operation must
 * be created with the number of threads that will run it, because oneDNN then decides how to divide the work. */
#include "device/cpu/dnnl.h"

#include "device/cpu/cpu.h"

#ifndef TU_DNNL

const char *cpu_dnnl_version(void) {
    return NULL;
}

bool cpu_dnnl_usable(void) {
    return false;
}

tu_status cpu_dnnl_convolution(const cpu_convolution *convolution, cpu_conv_result result, tu_dtype dtype,
                               int threads, cpu_dnnl **op) {
    (void)convolution, (void)result, (void)dtype, (void)threads;
    *op = NULL;
    return TU_OK;
}

tu_status cpu_dnnl_matmul(const cpu_dnnl_product *product, int threads, cpu_dnnl **op) {
    (void)product, (void)threads;
    *op = NULL;
    return TU_OK;
}

size_t cpu_dnnl_workspace(const cpu_dnnl *op) {
    (void)op;
    return 0;
}

tu_status cpu_dnnl_run(cpu_dnnl *op, const cpu_direct_operands *operands) {
    (void)op, (void)operands;
    return tu_fail(TU_INTERNAL, "oneDNN operation in a build without oneDNN");
}

void cpu_dnnl_free(cpu_dnnl *op) {
    (void)op;
}

#else

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <dnnl.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "device/cpu/isa/instruction_sets.h"

/* ---- Differences between the two versions ---- */

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t description_view;
#define VIEW(md) (md)
#define INIT_BY_TAG dnnl_memory_desc_create_with_tag
#define INIT_BY_STRIDES dnnl_memory_desc_create_with_strides

#else

typedef const dnnl_memory_desc_t *description_view;
#define VIEW(md) (&(md))
#define INIT_BY_TAG dnnl_memory_desc_init_by_tag
#define INIT_BY_STRIDES dnnl_memory_desc_init_by_strides

#endif

/* A tensor's shape, type and layout: a value in 2.x, an object in 3.x. */
typedef struct description {
    dnnl_memory_desc_t md;
} description;

static description_view view(const description *d) {
    return VIEW(d->md);
}

static void description_free(description *d) {
#if DNNL_VERSION_MAJOR >= 3
    if (d->md) dnnl_memory_desc_destroy(d->md);
#else
    (void)d;
#endif
}

/* Initialises a description. Without strides, the primitive chooses the layout. */
static bool describe(description *d, int rank, const int64_t *dims, dnnl_data_type_t type,
                     const int64_t *strides) {
    dnnl_dims_t all_dims = {0}, all_strides = {0}; /* oneDNN's arrays have their maximum length */
    memcpy(all_dims, dims, (size_t)rank * sizeof *dims);
    if (!strides) return INIT_BY_TAG(&d->md, rank, all_dims, type, dnnl_format_tag_any) == dnnl_success;
    memcpy(all_strides, strides, (size_t)rank * sizeof *strides);
    return INIT_BY_STRIDES(&d->md, rank, all_dims, type, all_strides) == dnnl_success;
}

/* ---- The engine: one per process ---- */

static dnnl_engine_t engine;

/* Limits oneDNN to the instruction set in use. Its own detection trusts virtual machines that report AMX, and
 * crashes at the first tile. Returns false if it cannot be limited because the process used oneDNN before. */
static bool limit_instructions(void) {
    static const dnnl_cpu_isa_t sets[CPU_ISA_COUNT] = {
        [CPU_BASELINE] = dnnl_cpu_isa_sse41,
        [CPU_AVX2] = dnnl_cpu_isa_avx2,
        [CPU_AVX_VNNI] = dnnl_cpu_isa_avx2, /* its AVX-VNNI needs another bit, and only int8 uses it */
        [CPU_AVX512] = dnnl_cpu_isa_avx512_core,
        [CPU_AVX512_VNNI] = dnnl_cpu_isa_avx512_core_vnni,
        [CPU_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
    };
    const cpu_isa_facts *facts = cpu_isa_of_machine();
    cpu_isa isa = cpu_isa_in_use();
    bool must_limit = isa < facts->best;
    for (cpu_isa i = CPU_BASELINE; i < CPU_ISA_COUNT; i++) must_limit |= facts->unusable_reason[i] != NULL;
    if (!must_limit || dnnl_set_max_cpu_isa(sets[isa]) == dnnl_success) return true;
    return (dnnl_get_effective_cpu_isa() & ~sets[isa]) == 0;
}

static void create_engine(void) {
    if (!limit_instructions()) return;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

bool cpu_dnnl_usable(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_engine);
    return engine != NULL;
}

static char version_text[32];

static void write_version(void) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(version_text, sizeof version_text, "%d.%d.%d", v->major, v->minor, v->patch);
}

const char *cpu_dnnl_version(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_version);
    return version_text;
}

/* ---- Operations ---- */

enum { FIRST, SECOND, OUT, OPERANDS }; /* the caller's operands */
enum { MAX_STEPS = 4, MAX_WORKSPACE_MEMORIES = 4, MAX_MEMORIES = OPERANDS + MAX_WORKSPACE_MEMORIES };

typedef struct step { /* a primitive and its arguments */
    dnnl_primitive_t primitive;
    int count;
    int argument[OPERANDS + 1]; /* DNNL_ARG_… */
    int memory[OPERANDS + 1];   /* index in memory_set */
} step;

/* Memory objects of oneDNN, which contain addresses: a thread that runs the operation needs its own. The first ones are
 * the caller's operands; the others are in the workspace: reordered operands and the scratchpad. */
typedef struct memory_set {
    dnnl_stream_t stream;
    dnnl_memory_t memory[MAX_MEMORIES];
} memory_set;

struct cpu_dnnl {
    memory_set prototype; /* without addresses: others are created like it */
    int memory_count, step_count;
    size_t workspace_offset[MAX_MEMORIES]; /* of memories in the workspace */
    step steps[MAX_STEPS];
    size_t workspace;
    _Atomic(memory_set *) idle; /* a set that no thread uses; NULL: none */
};

/* ---- Sets of memory objects ---- */

static void clear_set(memory_set *set) {
    for (int i = 0; i < MAX_MEMORIES; i++)
        if (set->memory[i]) dnnl_memory_destroy(set->memory[i]);
    if (set->stream) dnnl_stream_destroy(set->stream);
}

static void free_set(memory_set *set) {
    if (!set) return;
    clear_set(set);
    tu__free(set);
}

static memory_set *new_set(const cpu_dnnl *op) {
    memory_set *set = tu__alloc(sizeof *set, "an operation of oneDNN");
    if (!set) return NULL;
    bool created = dnnl_stream_create(&set->stream, engine, dnnl_stream_default_flags) == dnnl_success;
    for (int i = 0; created && i < op->memory_count; i++) {
        description_view d;
        created = dnnl_memory_get_memory_desc(op->prototype.memory[i], &d) == dnnl_success &&
                  dnnl_memory_create(&set->memory[i], d, engine, DNNL_MEMORY_NONE) == dnnl_success;
    }
    if (created) return set;
    free_set(set);
    tu_fail(TU_NO_MEMORY, "oneDNN %s: creating memory objects failed", cpu_dnnl_version());
    return NULL;
}

/* Returns a set that no other thread uses; NULL if memory runs out. */
static memory_set *take_set(cpu_dnnl *op) {
    memory_set *set = atomic_exchange(&op->idle, NULL);
    return set ? set : new_set(op);
}

/* Keeps one set for the next run. */
static void return_set(cpu_dnnl *op, memory_set *set) {
    memory_set *none = NULL;
    if (!atomic_compare_exchange_strong(&op->idle, &none, set)) free_set(set);
}

/* ---- Running ---- */

void cpu_dnnl_free(cpu_dnnl *op) {
    if (!op) return;
    for (int i = 0; i < op->step_count; i++) dnnl_primitive_destroy(op->steps[i].primitive);
    clear_set(&op->prototype);
    free_set(atomic_load(&op->idle));
    tu__free(op);
}

size_t cpu_dnnl_workspace(const cpu_dnnl *op) {
    return op->workspace;
}

static tu_status fail_dnnl(const char *what, dnnl_status_t status) {
    return tu_fail(status == dnnl_out_of_memory ? TU_NO_MEMORY : TU_INTERNAL,
                   "oneDNN %s: %s failed with status %d", cpu_dnnl_version(), what, (int)status);
}

static tu_status run_steps(const cpu_dnnl *op, const memory_set *set) {
    for (int i = 0; i < op->step_count; i++) {
        const step *s = &op->steps[i];
        dnnl_exec_arg_t arguments[OPERANDS + 1];
        for (int k = 0; k < s->count; k++)
            arguments[k] = (dnnl_exec_arg_t){s->argument[k], set->memory[s->memory[k]]};
        dnnl_status_t status = dnnl_primitive_execute(s->primitive, set->stream, s->count, arguments);
        if (status != dnnl_success) return fail_dnnl("running a primitive", status);
    }
    dnnl_status_t status = dnnl_stream_wait(set->stream);
    return status == dnnl_success ? TU_OK : fail_dnnl("waiting for a stream", status);
}

tu_status cpu_dnnl_run(cpu_dnnl *op, const cpu_direct_operands *o) {
    void *const addresses[OPERANDS] = {(void *)o->first, (void *)o->second, o->out};
    memory_set *set = take_set(op);
    if (!set) return TU_NO_MEMORY;
    for (int i = 0; i < op->memory_count; i++)
        dnnl_memory_set_data_handle(
            set->memory[i], i < OPERANDS ? addresses[i] : (char *)o->workspace + op->workspace_offset[i]);
    tu_status status = run_steps(op, set);
    return_set(op, set);
    return status;
}

/* ---- Creating operations ---- */

typedef struct op_spec { /* description of an operation */
    dnnl_primitive_desc_t primitive;
    description dense[OPERANDS]; /* layout of the caller's operands */
    int argument[OPERANDS];      /* DNNL_ARG_… */
} op_spec;

/* Adds a memory in the workspace; returns its index, or -1. */
static int add_workspace_memory(cpu_dnnl *op, description_view d) {
    int index = op->memory_count;
    if (dnnl_memory_create(&op->prototype.memory[index], d, engine, DNNL_MEMORY_NONE) != dnnl_success)
        return -1;
    op->memory_count++;
    op->workspace_offset[index] = op->workspace;
    op->workspace += (dnnl_memory_desc_get_size(d) + 63) / 64 * 64;
    return index;
}

static bool add_step(cpu_dnnl *op, dnnl_primitive_desc_t d, int count, const int *arguments,
                     const int *memories) {
    step *s = &op->steps[op->step_count];
    if (dnnl_primitive_create(&s->primitive, d) != dnnl_success) return false;
    s->count = count;
    memcpy(s->argument, arguments, (size_t)count * sizeof *arguments);
    memcpy(s->memory, memories, (size_t)count * sizeof *memories);
    op->step_count++;
    return true;
}

static bool add_reorder(cpu_dnnl *op, description_view from_view, int from, description_view to_view,
                        int to) {
    dnnl_primitive_desc_t d;
    if (dnnl_reorder_primitive_desc_create(&d, from_view, engine, to_view, engine, NULL) != dnnl_success)
        return false;
    bool added = add_step(op, d, 2, (const int[]){DNNL_ARG_FROM, DNNL_ARG_TO}, (const int[]){from, to});
    dnnl_primitive_desc_destroy(d);
    return added;
}

static description_view primitive_layout(const op_spec *r, int operand) {
    return dnnl_primitive_desc_query_md(r->primitive, dnnl_query_exec_arg_md, r->argument[operand]);
}

/* Sets `*bound` to the memory of an operand for the primitive: the caller's, or a reordered copy. */
static bool bind_operand(cpu_dnnl *op, const op_spec *r, int operand, int *bound) {
    description_view dense = view(&r->dense[operand]), needed = primitive_layout(r, operand);
    *bound = operand;
    if (dnnl_memory_desc_equal(dense, needed)) return true;
    *bound = add_workspace_memory(op, needed);
    return *bound >= 0 && (operand == OUT || add_reorder(op, dense, operand, needed, *bound));
}

static bool create_user_memories(cpu_dnnl *op, const op_spec *r) {
    for (int i = 0; i < OPERANDS; i++) {
        if (dnnl_memory_create(&op->prototype.memory[i], view(&r->dense[i]), engine, DNNL_MEMORY_NONE) !=
            dnnl_success)
            return false;
        op->memory_count++;
    }
    return true;
}

static bool assemble(cpu_dnnl *op, const op_spec *r) {
    int arguments[OPERANDS + 1], memories[OPERANDS + 1], count = 0;
    if (!create_user_memories(op, r)) return false;
    for (int i = 0; i < OPERANDS; i++, count++) {
        if (!bind_operand(op, r, i, &memories[i])) return false;
        arguments[i] = r->argument[i];
    }
    int out = memories[OUT];
    description_view scratch = dnnl_primitive_desc_query_md(r->primitive, dnnl_query_scratchpad_md, 0);
    if (scratch && dnnl_memory_desc_get_size(scratch) > 0) {
        arguments[count] = DNNL_ARG_SCRATCHPAD;
        memories[count] = add_workspace_memory(op, scratch);
        if (memories[count++] < 0) return false;
    }
    if (!add_step(op, r->primitive, count, arguments, memories)) return false;
    return out == OUT || add_reorder(op, primitive_layout(r, OUT), out, view(&r->dense[OUT]), OUT);
}

static bool is_reference(const op_spec *r) {
    const char *name = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_query(r->primitive, dnnl_query_impl_info_str, 0, (void *)&name);
    return status != dnnl_success || !name || strstr(name, "ref");
}

static tu_status create_op(op_spec *r, cpu_dnnl **op) {
    tu_status status = TU_OK;
    *op = NULL;
    if (r->primitive && !is_reference(r)) {
        *op = tu__alloc(sizeof **op, "an operation of oneDNN");
        if (!*op) status = TU_NO_MEMORY;
        if (*op && !assemble(*op, r)) {
            cpu_dnnl_free(*op);
            *op = NULL;
        }
    }
    if (r->primitive) dnnl_primitive_desc_destroy(r->primitive);
    for (int i = 0; i < OPERANDS; i++) description_free(&r->dense[i]);
    return status;
}

/* ---- Shared by both operations ---- */

static dnnl_primitive_attr_t new_attributes(void) {
    dnnl_primitive_attr_t attributes;
    if (dnnl_primitive_attr_create(&attributes) != dnnl_success) return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    return attributes;
}

static bool type_of(tu_dtype dtype, dnnl_data_type_t *type) {
    *type = dtype == TU_F32 ? dnnl_f32 : dnnl_bf16;
    return dtype == TU_F32 || dtype == TU_BF16;
}

/* ---- Convolution ---- */

typedef struct conv_descriptions { /* as requested from oneDNN: filters in any layout */
    description x, filter, y;
    dnnl_dims_t strides, dilations, before, after;
} conv_descriptions;

static bool describe_images(description *d, const cpu_convolution *c, const int64_t size[2], int64_t channels,
                            dnnl_data_type_t type) {
    int64_t dims[4] = {c->images, channels * c->groups, size[0], size[1]};
    int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    return describe(d, 4, dims, type, strides);
}

/* OHWI, or with groups [g, o, h, w, i]; `any_layout`: oneDNN chooses the layout. */
static bool describe_filter(description *d, const cpu_convolution *c, dnnl_data_type_t type,
                            bool any_layout) {
    int64_t h = c->windows.size[0], w = c->windows.size[1], i = c->x_channels, o = c->y_channels;
    int64_t dims[5] = {c->groups, o, i, h, w}, strides[5] = {o * h * w * i, h * w * i, 1, w * i, i};
    int skip = c->groups == 1 ? 1 : 0; /* without groups the filter has no group axis */
    return describe(d, 5 - skip, dims + skip, type, any_layout ? NULL : strides + skip);
}

static bool describe_convolution(conv_descriptions *d, const cpu_convolution *c, dnnl_data_type_t type) {
    for (int i = 0; i < 2; i++) {
        d->strides[i] = c->windows.stride[i];
        d->dilations[i] = c->windows.dilation[i] - 1;
        d->before[i] = c->windows.pad[2 * i];
        d->after[i] = c->windows.pad[2 * i + 1];
    }
    return describe_images(&d->x, c, c->x_size, c->x_channels, type) &&
           describe_images(&d->y, c, c->y_size, c->y_channels, type) &&
           describe_filter(&d->filter, c, type, true);
}

static void free_convolution(conv_descriptions *d) {
    description_free(&d->x);
    description_free(&d->filter);
    description_free(&d->y);
}

#if DNNL_VERSION_MAJOR >= 3

static dnnl_primitive_desc_t create_convolution_desc(const conv_descriptions *d, cpu_conv_result result,
                                                     dnnl_primitive_attr_t attributes) {
    dnnl_primitive_desc_t forward = NULL, backward = NULL;
    dnnl_prop_kind_t kind = result == CPU_CONV_Y ? dnnl_forward_inference : dnnl_forward_training;
    if (dnnl_convolution_forward_primitive_desc_create(
            &forward, engine, kind, dnnl_convolution_direct, view(&d->x), view(&d->filter), NULL, view(&d->y),
            d->strides, d->dilations, d->before, d->after, attributes) != dnnl_success)
        return NULL;
    if (result == CPU_CONV_Y) return forward;
    dnnl_status_t status =
        result == CPU_CONV_DX
            ? dnnl_convolution_backward_data_primitive_desc_create(
                  &backward, engine, dnnl_convolution_direct, view(&d->x), view(&d->filter), view(&d->y),
                  d->strides, d->dilations, d->before, d->after, forward, attributes)
            : dnnl_convolution_backward_weights_primitive_desc_create(
                  &backward, engine, dnnl_convolution_direct, view(&d->x), view(&d->filter), NULL,
                  view(&d->y), d->strides, d->dilations, d->before, d->after, forward, attributes);
    dnnl_primitive_desc_destroy(forward);
    return status == dnnl_success ? backward : NULL;
}

#else

static dnnl_primitive_desc_t create_primitive_desc(const void *operation, dnnl_primitive_attr_t attributes,
                                                   const_dnnl_primitive_desc_t hint) {
    dnnl_primitive_desc_t d = NULL;
    return dnnl_primitive_desc_create(&d, operation, attributes, engine, hint) == dnnl_success ? d : NULL;
}

static dnnl_primitive_desc_t create_convolution_desc(const conv_descriptions *d, cpu_conv_result result,
                                                     dnnl_primitive_attr_t attributes) {
    dnnl_convolution_desc_t forward, backward;
    dnnl_prop_kind_t kind = result == CPU_CONV_Y ? dnnl_forward_inference : dnnl_forward_training;
    if (dnnl_dilated_convolution_forward_desc_init(&forward, kind, dnnl_convolution_direct, &d->x.md,
                                                   &d->filter.md, NULL, &d->y.md, d->strides, d->dilations,
                                                   d->before, d->after) != dnnl_success)
        return NULL;
    dnnl_primitive_desc_t hint = create_primitive_desc(&forward, attributes, NULL);
    if (result == CPU_CONV_Y || !hint) return hint;
    dnnl_status_t status = result == CPU_CONV_DX
                               ? dnnl_dilated_convolution_backward_data_desc_init(
                                     &backward, dnnl_convolution_direct, &d->x.md, &d->filter.md, &d->y.md,
                                     d->strides, d->dilations, d->before, d->after)
                               : dnnl_dilated_convolution_backward_weights_desc_init(
                                     &backward, dnnl_convolution_direct, &d->x.md, &d->filter.md, NULL,
                                     &d->y.md, d->strides, d->dilations, d->before, d->after);
    dnnl_primitive_desc_t found =
        status == dnnl_success ? create_primitive_desc(&backward, attributes, hint) : NULL;
    dnnl_primitive_desc_destroy(hint);
    return found;
}

#endif

static bool plan_convolution(op_spec *r, const cpu_convolution *c, cpu_conv_result result,
                             dnnl_data_type_t type) {
    static const int arguments[3][OPERANDS] = {
        [CPU_CONV_Y] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [CPU_CONV_DX] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
        [CPU_CONV_DW] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
    };
    static const int x_operand[3] = {FIRST, OUT, FIRST}, filter_operand[3] = {SECOND, SECOND, OUT},
                     y_operand[3] = {OUT, FIRST, SECOND};
    conv_descriptions d = {0};
    dnnl_primitive_attr_t attributes = new_attributes();
    memcpy(r->argument, arguments[result], sizeof r->argument);
    if (attributes && describe_convolution(&d, c, type))
        r->primitive = create_convolution_desc(&d, result, attributes);
    free_convolution(&d);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    return r->primitive && describe_images(&r->dense[x_operand[result]], c, c->x_size, c->x_channels, type) &&
           describe_images(&r->dense[y_operand[result]], c, c->y_size, c->y_channels, type) &&
           describe_filter(&r->dense[filter_operand[result]], c, type, false);
}

tu_status cpu_dnnl_convolution(const cpu_convolution *convolution, cpu_conv_result result, tu_dtype dtype,
                               int threads, cpu_dnnl **op) {
    op_spec r = {0};
    dnnl_data_type_t type;
    *op = NULL;
    if (!type_of(dtype, &type) || !cpu_dnnl_usable()) return TU_OK;
    tu__parallel_setting saved = tu__parallel_begin(threads);
    if (!plan_convolution(&r, convolution, result, type) && r.primitive) {
        dnnl_primitive_desc_destroy(r.primitive);
        r.primitive = NULL;
    }
    tu_status status = create_op(&r, op);
    tu__parallel_end(saved);
    return status;
}

/* ---- Matrix product ---- */

static bool describe_matrices(description *d, const cpu_dnnl_product *p, int64_t rows, int64_t columns,
                              const int64_t *strides, dnnl_data_type_t type) {
    bool is_repeated = strides[0] == 0;
    int64_t dims[3] = {is_repeated ? 1 : p->batch, rows, columns};
    int64_t used_strides[3] = {is_repeated ? rows * columns : strides[0], strides[1], strides[2]};
    int skip = p->batch == 1 ? 1 : 0;
    return describe(d, 3 - skip, dims + skip, type, used_strides + skip);
}

static dnnl_primitive_desc_t create_matmul_desc(const op_spec *r, dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR >= 3
    dnnl_primitive_desc_t d = NULL;
    return dnnl_matmul_primitive_desc_create(&d, engine, view(&r->dense[FIRST]), view(&r->dense[SECOND]),
                                             NULL, view(&r->dense[OUT]), attributes) == dnnl_success
               ? d
               : NULL;
#else
    dnnl_matmul_desc_t d;
    if (dnnl_matmul_desc_init(&d, view(&r->dense[FIRST]), view(&r->dense[SECOND]), NULL,
                              view(&r->dense[OUT])) != dnnl_success)
        return NULL;
    return create_primitive_desc(&d, attributes, NULL);
#endif
}

static void plan_product(op_spec *r, const cpu_dnnl_product *p, dnnl_data_type_t type) {
    static const int arguments[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    const int64_t c_strides[3] = {p->m * p->n, p->n, 1};
    memcpy(r->argument, arguments, sizeof r->argument);
    dnnl_primitive_attr_t attributes = new_attributes();
    if (attributes && describe_matrices(&r->dense[FIRST], p, p->m, p->k, p->a_strides, type) &&
        describe_matrices(&r->dense[SECOND], p, p->k, p->n, p->b_strides, type) &&
        describe_matrices(&r->dense[OUT], p, p->m, p->n, c_strides, type))
        r->primitive = create_matmul_desc(r, attributes);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
}

tu_status cpu_dnnl_matmul(const cpu_dnnl_product *product, int threads, cpu_dnnl **op) {
    op_spec r = {0};
    dnnl_data_type_t type;
    *op = NULL;
    if (!type_of(product->dtype, &type) || !cpu_dnnl_usable()) return TU_OK;
    tu__parallel_setting saved = tu__parallel_begin(threads);
    plan_product(&r, product, type);
    tu_status status = create_op(&r, op);
    tu__parallel_end(saved);
    return status;
}

#endif
