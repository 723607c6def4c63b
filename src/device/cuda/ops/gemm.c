/* Matrix products by cuBLASLt. See gemm.h.
 *
 * cuBLASLt is column-major: it sees a row-major [rows, columns] matrix as its transpose. So we compute out^T =
 * op(b)^T op(a)^T: our b is its A, our a its B, and nothing is transposed. A bias over our last axis is then a bias
 * over its rows, which its epilogues support.
 *
 * Reproducibility. For one GPU model and library version an algorithm sums in a fixed order. Splitting k is allowed
 * if the partial sums are added in a second pass over a workspace, in the compute type; never in place, never with
 * atomics.
 *
 * Logical devices. Other logical devices of the GPU have work too, so tiles are chosen for a fraction of the
 * multiprocessors, and k is not split: that only helps to fill an idle GPU, and costs a second kernel and megabytes
 * of cache.
 *
 * Algorithms. The library's first suggestion is nearly always within a few percent of the best. With device->tune its
 * first CANDIDATES are timed on scratch memory and the fastest is stored (tuning_cache.h) by its configuration. Its
 * raw bytes cannot be compared, since the library leaves some of them uninitialised.
 */
#include "device/cuda/ops/gemm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "device/cuda/runtime/tuning_cache.h"

enum {
    CANDIDATES = 8,
    BUFFER_ALIGNMENT = 64,     /* of all buffers of the engine */
    WORKSPACE_ALIGNMENT = 256, /* required by the library */
};
static const uint64_t max_workspace = (uint64_t)32 << 20;

struct cuda_gemm_plan {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, out; /* the library's A and B */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool wide, subtract, with_bias, with_residual;
};

typedef struct product_type {
    bool supported;
    cudaDataType_t data, scale;
    cublasComputeType_t compute;
} product_type;

