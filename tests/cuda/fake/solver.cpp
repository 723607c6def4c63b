/* A fake cuSOLVER: LU with pivoting, its solver, and Cholesky, in plain loops over column-major matrices. */
#include <cusolverDn.h>

#include <cmath>
#include <cstring>

#include "driver.h"

struct cusolverDnContext {
    cudaStream_t stream;
};

enum { WORKSPACE = 64 }; /* elements: required, and overwritten */

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle) {
    NEED(fake_synchronise(), CUSOLVER_STATUS_INTERNAL_ERROR);
    *handle = new cusolverDnContext{nullptr};
    fake_add_object("cuSOLVER handle", *handle);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
    NEED(fake_synchronise(), CUSOLVER_STATUS_INTERNAL_ERROR);
    NEED(fake_remove_object("cuSOLVER handle", handle), CUSOLVER_STATUS_NOT_INITIALIZED);
    delete handle;
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
    NEED(fake_is_object("cuSOLVER handle", handle), CUSOLVER_STATUS_NOT_INITIALIZED);
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t enqueue(cusolverDnHandle_t handle, const char *what, work w) {
    NEED(fake_is_object("cuSOLVER handle", handle), CUSOLVER_STATUS_NOT_INITIALIZED);
    return fake_enqueue((CUstream)handle->stream, what, std::move(w)) == CUDA_SUCCESS
               ? CUSOLVER_STATUS_SUCCESS
               : CUSOLVER_STATUS_EXECUTION_FAILED;
}

static cusolverStatus_t return_size(int m, int n, int lda, int *size) {
    NEED(m >= 0 && n >= 0 && lda >= (m > 1 ? m : 1), CUSOLVER_STATUS_INVALID_VALUE);
    *size = WORKSPACE;
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- LU ---- */

template <typename T> static void exchange_rows(T *a, int lda, int columns, int r, int s) {
    for (int j = 0; r != s && j < columns; j++) {
        T swapped = a[(size_t)j * lda + r];
        a[(size_t)j * lda + r] = a[(size_t)j * lda + s];
        a[(size_t)j * lda + s] = swapped;
    }
}

template <typename T> static int largest_below(const T *column, int first, int rows) {
    int best = first;
    for (int i = first + 1; i < rows; i++)
        if (std::fabs(column[i]) > std::fabs(column[best])) best = i;
    return best;
}

/* Returns the number of the first zero pivot, counted from 1; 0 if there is none. */
template <typename T> static int factor_lu(int m, int n, T *a, int lda, int *pivots) {
    int singular = 0;
    for (int j = 0; j < (m < n ? m : n); j++) {
        T *column = a + (size_t)j * lda;
        int pivot = pivots ? largest_below(column, j, m) : j;
        if (pivots) pivots[j] = pivot + 1;
        exchange_rows(a, lda, n, j, pivot);
        if (column[j] == 0) {
            if (!singular) singular = j + 1;
            continue;
        }
        for (int i = j + 1; i < m; i++) column[i] /= column[j];
        for (int k = j + 1; k < n; k++)
            for (int i = j + 1; i < m; i++) a[(size_t)k * lda + i] -= column[i] * a[(size_t)k * lda + j];
    }
    return singular;
}

template <typename T>
static cusolverStatus_t getrf(cusolverDnHandle_t handle, int m, int n, T *a, int lda, T *workspace,
                              int *pivots, int *info) {
    return enqueue(handle, "getrf", [=] {
        fake_need_memory(a, ((size_t)(n - 1) * lda + m) * sizeof *a, "getrf: A");
        fake_need_memory(workspace, WORKSPACE * sizeof *a, "getrf: workspace");
        fake_need_memory(info, sizeof *info, "getrf: info");
        if (pivots) fake_need_memory(pivots, sizeof *pivots * (size_t)(m < n ? m : n), "getrf: pivots");
        memset(workspace, 0xff, WORKSPACE * sizeof *a);
        *info = factor_lu(m, n, a, lda, pivots);
    });
}

/* ---- Solving with LU ---- */

template <typename T> static void solve_column(bool transpose, int n, const T *a, int lda, T *x) {
    auto at = [=](int i, int j) { return a[(size_t)j * lda + i]; };
    if (!transpose) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++) x[i] -= at(i, j) * x[j];
        for (int i = n - 1; i >= 0; i--) {
            for (int j = i + 1; j < n; j++) x[i] -= at(i, j) * x[j];
            x[i] /= at(i, i);
        }
    } else {
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) x[i] -= at(j, i) * x[j];
            x[i] /= at(i, i);
        }
        for (int i = n - 1; i >= 0; i--)
            for (int j = i + 1; j < n; j++) x[i] -= at(j, i) * x[j];
    }
}

