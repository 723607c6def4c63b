/* Chooses a cuDNN engine and creates its plan. See dnn.h.
 *
 * cuDNN's heuristics return engine configurations for a graph, ordered by expected speed: mode A is a quick model,
 * mode B a slower one that is used when candidates are timed, and FALLBACK lists whatever works for graphs without a
 * model. Many configurations are unsuitable: engines that add with atomics are not reproducible; some round inputs to
 * a shorter type or use Fourier or Winograd transforms, which have larger errors than a plain sum. Each engine lists
 * such properties as numerical notes, and the table below says which notes are rejected when. The first remaining
 * configuration whose plan can be created is used. Creating a plan may compile a kernel, so a second one is created
 * only if candidates are to be timed.
 *
 * A tuned choice is stored as the engine's number, its knobs and its time, so that the plan can be created again
 * without heuristics and timing.
 */
#include "device/cuda/ops/dnn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/cuda/runtime/tuning_cache.h"

enum {
    MAX_CONFIGURATIONS = 24, /* considered per heuristic mode */
    MAX_MODE_A = 10,         /* timed, from mode A */
    MAX_TIMED = 16,          /* timed, in total */
    MAX_KNOBS = CUDNN_KNOB_TYPE_COUNTS,
    CHOICE_TEXT = 640,
    STORED_TEXT = CHOICE_TEXT + 32
};
static const int64_t max_workspace = INT64_C(1) << 30;

/* ---- Descriptors ---- */

tu_status cuda_dnn_begin(cuda_dnn_plan *p, cuda_device *device) {
    *p = (cuda_dnn_plan){.device = device};
    TU_TRY(cuda_load_library(CUDA_dnn));
    p->handle = cuda_dnn(device);
    return p->handle ? TU_OK : TU_DEVICE;
}

static tu_status reserve_descriptor(cuda_dnn_plan *p) {
    if (p->owned_count < p->owned_capacity) return TU_OK;
    size_t capacity = p->owned_capacity ? 2 * p->owned_capacity : 32;
    void *owned = tu__realloc(p->owned, capacity * sizeof *p->owned, "descriptors of cuDNN");
    if (!owned) return TU_NO_MEMORY;
    p->owned = owned;
    p->owned_capacity = capacity;
    return TU_OK;
}

static tu_status create_descriptor(cuda_dnn_plan *p, cudnnBackendDescriptorType_t type,
                                   cudnnBackendDescriptor_t *created) {
    *created = NULL;
    TU_TRY(reserve_descriptor(p));
    DNN_TRY(cudnnBackendCreateDescriptor, type, created);
    p->owned[p->owned_count++] = *created;
    return TU_OK;
}

/* Destroys the descriptors created after there were `count`. */
static void destroy_down_to(cuda_dnn_plan *p, size_t count) {
    while (p->owned_count > count) cuda.cudnnBackendDestroyDescriptor(p->owned[--p->owned_count]);
}

void cuda_dnn_free(cuda_dnn_plan *p) {
    destroy_down_to(p, 0);
    tu__free(p->owned);
    *p = (cuda_dnn_plan){0};
}

/* True if cuDNN reports that it does not support something, which it does in two ways. Other codes are failures. */
static bool is_unsupported(cudnnStatus_t status) {
    return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
}

static tu_status set_attribute(cudnnBackendDescriptor_t descriptor, const cuda_dnn_attribute *a) {
    return CUDA_CALL_(cuda_check_dnn, CUDNN_STATUS_INTERNAL_ERROR, cudnnBackendSetAttribute, descriptor,
                      a->name, a->type, a->count, a->elements);
}

tu_status cuda_dnn_describe(cuda_dnn_plan *p, cudnnBackendDescriptorType_t type, size_t count,
                            const cuda_dnn_attribute *attributes, cudnnBackendDescriptor_t *created) {
    cudnnBackendDescriptor_t descriptor;
    *created = NULL;
    TU_TRY(create_descriptor(p, type, &descriptor));
    for (size_t i = 0; i < count; i++) TU_TRY(set_attribute(descriptor, &attributes[i]));
    cudnnStatus_t status = cuda_call_fails("cudnnBackendFinalize") ? CUDNN_STATUS_INTERNAL_ERROR
                                                                   : cuda.cudnnBackendFinalize(descriptor);
    if (is_unsupported(status)) return TU_OK;
    TU_TRY(cuda_check_dnn(status, "cudnnBackendFinalize"));
    *created = descriptor;
    return TU_OK;
}

