/* A fake cuBLASLt: matrix products in plain loops, with the real library's epilogues.
 *
 * Returns CUBLAS_STATUS_NOT_SUPPORTED for some cases that the real one does not support, so that callers need a
 * fallback: epilogues in f64, row-major order, masks whose rows are not multiples of 128 bits. An algorithm needs a
 * workspace and overwrites it. A relu turns NaN into 0, as on a real GPU; with FAKE_CUDA_BLAS_KEEPS_NAN=1 it does not.
 */
#include <cublasLt.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "driver.h"
#include "elements.h"

struct description {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld, aux_step, bias_step;
    int32_t bias_type;       /* -1: that of D */
    int32_t multiprocessors; /* target of the algorithm; 0: all */
};
struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld, step;
    int32_t batch, order;
};
struct preference {
    uint64_t workspace;
    uint32_t schemes, alignment[4];
};

enum { WORKSPACE = 1000, MAGIC = 0x46414b45 };

/* ---- Objects ---- */

template <typename T, typename Handle>
static cublasStatus_t create(const char *kind, Handle *handle, T value) {
    *handle = (Handle) new T(value);
    fake_add_object(kind, *handle);
    return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Handle> static cublasStatus_t destroy(const char *kind, Handle handle) {
    NEED(fake_remove_object(kind, (const void *)handle), CUBLAS_STATUS_INVALID_VALUE);
    delete (T *)handle;
    return CUBLAS_STATUS_SUCCESS;
}
/* Sets an attribute, which is a field, if the size is right. */
static cublasStatus_t set_field(void *field, size_t bytes, const void *value, size_t given) {
    NEED(given == bytes, CUBLAS_STATUS_INVALID_VALUE);
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
#define SET_FIELD(field) set_field(&(field), sizeof(field), value, bytes)

size_t cublasLtGetVersion() {
    return 130000;
}
const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS";
    }
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    NEED(fake_synchronise(), CUBLAS_STATUS_INTERNAL_ERROR);
    return create("cuBLASLt handle", handle, int(0));
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    NEED(fake_synchronise(), CUBLAS_STATUS_INTERNAL_ERROR);
    return destroy<int>("cuBLASLt handle", handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType scale) {
    return create("matmul description", desc,
                  description{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                              nullptr, 0, 0, 0, -1, 0});
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t desc) {
    return destroy<description>("matmul description", desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes) {
    NEED(fake_is_object("matmul description", desc), CUBLAS_STATUS_INVALID_VALUE);
    description *d = (description *)desc;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return SET_FIELD(d->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return SET_FIELD(d->transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return SET_FIELD(d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return SET_FIELD(d->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return SET_FIELD(d->bias_type);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return SET_FIELD(d->bias_step);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return SET_FIELD(d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return SET_FIELD(d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return SET_FIELD(d->aux_step);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return SET_FIELD(d->multiprocessors);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *handle, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
    return create("matrix layout", handle, layout{type, rows, columns, ld, 0, 1, CUBLASLT_ORDER_COL});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t handle) {
    return destroy<layout>("matrix layout", handle);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
    NEED(fake_is_object("matrix layout", handle), CUBLAS_STATUS_INVALID_VALUE);
    layout *l = (layout *)handle;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return SET_FIELD(l->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return SET_FIELD(l->step);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return SET_FIELD(l->order);
    case CUBLASLT_MATRIX_LAYOUT_LD: return SET_FIELD(l->ld);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *handle) {
    return create("matmul preference", handle, preference{0, ~0u, {256, 256, 256, 256}});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t handle) {
    return destroy<preference>("matmul preference", handle);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    NEED(fake_is_object("matmul preference", handle), CUBLAS_STATUS_INVALID_VALUE);
    preference *p = (preference *)handle;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return SET_FIELD(p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return SET_FIELD(p->schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return SET_FIELD(p->alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return SET_FIELD(p->alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return SET_FIELD(p->alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return SET_FIELD(p->alignment[3]);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ---- Supported products ---- */

static bool has(uint32_t epilogue, uint32_t part) {
    return (epilogue & part) != 0;
}
enum {
    RELU = 2,
    BIAS = 4,
    DRELU = 8,
    BGRAD = 16,
    GELU = 32,
    DGELU = 64,
    AUX = 128,
    BGRAD_A = 256,
    BGRAD_B = 512
};

static cublasStatus_t check_epilogue(const description &d, const layout &out) {
    if (d.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
    NEED(out.type != CUDA_R_64F, CUBLAS_STATUS_NOT_SUPPORTED);
    NEED(!has(d.epilogue, GELU | DGELU), CUBLAS_STATUS_NOT_SUPPORTED);
    if (has(d.epilogue, BIAS | BGRAD | BGRAD_A | BGRAD_B)) NEED(d.bias, CUBLAS_STATUS_INVALID_VALUE);
    if (!has(d.epilogue, AUX)) return CUBLAS_STATUS_SUCCESS;
    NEED(d.aux && d.aux_ld >= (int64_t)out.rows, CUBLAS_STATUS_INVALID_VALUE);
    NEED(d.aux_ld % 128 == 0, CUBLAS_STATUS_NOT_SUPPORTED);
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_valid(const layout &l) {
    return l.rows > 0 && l.columns > 0 && l.ld >= (int64_t)l.rows && l.batch > 0 && is_supported_float(l.type);
}

struct problem {
    description d;
    layout a, b, c, out;
    int64_t m, n, k;
    bool keeps_nan;
};

static cublasStatus_t make_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out, problem &p) {
    NEED(fake_is_object("matmul description", desc) && fake_is_object("matrix layout", a) &&
             fake_is_object("matrix layout", b) && fake_is_object("matrix layout", c) &&
             fake_is_object("matrix layout", out),
         CUBLAS_STATUS_INVALID_VALUE);
    p = {*(description *)desc, *(layout *)a, *(layout *)b, *(layout *)c, *(layout *)out, 0, 0, 0,
         fake_setting("FAKE_CUDA_BLAS_KEEPS_NAN", 0) != 0};
    NEED(is_valid(p.a) && is_valid(p.b) && is_valid(p.c) && is_valid(p.out), CUBLAS_STATUS_INVALID_VALUE);
    p.m = (int64_t)p.out.rows;
    p.n = (int64_t)p.out.columns;
    p.k = (int64_t)(p.d.transpose_a ? p.a.rows : p.a.columns);
    int64_t a_rows = (int64_t)(p.d.transpose_a ? p.a.columns : p.a.rows);
    int64_t b_rows = (int64_t)(p.d.transpose_b ? p.b.columns : p.b.rows);
    int64_t b_columns = (int64_t)(p.d.transpose_b ? p.b.rows : p.b.columns);
    NEED(a_rows == p.m && b_rows == p.k && b_columns == p.n, CUBLAS_STATUS_INVALID_VALUE);
    NEED(p.a.batch == p.out.batch && p.b.batch == p.out.batch && p.c.batch == p.out.batch,
         CUBLAS_STATUS_INVALID_VALUE);
    for (const layout *l : {&p.a, &p.b, &p.c, &p.out}) {
        NEED(l->order == CUBLASLT_ORDER_COL, CUBLAS_STATUS_NOT_SUPPORTED);
        NEED(l->type == p.out.type, CUBLAS_STATUS_NOT_SUPPORTED);
    }
    bool wide = p.out.type == CUDA_R_64F;
    NEED(wide == (p.d.compute == CUBLAS_COMPUTE_64F) && p.d.scale == (wide ? CUDA_R_64F : CUDA_R_32F),
         CUBLAS_STATUS_NOT_SUPPORTED);
    return check_epilogue(p.d, p.out);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference_handle, int max_count,
                                              cublasLtMatmulHeuristicResult_t found[], int *count) {
    NEED(fake_is_object("cuBLASLt handle", handle) &&
             fake_is_object("matmul preference", preference_handle) && max_count > 0,
         CUBLAS_STATUS_INVALID_VALUE);
    problem p;
    *count = 0;
    cublasStatus_t status = make_problem(desc, a, b, c, out, p);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (int i = 0; i < max_count && i < 3; i++) {
        memset(&found[i], 0, sizeof found[i]);
        found[i].algo.data[0] = MAGIC;
        found[i].algo.data[1] = (uint64_t)i;
        found[i].workspaceSize = ((preference *)preference_handle)->workspace >= WORKSPACE ? WORKSPACE : 0;
        found[i].state = CUBLAS_STATUS_SUCCESS;
        found[i].wavesCount = 1;
        *count = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                                                    size_t bytes, size_t *written) {
    NEED(algorithm->data[0] == MAGIC, CUBLAS_STATUS_INVALID_VALUE);
    memset(value, 0, bytes);
    if (name == CUBLASLT_ALGO_CONFIG_ID) memcpy(value, &algorithm->data[1], bytes);
    if (written) *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- Computing ---- */

struct call {
    problem p;
    double alpha, beta;
    const char *a, *b, *c;
    char *out;
    char *workspace;
    size_t workspace_bytes;
};

static size_t span(const layout &l) {
    int64_t last = (int64_t)(l.columns - 1) * l.ld + (int64_t)l.rows + (l.batch - 1) * l.step;
    return (size_t)last * element_bytes(l.type);
}

/* Returns one matrix of the batch as doubles, with op applied: column-major [rows, columns]. */
static std::vector<double> load_matrix(const layout &l, const char *data, int64_t batch, bool transpose,
                                  bool tf32) {
    int64_t rows = (int64_t)l.rows, columns = (int64_t)l.columns;
    std::vector<double> result((size_t)(rows * columns));
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) {
            double x = load_element(l.type, data, batch * l.step + j * l.ld + i);
            result[(size_t)(transpose ? i * columns + j : j * rows + i)] = tf32 ? round_to_tf32(x) : x;
        }
    return result;
}

static cudaDataType bias_type(const problem &p) {
    return p.d.bias_type < 0 ? p.out.type : (cudaDataType)p.d.bias_type;
}

static double apply_epilogue(const problem &p, double x, int64_t i, int64_t j, int64_t batch) {
    uint32_t epilogue = p.d.epilogue;
    unsigned char *mask = (unsigned char *)p.d.aux;
    int64_t bit = batch * p.d.aux_step + j * p.d.aux_ld + i;
    if (has(epilogue, BIAS)) x += load_element(bias_type(p), p.d.bias, batch * p.d.bias_step + i);
    if (has(epilogue, RELU) && has(epilogue, AUX)) {
        unsigned char one = (unsigned char)(1u << bit % 8);
        mask[bit / 8] = (unsigned char)(x > 0 ? mask[bit / 8] | one : mask[bit / 8] & ~one);
    }
    if (has(epilogue, RELU)) x = x > 0 || (p.keeps_nan && x != x) ? x : 0;
    if (has(epilogue, DRELU) && !(mask[bit / 8] >> bit % 8 & 1)) x = 0;
    return x;
}

/* Stores sums in the bias's memory: of D over its columns, of op(A) or op(B) over k. */
static void store_sums(const problem &p, const std::vector<double> &x, int64_t rows, int64_t columns,
                       bool over_rows, int64_t batch) {
    int64_t count = over_rows ? columns : rows;
    for (int64_t r = 0; r < count; r++) {
        double sum = 0;
        for (int64_t s = 0; s < (over_rows ? rows : columns); s++)
            sum += x[(size_t)(over_rows ? r * rows + s : s * rows + r)];
        store_element(bias_type(p), p.d.bias, batch * p.d.bias_step + r, sum);
    }
}

static void multiply_one(const call &c, int64_t batch) {
    const problem &p = c.p;
    bool tf32 = p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<double> a = load_matrix(p.a, c.a, batch, p.d.transpose_a != CUBLAS_OP_N, tf32);
    std::vector<double> b = load_matrix(p.b, c.b, batch, p.d.transpose_b != CUBLAS_OP_N, tf32);
    std::vector<double> out((size_t)(p.m * p.n));
    for (int64_t j = 0; j < p.n; j++) {
        double *column = &out[(size_t)(j * p.m)];
        for (int64_t l = 0; l < p.k; l++) {
            if (p.d.multiprocessors && p.d.compute != CUBLAS_COMPUTE_64F && l == p.k / 2) /* changes the last bits */
                for (int64_t i = 0; i < p.m; i++) column[i] = (float)column[i];
            for (int64_t i = 0; i < p.m; i++)
                column[i] += a[(size_t)(l * p.m + i)] * b[(size_t)(j * p.k + l)];
        }
        for (int64_t i = 0; i < p.m; i++) {
            double x = c.alpha * column[i];
            if (c.beta != 0) x += c.beta * load_element(p.c.type, c.c, batch * p.c.step + j * p.c.ld + i);
            column[i] = apply_epilogue(p, x, i, j, batch);
        }
    }
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t i = 0; i < p.m; i++)
            store_element(p.out.type, c.out, batch * p.out.step + j * p.out.ld + i,
                          out[(size_t)(j * p.m + i)]);
    if (has(p.d.epilogue, BGRAD)) store_sums(p, out, p.m, p.n, false, batch);
    if (has(p.d.epilogue, BGRAD_A)) store_sums(p, a, p.m, p.k, false, batch);
    if (has(p.d.epilogue, BGRAD_B)) store_sums(p, b, p.k, p.n, true, batch);
}

static void need_operands(const call &c) {
    const problem &p = c.p;
    fake_need_memory(c.a, span(p.a), "cublasLtMatmul: A");
    fake_need_memory(c.b, span(p.b), "cublasLtMatmul: B");
    fake_need_memory(c.out, span(p.out), "cublasLtMatmul: D");
    if (c.beta != 0) fake_need_memory(c.c, span(p.c), "cublasLtMatmul: C");
    if (has(p.d.epilogue, AUX))
        fake_need_memory(p.d.aux, (size_t)(p.n * p.d.aux_ld / 8), "cublasLtMatmul: mask");
    if (has(p.d.epilogue, BIAS | BGRAD | BGRAD_A | BGRAD_B))
        fake_need_memory(p.d.bias,
                         (size_t)(has(p.d.epilogue, BGRAD_B) ? p.n : p.m) * element_bytes(bias_type(p)),
                         "cublasLtMatmul: bias");
    fake_need_memory(c.workspace, c.workspace_bytes, "cublasLtMatmul: workspace");
}

static void multiply(const call &c) {
    if (fake_setting("FAKE_CUDA_COMPILE_ONLY", 0)) return;
    need_operands(c);
    if (c.workspace_bytes) memset(c.workspace, 0xff, c.workspace_bytes);
    for (int64_t batch = 0; batch < c.p.out.batch; batch++) multiply_one(c, batch);
}

static bool is_aligned(const void *address, size_t bytes) {
    return (uintptr_t)address % bytes == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out, cublasLtMatrixLayout_t out_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    NEED(fake_is_object("cuBLASLt handle", handle), CUBLAS_STATUS_NOT_INITIALIZED);
    problem p;
    cublasStatus_t status = make_problem(desc, a_layout, b_layout, c_layout, out_layout, p);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    NEED(!algorithm || algorithm->data[0] == MAGIC, CUBLAS_STATUS_INVALID_VALUE);
    NEED(is_aligned(workspace, 256) && is_aligned(a, element_bytes(p.a.type)) &&
             is_aligned(b, element_bytes(p.b.type)) && is_aligned(c, element_bytes(p.c.type)) &&
             is_aligned(out, element_bytes(p.out.type)) && is_aligned(p.d.aux, 16),
         CUBLAS_STATUS_INVALID_VALUE);
    bool wide = p.d.scale == CUDA_R_64F;
    call work_to_do = {p,
                       wide ? *(const double *)alpha : *(const float *)alpha,
                       wide ? *(const double *)beta : *(const float *)beta,
                       (const char *)a,
                       (const char *)b,
                       (const char *)c,
                       (char *)out,
                       (char *)workspace,
                       workspace_bytes};
    CUresult result = fake_enqueue((CUstream)stream, "cublasLtMatmul", [=] { multiply(work_to_do); });
    return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