static const product_type product_types[TU_DTYPE_COUNT] = {
    [TU_F32] = {true, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    [TU_F64] = {true, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    [TU_BF16] = {true, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    [TU_F16] = {true, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
};

/* ---- Describing ---- */

static tu_status set_address(const cuda_gemm_plan *p, cublasLtMatmulDescAttributes_t attribute,
                             const void *address) {
    BLAS_TRY(cublasLtMatmulDescSetAttribute, p->description, attribute, &address, sizeof address);
    return TU_OK;
}

/* Addresses are set at every run. Here they only define the minimum alignment of buffers for the library. */
static tu_status describe_epilogue(const cuda_gemm *g, cuda_gemm_plan *p) {
    static _Alignas(2 * BUFFER_ALIGNMENT) const char anywhere[2 * BUFFER_ALIGNMENT];
    const void *aligned = anywhere + BUFFER_ALIGNMENT;
    uint32_t epilogue = (uint32_t)g->epilogue;
    BLAS_TRY(cublasLtMatmulDescSetAttribute, p->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
             sizeof epilogue);
    p->with_bias = g->epilogue & CUBLASLT_EPILOGUE_BIAS;
    if (p->with_bias && g->bias_batch_stride)
        BLAS_TRY(cublasLtMatmulDescSetAttribute, p->description, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
                 &g->bias_batch_stride, sizeof g->bias_batch_stride);
    return p->with_bias ? set_address(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned) : TU_OK;
}

static tu_status describe_product(const cuda_device *device, const cuda_gemm *g, cuda_gemm_plan *p) {
    int32_t multiprocessors = device->multiprocessors / device->assumed_logical_count;
    product_type type = product_types[g->dtype];
    bool tf32 = g->tf32 && g->dtype == TU_F32;
    int32_t first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t second = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    BLAS_TRY(cublasLtMatmulDescCreate, &p->description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : type.compute,
             type.scale);
    BLAS_TRY(cublasLtMatmulDescSetAttribute, p->description, CUBLASLT_MATMUL_DESC_TRANSA, &first,
             sizeof first);
    BLAS_TRY(cublasLtMatmulDescSetAttribute, p->description, CUBLASLT_MATMUL_DESC_TRANSB, &second,
             sizeof second);
    if (device->assumed_logical_count > 1)
        BLAS_TRY(cublasLtMatmulDescSetAttribute, p->description, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                 &multiprocessors, sizeof multiprocessors);
    return describe_epilogue(g, p);
}

/* Describes a batch of row-major [rows, columns] matrices. */
static tu_status describe_matrix(const cuda_gemm *g, int64_t rows, int64_t columns, int64_t row, int64_t step,
                                 cublasLtMatrixLayout_t *layout) {
    int32_t batch = (int32_t)g->batch;
    BLAS_TRY(cublasLtMatrixLayoutCreate, layout, product_types[g->dtype].data, (uint64_t)columns,
             (uint64_t)rows, row);
    BLAS_TRY(cublasLtMatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
             sizeof batch);
    BLAS_TRY(cublasLtMatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
             sizeof step);
    return TU_OK;
}

static int64_t a_rows(const cuda_gemm *g) {
    return g->transpose_a ? g->k : g->m;
}

static int64_t b_rows(const cuda_gemm *g) {
    return g->transpose_b ? g->n : g->k;
}

static tu_status describe_gemm(const cuda_device *device, const cuda_gemm *g, cuda_gemm_plan *p) {
    TU_TRY(describe_product(device, g, p));
    TU_TRY(describe_matrix(g, b_rows(g), g->transpose_b ? g->k : g->n, g->b_row_stride, g->b_batch_stride,
                           &p->a));
    TU_TRY(describe_matrix(g, a_rows(g), g->transpose_a ? g->m : g->k, g->a_row_stride, g->a_batch_stride,
                           &p->b));
    return describe_matrix(g, g->m, g->n, g->out_row_stride, g->out_batch_stride, &p->out);
}

/* ---- Heuristics ---- */

static uint32_t alignment_of(const cuda_gemm *g) {
    size_t alignment = BUFFER_ALIGNMENT;
    while (g->offset_bytes % alignment) alignment /= 2;
    return (uint32_t)alignment;
}

static tu_status set_preference(const cuda_device *device, const cuda_gemm *g,
                                cublasLtMatmulPreference_t preference) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t alignment = alignment_of(g);
    uint32_t schemes = device->assumed_logical_count > 1 ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                         : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
             &max_workspace, sizeof max_workspace);
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             &schemes, sizeof schemes);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        BLAS_TRY(cublasLtMatmulPreferenceSetAttribute, preference, alignments[i], &alignment,
                 sizeof alignment);
    return TU_OK;
}

typedef struct suggestions {
    cublasLtMatmulHeuristicResult_t list[CANDIDATES];
    int count;
} suggestions;

/* If the library does not support the matrix product, which it reports in two ways, there are no suggestions. */
static tu_status query_heuristic(const cuda_device *device, const cuda_gemm_plan *p,
                                 cublasLtMatmulPreference_t preference, int max_count, suggestions *found) {
    static const char name[] = "cublasLtMatmulAlgoGetHeuristic";
    cublasStatus_t result =
        cuda_call_fails(name)
            ? CUBLAS_STATUS_INTERNAL_ERROR
            : cuda.cublasLtMatmulAlgoGetHeuristic(device->blas, p->description, p->a, p->b, p->out, p->out,
                                                  preference, max_count, found->list, &found->count);
    if (result != CUBLAS_STATUS_NOT_SUPPORTED && result != CUBLAS_STATUS_INVALID_VALUE)
        return cuda_check_blas(result, name);
    found->count = 0;
    return TU_OK;
}

static tu_status get_suggestions(const cuda_device *device, const cuda_gemm *g, const cuda_gemm_plan *p,
                                 int max_count, suggestions *found) {
    cublasLtMatmulPreference_t preference = NULL;
    *found = (suggestions){.count = 0};
    BLAS_TRY(cublasLtMatmulPreferenceCreate, &preference);
    tu_status status = set_preference(device, g, preference);
    if (status == TU_OK) status = query_heuristic(device, p, preference, max_count, found);
    cuda.cublasLtMatmulPreferenceDestroy(preference);
    int usable = 0;
    for (int i = 0; i < found->count; i++)
        if (found->list[i].state == CUBLAS_STATUS_SUCCESS) found->list[usable++] = found->list[i];
    found->count = usable;
    return status;
}

/* ---- Running ---- */

static const void *scale_factor(bool wide, int value) {
    static const float narrow_numbers[] = {-1, 0, 1};
    static const double wide_numbers[] = {-1, 0, 1};
    return wide ? (const void *)&wide_numbers[value + 1] : (const void *)&narrow_numbers[value + 1];
}

static void *aligned_workspace(void *workspace) {
    return (char *)workspace + (-(uintptr_t)workspace & (WORKSPACE_ALIGNMENT - 1));
}

static tu_status enqueue(cuda_device *device, CUstream stream, const cuda_gemm_plan *p,
                         const cuda_gemm_operands *o) {
    if (p->with_bias) TU_TRY(set_address(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o->bias));
    void *workspace = p->workspace_bytes ? aligned_workspace(o->workspace) : NULL;
    const void *added = p->with_residual ? o->residual : o->out;
    BLAS_TRY(cublasLtMatmul, device->blas, p->description, scale_factor(p->wide, p->subtract ? -1 : 1), o->b,
             p->a, o->a, p->b, scale_factor(p->wide, p->subtract || p->with_residual ? 1 : 0), added, p->out,
             o->out, p->out, &p->algorithm, workspace, p->workspace_bytes, stream);
    return TU_OK;
}

/* The address of the bias is part of the description, which queues share. */
tu_status cuda_gemm_run(const tu__kernel *k, const cuda_gemm_plan *plan, const cuda_gemm_operands *o) {
    cuda_device *device = cuda_of(k);
    if (!plan->with_bias) return enqueue(device, cuda_stream(k), plan, o);
    pthread_mutex_lock(&device->library_lock);
    tu_status status = enqueue(device, cuda_stream(k), plan, o);
    pthread_mutex_unlock(&device->library_lock);
    return status;
}

size_t cuda_gemm_workspace(const cuda_gemm_plan *plan) {
    return plan->workspace_bytes ? plan->workspace_bytes + WORKSPACE_ALIGNMENT - BUFFER_ALIGNMENT : 0;
}

/* ---- Trial runs on scratch memory ---- */

/* Operands in scratch memory. */
typedef struct trial {
    cuda_device *device;
    cuda_gemm_plan *plan;
    CUdeviceptr memory;
    cuda_gemm_operands operands;
} trial;

static tu_status run_trial(void *context) {
    trial *t = context;
    return enqueue(t->device, t->device->own_queue.stream, t->plan, &t->operands);
}

static size_t round_up(size_t bytes) {
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

static size_t operand_bytes(const cuda_gemm *g, int64_t rows, int64_t row, int64_t step) {
    return round_up((size_t)((g->batch - 1) * step + rows * row) * tu_dtype_size(g->dtype));
}

static tu_status allocate_trial(const cuda_gemm *g, unsigned char fill_byte, trial *t) {
    size_t a = operand_bytes(g, a_rows(g), g->a_row_stride, g->a_batch_stride),
           b = operand_bytes(g, b_rows(g), g->b_row_stride, g->b_batch_stride);
    size_t out = operand_bytes(g, g->m, g->out_row_stride, g->out_batch_stride),
           bias = operand_bytes(g, 1, g->n, g->bias_batch_stride);
    size_t residual = g->residual ? out : 0, total = a + b + out + residual + bias + max_workspace;
    TU_TRY(cuda_memory_allocate(t->device->memory, total, &t->memory));
    CUDA_TRY(cuMemsetD8Async, t->memory, fill_byte, total, t->device->own_queue.stream);
    char *start;
    memcpy(&start, &t->memory, sizeof start);
    t->operands = (cuda_gemm_operands){.a = start,
                                       .b = start + a,
                                       .out = start + a + b,
                                       .residual = start + a + b + out,
                                       .bias = start + a + b + out + residual,
                                       .workspace = start + a + b + out + residual + bias};
    return TU_OK;
}

static void free_trial(trial *t) {
    cuda.cuStreamSynchronize(t->device->own_queue.stream);
    cuda_memory_free(t->device->memory, t->memory);
}

/* ---- Tuning ---- */

static void use_suggestion(cuda_gemm_plan *p, const cublasLtMatmulHeuristicResult_t *suggestion) {
    p->algorithm = suggestion->algo;
    p->workspace_bytes = suggestion->workspaceSize;
}

static tu_status time_suggestions(trial *t, const suggestions *found, int *best) {
    double best_seconds = 0;
    *best = 0;
    for (int i = 0; i < found->count; i++) {
        double seconds = 0;
        use_suggestion(t->plan, &found->list[i]);
        TU_TRY(cuda_tuning_measure(t->device, run_trial, t, &seconds));
        if (i > 0 && seconds >= best_seconds) continue;
        best_seconds = seconds;
        *best = i;
    }
    return TU_OK;
}

/* Times the suggestions with numbers near 0.01 (near 1 in f16). Zeros would draw less power, so the GPU would run faster
 * than with real data. */
static tu_status time_on_scratch(cuda_device *device, const cuda_gemm *g, cuda_gemm_plan *p,
                                 const suggestions *found, int *best) {
    enum { PATTERN = 0x3c };
    trial t = {.device = device, .plan = p};
    tu_status status = allocate_trial(g, PATTERN, &t);
    if (status == TU_OK) status = time_suggestions(&t, found, best);
    free_trial(&t);
    return status;
}

/* The attributes that identify an algorithm, and their sizes. */
static const struct algorithm_attribute {
    cublasLtMatmulAlgoConfigAttributes_t name;
    size_t bytes;
} algorithm_attributes[] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};
enum {
    ALGORITHM_ATTRIBUTES = sizeof algorithm_attributes / sizeof *algorithm_attributes,
    ALGORITHM_TEXT = 11 * ALGORITHM_ATTRIBUTES + 1
};

/* Writes the attributes in the table's order: "21 18 12 9 2 0 0 0 0". */
static tu_status algorithm_text(const cublasLtMatmulAlgo_t *algorithm, char text[ALGORITHM_TEXT]) {
    size_t length = 0;
    for (size_t i = 0; i < ALGORITHM_ATTRIBUTES; i++) {
        uint32_t value = 0; /* CUDA hosts are little-endian */
        size_t written;
        BLAS_TRY(cublasLtMatmulAlgoConfigGetAttribute, algorithm, algorithm_attributes[i].name, &value,
                 algorithm_attributes[i].bytes, &written);
        length += (size_t)snprintf(text + length, ALGORITHM_TEXT - length, "%s%u", i ? " " : "", value);
    }
    return TU_OK;
}

static tu_status problem_key(const cuda_device *device, const cuda_gemm *g, tu__text *key) {
    tu__text_printf(key, "gemm %s%s [%lld,%lld,%lld]%s%s rows %lld,%lld,%lld batch %lld steps %lld,%lld,%lld",
                    tu_dtype_name(g->dtype), g->tf32 && g->dtype == TU_F32 ? " as tf32" : "", (long long)g->m,
                    (long long)g->n, (long long)g->k, g->transpose_a ? " a^T" : "",
                    g->transpose_b ? " b^T" : "", (long long)g->a_row_stride, (long long)g->b_row_stride,
                    (long long)g->out_row_stride, (long long)g->batch, (long long)g->a_batch_stride,
                    (long long)g->b_batch_stride, (long long)g->out_batch_stride);
    tu__text_printf(key, " aligned %u epilogue %d%s", (unsigned)alignment_of(g), (int)g->epilogue,
                    g->subtract   ? " subtract"
                    : g->residual ? " residual"
                                  : "");
    if (g->bias_batch_stride) tu__text_printf(key, " biases %lld", (long long)g->bias_batch_stride);
    if (device->assumed_logical_count > 1) tu__text_printf(key, " share %d", device->assumed_logical_count);
    return cuda_tuning_key(device, CUDA_blas, key);
}

/* Finds the suggestion that an earlier run stored as best; -1 if there is none or it is not in this list. */
static tu_status find_stored(const char *key, const suggestions *found, int *best) {
    char stored[ALGORITHM_TEXT], text[ALGORITHM_TEXT];
    *best = -1;
    if (!cuda_tuning_find(key, stored, sizeof stored)) return TU_OK;
    for (int i = 0; i < found->count && *best < 0; i++) {
        TU_TRY(algorithm_text(&found->list[i].algo, text));
        if (strcmp(text, stored) == 0) *best = i;
    }
    return TU_OK;
}

static tu_status choose_best(cuda_device *device, const cuda_gemm *g, cuda_gemm_plan *p,
                             const suggestions *found, const char *key, int *best) {
    TU_TRY(find_stored(key, found, best));
    if (*best >= 0) return TU_OK;
    tu_status status = time_on_scratch(device, g, p, found, best);
    if (status == TU_NO_MEMORY) *best = 0;
    if (status != TU_OK) return status == TU_NO_MEMORY ? TU_OK : status;
    char text[ALGORITHM_TEXT];
    TU_TRY(algorithm_text(&found->list[*best].algo, text));
    cuda_tuning_store(key, text);
    return TU_OK;
}

/* ---- NaN ---- */

/* Returns the first element of the result. */
static tu_status result_of_trial(trial *t, tu_dtype dtype, double *result) {
    unsigned char bytes[8];
    CUdeviceptr out = cuda_address(t->operands.out);
    CUstream stream = t->device->own_queue.stream;
    CUDA_TRY(cuMemsetD8Async, out, 0, tu_dtype_size(dtype), stream);
    TU_TRY(run_trial(t));
    CUDA_TRY(cuMemcpyDtoHAsync, bytes, out, tu_dtype_size(dtype), stream);
    CUDA_TRY(cuStreamSynchronize, stream);
    *result = tu__load(dtype, bytes, 0);
    return TU_OK;
}

tu_status cuda_gemm_keeps_nan(cuda_device *device, const cuda_gemm *gemm, cuda_gemm_plan *plan, bool *keeps) {
    enum { NAN_BYTE = 0xff }; /* NaN in every float type */
    trial t = {.device = device, .plan = plan};
    double result = 0;
    tu_status status = allocate_trial(gemm, NAN_BYTE, &t);
    if (status == TU_OK) status = result_of_trial(&t, gemm->dtype, &result);
    free_trial(&t);
    *keeps = isnan(result);
    return status == TU_NO_MEMORY ? TU_OK : status;
}

/* ---- Planning ---- */

static tu_status choose_algorithm(cuda_device *device, const cuda_gemm *g, cuda_gemm_plan *p) {
    suggestions found;
    TU_TRY(get_suggestions(device, g, p, device->tune ? CANDIDATES : 1, &found));
    if (found.count == 0) return TU_UNSUPPORTED;
    int best = 0;
    if (device->tune && found.count > 1) {
        tu__text key = {0};
        tu_status status = problem_key(device, g, &key);
        if (status == TU_OK) status = choose_best(device, g, p, &found, tu__text_string(&key), &best);
        tu__text_free(&key);
        TU_TRY(status);
    }
    use_suggestion(p, &found.list[best]);
    return TU_OK;
}

tu_status cuda_gemm_plan_new(cuda_device *device, const cuda_gemm *gemm, cuda_gemm_plan **plan) {
    *plan = NULL;
    if (!product_types[gemm->dtype].supported || gemm->batch > INT32_MAX) return TU_UNSUPPORTED;
    cuda_gemm_plan *p = tu__alloc(sizeof *p, "a matrix product");
    if (!p) return TU_NO_MEMORY;
    p->wide = gemm->dtype == TU_F64;
    p->subtract = gemm->subtract;
    p->with_residual = gemm->residual;
    tu_status status = describe_gemm(device, gemm, p);
    if (status == TU_OK) status = choose_algorithm(device, gemm, p);
    if (status != TU_OK) {
        cuda_gemm_plan_free(p);
        return status;
    }
    *plan = p;
    return TU_OK;
}

void cuda_gemm_plan_free(cuda_gemm_plan *p) {
    if (!p) return;
    if (p->description) cuda.cublasLtMatmulDescDestroy(p->description);
    if (p->a) cuda.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cuda.cublasLtMatrixLayoutDestroy(p->b);
    if (p->out) cuda.cublasLtMatrixLayoutDestroy(p->out);
    tu__free(p);
}