/* Sets `count` to the number of elements, of which at most `capacity` are written. */
static tu_status get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type, int64_t capacity, int64_t *count,
                               void *elements) {
    *count = 0;
    DNN_TRY(cudnnBackendGetAttribute, descriptor, name, type, capacity, count, elements);
    if (*count > capacity) *count = capacity;
    return TU_OK;
}

/* ---- Engines ---- */

typedef enum condition { ALWAYS, UNLESS_NONDETERMINISTIC, IN_FULL_F32 } condition;

static const struct rejected_note {
    cudnnBackendNumericalNote_t note;
    condition condition;
} rejected_notes[] = {
    {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, UNLESS_NONDETERMINISTIC},
    {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, IN_FULL_F32}, /* for f32 they use tf32 */
    {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, IN_FULL_F32},
    {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, ALWAYS},
    {CUDNN_NUMERICAL_NOTE_FFT, ALWAYS},
    {CUDNN_NUMERICAL_NOTE_WINOGRAD, ALWAYS},
    {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, ALWAYS},
    {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, ALWAYS},
    {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, ALWAYS},
};

static bool rejects_note(const cuda_dnn_plan *p, const cuda_dnn_needs *needs,
                         cudnnBackendNumericalNote_t note) {
    const bool applies[] = {[ALWAYS] = true,
                            [UNLESS_NONDETERMINISTIC] = !p->device->nondeterministic,
                            [IN_FULL_F32] = needs->full_f32};
    for (size_t i = 0; i < sizeof rejected_notes / sizeof *rejected_notes; i++)
        if (rejected_notes[i].note == note && applies[rejected_notes[i].condition]) return true;
    return false;
}

/* Engines with wrong results that no note announces. */
static const struct known_bug {
    const char *problem; /* prefix of the key */
    int64_t engine;
    const char *evidence;
} known_bugs[] = {
#define CONVOLUTION(result, condition, evidence)
#define ENGINE(problem, number, evidence) {problem, number, evidence},
#include "device/cuda/ops/cudnn_known_bugs.def"
};

static bool has_known_bug(const cuda_dnn_needs *needs, int64_t engine) {
    for (size_t i = 0; i < sizeof known_bugs / sizeof *known_bugs; i++)
        if (known_bugs[i].engine == engine &&
            strncmp(needs->key, known_bugs[i].problem, strlen(known_bugs[i].problem)) == 0)
            return true;
    return false;
}

/* Returns the engine of a configuration. */
static tu_status engine_of(cuda_dnn_plan *p, cudnnBackendDescriptor_t configuration,
                           cudnnBackendDescriptor_t *engine, int64_t *index) {
    int64_t count;
    TU_TRY(create_descriptor(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine));
    TU_TRY(get_attribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                         engine));
    return get_attribute(*engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, index);
}

typedef struct candidate {
    cudnnBackendDescriptor_t configuration, plan;
    int64_t engine, workspace_bytes;
    bool rejected, tensor_cores;
    double seconds;         /* if timed */
    char text[CHOICE_TEXT]; /* its name in the tuning cache */
} candidate;

static tu_status inspect(cuda_dnn_plan *p, const cuda_dnn_needs *needs, candidate *c) {
    cudnnBackendDescriptor_t engine;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count;
    TU_TRY(engine_of(p, c->configuration, &engine, &c->engine));
    TU_TRY(get_attribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
    c->rejected = has_known_bug(needs, c->engine);
    for (int64_t i = 0; i < count; i++) {
        if (rejects_note(p, needs, notes[i])) c->rejected = true;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) c->tensor_cores = true;
    }
    return TU_OK;
}

/* ---- Names of configurations: "engine 41 3=2 12=0" lists the knobs by their numbers ---- */