template <typename T>
static cusolverStatus_t getrs(cusolverDnHandle_t handle, cublasOperation_t op, int n, int columns, const T *a,
                              int lda, const int *pivots, T *b, int ldb, int *info) {
    return enqueue(handle, "getrs", [=] {
        fake_need_memory(a, ((size_t)(n - 1) * lda + n) * sizeof *a, "getrs: A");
        fake_need_memory(b, ((size_t)(columns - 1) * ldb + n) * sizeof *b, "getrs: B");
        fake_need_memory(info, sizeof *info, "getrs: info");
        bool transpose = op != CUBLAS_OP_N;
        for (int i = 0; pivots && !transpose && i < n; i++) exchange_rows(b, ldb, columns, i, pivots[i] - 1);
        for (int j = 0; j < columns; j++) solve_column(transpose, n, a, lda, b + (size_t)j * ldb);
        for (int i = n - 1; pivots && transpose && i >= 0; i--)
            exchange_rows(b, ldb, columns, i, pivots[i] - 1);
        *info = 0;
    });
}

/* ---- Cholesky ---- */

/* Computes l l^T of the lower triangle, or u^T u of the upper one, which is the same with exchanged indices. */
template <typename T> static int factor_cholesky(bool upper, int n, T *a, int lda) {
    auto at = [=](int i, int j) -> T & { return upper ? a[(size_t)i * lda + j] : a[(size_t)j * lda + i]; };
    for (int j = 0; j < n; j++) {
        T sum = at(j, j);
        for (int k = 0; k < j; k++) sum -= at(j, k) * at(j, k);
        if (!(sum > 0)) return j + 1;
        at(j, j) = std::sqrt(sum);
        for (int i = j + 1; i < n; i++) {
            T x = at(i, j);
            for (int k = 0; k < j; k++) x -= at(i, k) * at(j, k);
            at(i, j) = x / at(j, j);
        }
    }
    return 0;
}

template <typename T>
static cusolverStatus_t potrf(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *a, int lda,
                              T *workspace, int size, int *info) {
    NEED(size >= WORKSPACE, CUSOLVER_STATUS_INVALID_VALUE);
    return enqueue(handle, "potrf", [=] {
        fake_need_memory(a, ((size_t)(n - 1) * lda + n) * sizeof *a, "potrf: A");
        fake_need_memory(workspace, (size_t)size * sizeof *a, "potrf: workspace");
        fake_need_memory(info, sizeof *info, "potrf: info");
        memset(workspace, 0xff, (size_t)size * sizeof *a);
        *info = factor_cholesky(uplo == CUBLAS_FILL_MODE_UPPER, n, a, lda);
    });
}

/* ---- Instances for both types ---- */

#define TYPE(letter, T)                                                                                      \
    cusolverStatus_t cusolverDn##letter##getrf_bufferSize(cusolverDnHandle_t, int m, int n, T *, int lda,    \
                                                          int *size) {                                       \
        return return_size(m, n, lda, size);                                                                   \
    }                                                                                                        \
    cusolverStatus_t cusolverDn##letter##getrf(cusolverDnHandle_t handle, int m, int n, T *a, int lda,       \
                                               T *workspace, int *pivots, int *info) {                       \
        return getrf(handle, m, n, a, lda, workspace, pivots, info);                                         \
    }                                                                                                        \
    cusolverStatus_t cusolverDn##letter##getrs(cusolverDnHandle_t handle, cublasOperation_t op, int n,       \
                                               int columns, const T *a, int lda, const int *pivots, T *b,    \
                                               int ldb, int *info) {                                         \
        return getrs(handle, op, n, columns, a, lda, pivots, b, ldb, info);                                  \
    }                                                                                                        \
    cusolverStatus_t cusolverDn##letter##potrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, T *,  \
                                                          int lda, int *size) {                              \
        return return_size(n, n, lda, size);                                                                   \
    }                                                                                                        \
    cusolverStatus_t cusolverDn##letter##potrf(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,      \
                                               T *a, int lda, T *workspace, int size, int *info) {           \
        return potrf(handle, uplo, n, a, lda, workspace, size, info);                                        \
    }
TYPE(S, float)
TYPE(D, double)