static tu_status write_knobs(cuda_dnn_plan *p, const candidate *c, tu__text *text) {
    cudnnBackendDescriptor_t knobs[MAX_KNOBS];
    int64_t count, one;
    for (int i = 0; i < MAX_KNOBS; i++)
        TU_TRY(create_descriptor(p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]));
    TU_TRY(get_attribute(c->configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         MAX_KNOBS, &count, knobs));
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;
        TU_TRY(
            get_attribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &type));
        TU_TRY(get_attribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &value));
        tu__text_printf(text, " %d=%" PRId64, (int)type, value);
    }
    return TU_OK;
}

static tu_status write_name(cuda_dnn_plan *p, candidate *c) {
    size_t before = p->owned_count;
    tu__text text = {0};
    tu__text_printf(&text, "engine %" PRId64, c->engine);
    tu_status status = write_knobs(p, c, &text);
    if (status == TU_OK && text.failed) status = TU_NO_MEMORY;
    if (status == TU_OK) snprintf(c->text, sizeof c->text, "%s", tu__text_string(&text));
    tu__text_free(&text);
    destroy_down_to(p, before);
    return status;
}

/* True if an earlier heuristic returned the same configuration. */
static bool is_duplicate(const candidate *c, int count, const candidate *candidates) {
    for (int i = 0; i < count; i++)
        if (strcmp(c->text, candidates[i].text) == 0) return true;
    return false;
}

/* ---- Plans ---- */

/* Leaves c->plan NULL if the engine does not support the graph or needs too much workspace. */
static tu_status create_plan(cuda_dnn_plan *p, candidate *c) {
    size_t before = p->owned_count;
    int64_t count;
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(EXECUTION_PLAN_HANDLE, HANDLE, 1, &p->handle),
        CUDA_DNN_ATTRIBUTE(EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &c->configuration),
    };
    TU_TRY(cuda_dnn_describe(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 2, attributes, &c->plan));
    if (c->plan)
        TU_TRY(get_attribute(c->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                             &c->workspace_bytes));
    if (c->plan && c->workspace_bytes <= max_workspace) return TU_OK;
    c->plan = NULL;
    destroy_down_to(p, before);
    return TU_OK;
}

/* Returns the configurations of a heuristic, best first. `configurations` has MAX_CONFIGURATIONS elements. */
static tu_status query_heuristics(cuda_dnn_plan *p, cudnnBackendHeurMode_t mode, int64_t *count,
                                  cudnnBackendDescriptor_t *configurations) {
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &p->graph),
        CUDA_DNN_ATTRIBUTE(ENGINEHEUR_MODE, HEUR_MODE, 1, &mode),
    };
    cudnnBackendDescriptor_t heuristic;
    *count = 0;
    TU_TRY(cuda_dnn_describe(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 2, attributes, &heuristic));
    if (!heuristic) return TU_OK;
    for (int i = 0; i < MAX_CONFIGURATIONS; i++)
        TU_TRY(create_descriptor(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configurations[i]));
    return get_attribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         MAX_CONFIGURATIONS, count, configurations);
}

/* Appends plans until there are `max_plans`. If tensor cores are preferred, engines that use them come first. */
static tu_status create_plans(cuda_dnn_plan *p, const cuda_dnn_needs *needs, int64_t count,
                              candidate *suggested, int max_plans, candidate *candidates, int *found) {
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < count && *found < max_plans; i++) {
            int needed_pass = needs->tensor_cores && !suggested[i].tensor_cores;
            if (suggested[i].rejected || needed_pass != pass) continue;
            if (max_plans > 1) TU_TRY(write_name(p, &suggested[i]));
            if (max_plans > 1 && is_duplicate(&suggested[i], *found, candidates)) continue;
            TU_TRY(create_plan(p, &suggested[i]));
            if (suggested[i].plan) candidates[(*found)++] = suggested[i];
        }
    return TU_OK;
}

static tu_status collect_candidates(cuda_dnn_plan *p, const cuda_dnn_needs *needs,
                                    cudnnBackendHeurMode_t mode, int max_plans, candidate *candidates,
                                    int *found) {
    cudnnBackendDescriptor_t configurations[MAX_CONFIGURATIONS];
    candidate suggested[MAX_CONFIGURATIONS];
    int64_t count;
    TU_TRY(query_heuristics(p, mode, &count, configurations));
    for (int64_t i = 0; i < count; i++) {
        suggested[i] = (candidate){.configuration = configurations[i]};
        TU_TRY(inspect(p, needs, &suggested[i]));
    }
    return create_plans(p, needs, count, suggested, max_plans, candidates, found);
}

static void use_candidate(cuda_dnn_plan *p, const candidate *c) {
    p->plan = c->plan;
    p->engine = c->engine;
    p->tensor_cores = c->tensor_cores;
    p->seconds = c->seconds;
    p->workspace_bytes = c->workspace_bytes;
}

/* ---- Execution ---- */

static tu_status create_pack(cuda_dnn_plan *p, void *const *addresses, void *workspace,
                             cudnnBackendDescriptor_t *pack) {
    int64_t ids[CUDA_DNN_OPERANDS];
    for (int i = 0; i < p->operand_count; i++) ids[i] = i + 1;
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(VARIANT_PACK_UNIQUE_IDS, INT64, p->operand_count, ids),
        CUDA_DNN_ATTRIBUTE(VARIANT_PACK_DATA_POINTERS, VOID_PTR, p->operand_count, addresses),
        CUDA_DNN_ATTRIBUTE(VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace),
    };
    TU_TRY(cuda_dnn_describe(p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 3, attributes, pack));
    return *pack ? TU_OK : tu_fail(TU_DEVICE, "cuDNN rejected the addresses of its plan");
}

/* Creates the variant pack. Addresses change rarely: when another executable of the program is captured. */
static tu_status update_pack(cuda_dnn_plan *p, void *const *addresses, void *workspace) {
    if (p->pack) { /* it is the last descriptor: no other is created after a plan is chosen */
        destroy_down_to(p, p->owned_count - 1);
        p->pack = NULL;
    }
    memcpy(p->packed, addresses, (size_t)p->operand_count * sizeof *addresses);
    p->packed[CUDA_DNN_OPERANDS] = workspace;
    return create_pack(p, addresses, workspace, &p->pack);
}

static tu_status execute_locked(cuda_dnn_plan *p, void *const *addresses, void *workspace) {
    bool same = p->pack && p->packed[CUDA_DNN_OPERANDS] == workspace &&
                memcmp(p->packed, addresses, (size_t)p->operand_count * sizeof *addresses) == 0;
    if (!same) TU_TRY(update_pack(p, addresses, workspace));
    DNN_TRY(cudnnBackendExecute, p->handle, p->plan, p->pack);
    return TU_OK;
}

tu_status cuda_dnn_execute(cuda_dnn_plan *p, CUstream stream, void *const *addresses, void *workspace) {
    TU_TRY(cuda_dnn_lock(p->device, stream));
    tu_status status = execute_locked(p, addresses, workspace);
    cuda_library_unlock(p->device);
    return status;
}

/* ---- Trial runs on scratch memory ---- */

/* One block per operand and one for the workspace. */
enum { SCRATCH_BLOCKS = CUDA_DNN_OPERANDS + 1 };

typedef struct trial {
    cuda_dnn_plan *p;
    cudnnBackendDescriptor_t plan, pack;
    void *blocks[SCRATCH_BLOCKS];
} trial;

static void free_trial(trial *t) {
    for (int i = 0; i < SCRATCH_BLOCKS; i++)
        cuda_memory_free(t->p->device->memory, cuda_address(t->blocks[i]));
}

static tu_status allocate_trial(trial *t, int64_t workspace_bytes, unsigned char fill_byte) {
    for (int i = 0; i < SCRATCH_BLOCKS; i++) {
        size_t bytes = i < CUDA_DNN_OPERANDS ? t->p->operand_bytes[i] : (size_t)workspace_bytes;
        CUdeviceptr block = 0;
        if (!bytes) continue;
        TU_TRY(cuda_memory_allocate(t->p->device->memory, bytes, &block));
        t->blocks[i] = cuda_pointer(block);
        CUDA_TRY(cuMemsetD8Async, block, fill_byte, bytes, t->p->device->own_queue.stream);
    }
    return TU_OK;
}

static tu_status execute_trial(const trial *t) {
    DNN_TRY(cudnnBackendExecute, t->p->handle, t->plan, t->pack);
    return TU_OK;
}

static tu_status enqueue_trial(void *context) {
    const trial *t = context;
    TU_TRY(cuda_dnn_lock(t->p->device, t->p->device->own_queue.stream));
    tu_status status = execute_trial(t);
    cuda_library_unlock(t->p->device);
    return status;
}

static tu_status time_candidates(trial *t, int count, candidate *candidates, int *best) {
    for (int i = 0; i < count; i++) {
        candidate *c = &candidates[i];
        t->plan = c->plan;
        TU_TRY(create_pack(t->p, t->blocks, t->blocks[CUDA_DNN_OPERANDS], &t->pack));
        TU_TRY(cuda_tuning_measure(t->p->device, enqueue_trial, t, &c->seconds));
        if (c->seconds < candidates[*best].seconds) *best = i;
    }
    return TU_OK;
}

static tu_status find_fastest(cuda_dnn_plan *p, int count, candidate *candidates, int *best) {
    trial t = {.p = p};
    int64_t workspace = 0;
    *best = 0;
    for (int i = 0; i < count; i++)
        if (candidates[i].workspace_bytes > workspace) workspace = candidates[i].workspace_bytes;
    tu_status status = allocate_trial(&t, workspace, 0);
    if (status == TU_OK) status = time_candidates(&t, count, candidates, best);
    free_trial(&t);
    return status;
}

/* Runs the plan on operands full of NaN and returns the bytes of its first result. */
static tu_status result_of_nan(trial *t, size_t bytes, uint64_t *result) {
    cuda_dnn_plan *p = t->p;
    CUdeviceptr last = (CUdeviceptr)(uintptr_t)t->blocks[p->operand_count - 1];
    TU_TRY(create_pack(p, t->blocks, t->blocks[CUDA_DNN_OPERANDS], &t->pack));
    CUDA_TRY(cuMemsetD8Async, last, 0, p->operand_bytes[p->operand_count - 1], p->device->own_queue.stream);
    TU_TRY(enqueue_trial(t));
    CUDA_TRY(cuMemcpyDtoHAsync, result, last, bytes, p->device->own_queue.stream);
    CUDA_TRY(cuStreamSynchronize, p->device->own_queue.stream);
    return TU_OK;
}

static bool is_nan(uint64_t bits, tu_dtype dtype) {
    static const uint64_t infinities[] = {[TU_F32] = UINT64_C(0x7f800000),
                                          [TU_F64] = UINT64_C(0x7ff0000000000000),
                                          [TU_BF16] = UINT64_C(0x7f80),
                                          [TU_F16] = UINT64_C(0x7c00)};
    uint64_t sign = UINT64_C(1) << (8 * tu_dtype_size(dtype) - 1);
    return (bits & ~sign) > infinities[dtype];
}

tu_status cuda_dnn_keeps_nan(cuda_dnn_plan *p, tu_dtype dtype, bool *keeps) {
    trial t = {.p = p, .plan = p->plan};
    uint64_t result = 0;
    tu_status status = allocate_trial(&t, p->workspace_bytes, 0xff); /* NaN in every float type */
    if (status == TU_OK) status = result_of_nan(&t, tu_dtype_size(dtype), &result);
    free_trial(&t);
    *keeps = is_nan(result, dtype);
    return status;
}

/* ---- Stored choices ---- */

static tu_status parse_knobs(cuda_dnn_plan *p, const char *text, int64_t *count,
                             cudnnBackendDescriptor_t *knobs) {
    int type, length;
    int64_t value;
    for (*count = 0; *count < MAX_KNOBS && sscanf(text, " %d=%" SCNd64 "%n", &type, &value, &length) == 2;
         text += length) {
        cudnnBackendKnobType_t knob = (cudnnBackendKnobType_t)type;
        const cuda_dnn_attribute attributes[] = {
            CUDA_DNN_ATTRIBUTE(KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, &knob),
            CUDA_DNN_ATTRIBUTE(KNOB_CHOICE_KNOB_VALUE, INT64, 1, &value),
        };
        TU_TRY(cuda_dnn_describe(p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 2, attributes, &knobs[*count]));
        if (knobs[*count]) ++*count;
    }
    return TU_OK;
}

/* Leaves *created NULL if this version of cuDNN has no such engine. */
static tu_status parse_choice(cuda_dnn_plan *p, const char *text, cudnnBackendDescriptor_t *created) {
    cudnnBackendDescriptor_t engine, knobs[MAX_KNOBS];
    int64_t engine_index, count;
    int length;
    *created = NULL;
    if (sscanf(text, "engine %" SCNd64 "%n", &engine_index, &length) != 1) return TU_OK;
    const cuda_dnn_attribute of_engine[] = {
        CUDA_DNN_ATTRIBUTE(ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &p->graph),
        CUDA_DNN_ATTRIBUTE(ENGINE_GLOBAL_INDEX, INT64, 1, &engine_index),
    };
    TU_TRY(cuda_dnn_describe(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2, of_engine, &engine));
    if (!engine) return TU_OK;
    TU_TRY(parse_knobs(p, text + length, &count, knobs));
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, &engine),
        CUDA_DNN_ATTRIBUTE(ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, count, knobs),
    };
    return cuda_dnn_describe(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count ? 2 : 1, attributes, created);
}

/* Parses the time at the end of a stored choice, "engine 41 3=2 in 1.2e-05". Returns -1 if there is none. */
static double parse_seconds(const char *text) {
    double seconds;
    const char *time = strstr(text, " in ");
    return time && sscanf(time, " in %lf", &seconds) == 1 ? seconds : -1;
}

static tu_status use_stored_choice(cuda_dnn_plan *p, const cuda_dnn_needs *needs, const char *key) {
    char text[STORED_TEXT];
    candidate c = {0};
    if (!cuda_tuning_find(key, text, sizeof text)) return TU_OK;
    c.seconds = parse_seconds(text);
    if (c.seconds >= 0) TU_TRY(parse_choice(p, text, &c.configuration));
    if (!c.configuration) return TU_OK;
    TU_TRY(inspect(p, needs, &c));
    if (!c.rejected) TU_TRY(create_plan(p, &c));
    if (c.plan) use_candidate(p, &c);
    return TU_OK;
}

static void store_choice(const candidate *c, const char *key) {
    char text[STORED_TEXT];
    snprintf(text, sizeof text, "%s in %.6g", c->text, c->seconds);
    cuda_tuning_store(key, text);
}

/* ---- Choosing ---- */

static tu_status collect_all(cuda_dnn_plan *p, const cuda_dnn_needs *needs, int max_plans,
                             candidate *candidates, int *found) {
    *found = 0;
    TU_TRY(
        collect_candidates(p, needs, CUDNN_HEUR_MODE_A, max_plans > 1 ? MAX_MODE_A : 1, candidates, found));
    if (max_plans > 1) TU_TRY(collect_candidates(p, needs, CUDNN_HEUR_MODE_B, max_plans, candidates, found));
    if (*found == 0)
        TU_TRY(collect_candidates(p, needs, CUDNN_HEUR_MODE_FALLBACK, max_plans, candidates, found));
    return TU_OK;
}

static tu_status choose_fastest(cuda_dnn_plan *p, const cuda_dnn_needs *needs, const char *key) {
    candidate candidates[MAX_TIMED];
    int found, best;
    TU_TRY(use_stored_choice(p, needs, key));
    if (p->plan) return TU_OK;
    TU_TRY(collect_all(p, needs, MAX_TIMED, candidates, &found));
    if (!found) return TU_OK;
    TU_TRY(find_fastest(p, found, candidates, &best));
    use_candidate(p, &candidates[best]);
    store_choice(&candidates[best], key);
    return TU_OK;
}

static tu_status choose_first(cuda_dnn_plan *p, const cuda_dnn_needs *needs) {
    candidate first;
    int found;
    TU_TRY(collect_all(p, needs, 1, &first, &found));
    if (found) use_candidate(p, &first);
    return TU_OK;
}

tu_status cuda_dnn_choose(cuda_dnn_plan *p, const cuda_dnn_needs *needs) {
    if (!p->device->tune) return choose_first(p, needs);
    tu__text key = {0};
    tu__text_printf(&key, "dnn %s%s", needs->key, p->device->nondeterministic ? " any order" : "");
    tu_status status = cuda_tuning_key(p->device, CUDA_dnn, &key);
    if (status == TU_OK && key.failed) status = TU_NO_MEMORY;
    if (status == TU_OK) status = choose_fastest(p, needs, tu__text_string(&key));
    tu__text_free(&key);
    return status;
}
