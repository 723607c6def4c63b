/* Linear algebra: inverse, solve, cholesky and triangular_solve, for f32 and f64.
 *
 * Small matrices, and batches of medium-sized ones, are processed in shared memory by handwritten kernels, one block per
 * matrix (kernels/linalg.cu). Larger ones go to cuSOLVER one after another. cuSOLVER is column-major, so it sees our
 * row-major A as A^T:
 *
 *     inverse           (A^T)^-1 = (A^-1)^T: solving against the identity gives A^-1 in our order
 *     solve             with A^T = P L U, A X = B is (P L U)^T X = B, which getrs solves with "transposed". The
 *                       right-hand sides must be columns, so they are transposed before and after, unless there is
 *                       only one
 *     cholesky          the lower triangle of A is the upper one of A^T = U^T U, and U is our L
 *
 * cuSOLVER's calls sometimes read results on the host and cannot be captured. A plan that uses them is enqueued
 * kernel by kernel.
 *
 * triangular_solve is a recursion, planned in advance: solve the first half of the unknowns, subtract their
 * contribution from the rest with a matrix product, solve the second half. Nearly all work is in the products
 * (cuBLASLt); blocks of 64 rows end the recursion. The products never use tf32, whose errors would be amplified by
 * the system.
 *
 * A singular or non-positive-definite matrix gives NaN everywhere. The CPU returns TU_NUMERIC and names the matrix;
 * the GPU does not wait for the result.
 */
#include <limits.h>

#include "device/cuda/ops/gemm.h"
#include "device/cuda/ops/ops.h"

#include "device/cuda/kernels/linalg_args.h"

enum {
    THREADS = 256,
    MAX_BLOCKS = 65535,    /* along y */
    SMALL = 64,            /* rows up to which handwritten kernels are always used */
    MEDIUM = 160,          /* rows up to which they are used for batches, if shared memory suffices */
    BATCH = 4,             /* minimum number of matrices of a batch */
    MAX_RHS = 64,          /* right-hand sides per block */
    RESERVED_SHARED = 1024 /* bytes of shared memory used for other things */
};

typedef enum task { INVERSE, SOLVE, CHOLESKY } task;

/* A batch of n x n matrices with k right-hand sides each. */
typedef struct systems {
    int64_t count, n, k;
    tu_dtype dtype;
} systems;

static systems systems_of(const tu__selection *s, const tu__node *node) {
    tu_type a = *tu__type_of(s, node->inputs[0]), x = node->outputs[0];
    int64_t n = a.shape.dim[a.shape.rank - 1];
    return (systems){tu_shape_elements(a.shape) / (n * n), n, x.shape.dim[x.shape.rank - 1], a.dtype};
}

static size_t element_bytes(const systems *y) {
    return tu_dtype_size(y->dtype);
}

static size_t matrix_bytes(const systems *y) {
    return (size_t)(y->n * y->n) * element_bytes(y);
}

static size_t rhs_bytes(const systems *y) {
    return (size_t)(y->n * y->k) * element_bytes(y);
}

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

static unsigned min_blocks(int64_t count, int64_t limit) {
    return (unsigned)(count < limit ? count : limit);
}

/* Reads all inputs. The result may reuse the memory of input `in_place`. */
static tu_status add_operands(tu__kernel *k, const tu__node *node, int in_place) {
    tu_type in[2] = {0};
    k->bytes_moved = (int64_t)tu_type_bytes(node->outputs[0]);
    for (uint32_t i = 0; i < node->input_count; i++) {
        in[i] = *tu__type_of(k->owner, node->inputs[i]);
        k->bytes_moved += (int64_t)tu_type_bytes(in[i]);
        TU_TRY(tu__kernel_read(k, node->inputs[i]));
    }
    k->flops = node->op->flops(node, in);
    return tu__kernel_write(k, (tu__edge){node->id, 0}, in_place);
}

/* ---- Small matrices ---- */

typedef struct small_data {
    const cuda_function *function;
    cuda_grid grid;
    solve_args solve;
    cholesky_args cholesky;
} small_data;

static tu_status run_small_solve(const tu__kernel *k) {
    const small_data *d = k->data;
    solve_args a = d->solve;
    a.a = k->in[0];
    a.b = k->read_count > 1 ? k->in[1] : NULL;
    a.x = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

static tu_status run_small_cholesky(const tu__kernel *k) {
    const small_data *d = k->data;
    cholesky_args a = d->cholesky;
    a.a = k->in[0];
    a.l = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

/* Returns the leading dimension (row length) in shared memory: odd, so that the elements of a column
 * are in different banks. */
static int64_t shared_ld_of(int64_t columns) {
    return columns | 1;
}

static size_t small_bytes(const systems *y, int64_t columns) {
    return (size_t)(y->n * shared_ld_of(y->n + columns)) * element_bytes(y);
}

/* Returns the right-hand sides per block; 0 if even the matrix is too large. */
static int64_t rhs_per_block(const cuda_device *device, const systems *y) {
    size_t available =
        (size_t)(device->shared_bytes > RESERVED_SHARED ? device->shared_bytes - RESERVED_SHARED : 0);
    int64_t columns = y->k < MAX_RHS ? y->k : MAX_RHS;
    while (columns && small_bytes(y, columns) > available) columns /= 2;
    return columns;
}

static bool is_small(const cuda_device *device, const systems *y) {
    int64_t limit = y->count >= BATCH ? MEDIUM : SMALL;
    return y->n <= limit && y->count <= INT_MAX && rhs_per_block(device, y) > 0;
}

static tu_status lower_small_solve(tu__selection *s, const tu__node *node, const systems *y) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_small_solve);
    small_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t columns = rhs_per_block(cuda_of(s), y), column_blocks = divide_up(y->k, columns);
    d->solve = (solve_args){.n = (int)y->n,
                            .rhs_per_block = (int)columns,
                            .shared_ld = (int)shared_ld_of(y->n + columns),
                            .rhs_count = y->k};
    d->grid = (cuda_grid){{(unsigned)y->count, min_blocks(column_blocks, MAX_BLOCKS)},
                          THREADS,
                          (unsigned)small_bytes(y, columns)};
    d->function = cuda_request(s, "linalg", "solve<%s>", cuda_type(y->dtype));
    if (!d->function) return TU_NO_MEMORY;
    /* If several blocks share the columns of an inverse, all of them read the whole matrix, so it cannot be in
     * place. */
    return add_operands(k, node, node->input_count > 1 ? 1 : column_blocks > 1 ? -1 : 0);
}

static tu_status lower_small_cholesky(tu__selection *s, const tu__node *node, const systems *y) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_small_cholesky);
    small_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->cholesky = (cholesky_args){.n = (int)y->n, .shared_ld = (int)shared_ld_of(y->n)};
    d->grid = (cuda_grid){{(unsigned)y->count}, THREADS, (unsigned)small_bytes(y, 0)};
    d->function = cuda_request(s, "linalg", "cholesky<%s>", cuda_type(y->dtype));
    return d->function ? add_operands(k, node, 0) : TU_NO_MEMORY;
}

/* ---- Large matrices: cuSOLVER ---- */

/* Offsets in the kernel's workspace, which serves one matrix at a time. */
typedef struct large_data {
    systems systems;
    task task;
    cusolverDnHandle_t solver;
    const cuda_function *identity, *transpose, *finish; /* those that the task needs */
    int work_elements;
    size_t factors, rhs, pivots, infos, work;
} large_data;

static void *workspace_at(const tu__kernel *k, size_t offset) {
    return (char *)k->workspace + offset;
}

typedef struct solver_call { /* the arguments of a call of cuSOLVER */
    void *a, *work;
    int *pivots, *info;
    cublasOperation_t transposed;
    void *x;
} solver_call;

static tu_status factor_lu(const large_data *d, const solver_call *c) {
    int n = (int)d->systems.n;
    if (d->systems.dtype == TU_F64)
        SOLVER_TRY(cusolverDnDgetrf, d->solver, n, n, c->a, n, c->work, c->pivots, c->info);
    else
        SOLVER_TRY(cusolverDnSgetrf, d->solver, n, n, c->a, n, c->work, c->pivots, c->info);
    return TU_OK;
}

static tu_status solve_lu(const large_data *d, const solver_call *c) {
    int n = (int)d->systems.n, k = (int)d->systems.k;
    if (d->systems.dtype == TU_F64)
        SOLVER_TRY(cusolverDnDgetrs, d->solver, c->transposed, n, k, c->a, n, c->pivots, c->x, n, c->info);
    else
        SOLVER_TRY(cusolverDnSgetrs, d->solver, c->transposed, n, k, c->a, n, c->pivots, c->x, n, c->info);
    return TU_OK;
}

static tu_status factor_cholesky(const large_data *d, const solver_call *c) {
    int n = (int)d->systems.n;
    if (d->systems.dtype == TU_F64)
        SOLVER_TRY(cusolverDnDpotrf, d->solver, CUBLAS_FILL_MODE_UPPER, n, c->a, n, c->work, d->work_elements,
                   c->info);
    else
        SOLVER_TRY(cusolverDnSpotrf, d->solver, CUBLAS_FILL_MODE_UPPER, n, c->a, n, c->work, d->work_elements,
                   c->info);
    return TU_OK;
}

/* Makes a call of cuSOLVER into the kernel's stream. */
static tu_status call_solver(const tu__kernel *k,
                             tu_status (*call)(const large_data *d, const solver_call *c),
                             const solver_call *c) {
    TU_TRY(cuda_solver_lock(cuda_of(k), cuda_stream(k)));
    tu_status status = call(k->data, c);
    cuda_library_unlock(cuda_of(k));
    return status;
}

static tu_status launch_matrix_fill(const tu__kernel *k, const cuda_function *function, void *x,
                                    int64_t count) {
    const large_data *d = k->data;
    matrix_fill_args a = {.x = x, .info = workspace_at(k, d->infos), .n = d->systems.n, .count = count};
    return cuda_launch(k, function, cuda_grid_for(k, count), &a);
}

/* from [rows, columns] to [columns, rows] */
static tu_status launch_transpose(const tu__kernel *k, const void *from, void *to, int64_t rows,
                                  int64_t columns) {
    enum { TILE = 32 };
    const large_data *d = k->data;
    transpose_args a = {.from = from, .to = to, .rows = rows, .columns = columns};
    cuda_grid grid = {
        {(unsigned)divide_up(columns, TILE), min_blocks(divide_up(rows, TILE), MAX_BLOCKS)}, THREADS, 0};
    return cuda_launch(k, d->transpose, grid, &a);
}

/* Copies the matrix and factors the copy. */
static tu_status factor(const tu__kernel *k, const void *a) {
    const large_data *d = k->data;
    TU_TRY(cuda_copy(k, workspace_at(k, d->factors), a, matrix_bytes(&d->systems)));
    return call_solver(k, factor_lu,
                       &(solver_call){.a = workspace_at(k, d->factors),
                                      .work = workspace_at(k, d->work),
                                      .pivots = workspace_at(k, d->pivots),
                                      .info = workspace_at(k, d->infos)});
}

static tu_status solve_with_factors(const tu__kernel *k, cublasOperation_t transposed, void *x) {
    const large_data *d = k->data;
    int *infos = workspace_at(
        k,
        d->infos); /* getrs reports about its parameters: must not overwrite the info of the factorisation */
    return call_solver(k, solve_lu,
                       &(solver_call){.a = workspace_at(k, d->factors),
                                      .pivots = workspace_at(k, d->pivots),
                                      .info = infos + 1,
                                      .transposed = transposed,
                                      .x = x});
}

static tu_status invert_one(const tu__kernel *k, const void *a, void *x) {
    const large_data *d = k->data;
    int64_t count = d->systems.n * d->systems.n;
    TU_TRY(factor(k, a));
    TU_TRY(launch_matrix_fill(k, d->identity, x, count));
    TU_TRY(solve_with_factors(k, CUBLAS_OP_N, x));
    return launch_matrix_fill(k, d->finish, x, count);
}

static tu_status solve_one(const tu__kernel *k, const void *a, const void *b, void *x) {
    const large_data *d = k->data;
    const systems *y = &d->systems;
    TU_TRY(factor(k, a));
    if (y->k == 1) {
        if (x != b) TU_TRY(cuda_copy(k, x, b, rhs_bytes(y)));
        TU_TRY(solve_with_factors(k, CUBLAS_OP_T, x));
    } else {
        TU_TRY(launch_transpose(k, b, workspace_at(k, d->rhs), y->n, y->k));
        TU_TRY(solve_with_factors(k, CUBLAS_OP_T, workspace_at(k, d->rhs)));
        TU_TRY(launch_transpose(k, workspace_at(k, d->rhs), x, y->k, y->n));
    }
    return launch_matrix_fill(k, d->finish, x, y->n * y->k);
}

static tu_status cholesky_one(const tu__kernel *k, const void *a, void *l) {
    const large_data *d = k->data;
    if (l != a) TU_TRY(cuda_copy(k, l, a, matrix_bytes(&d->systems)));
    TU_TRY(call_solver(
        k, factor_cholesky,
        &(solver_call){.a = l, .work = workspace_at(k, d->work), .info = workspace_at(k, d->infos)}));
    return launch_matrix_fill(k, d->finish, l, d->systems.n * d->systems.n);
}

static tu_status run_large(const tu__kernel *k) {
    const large_data *d = k->data;
    size_t out_bytes = d->task == SOLVE ? rhs_bytes(&d->systems) : matrix_bytes(&d->systems);
    for (int64_t i = 0; i < d->systems.count; i++) {
        const char *a = (const char *)k->in[0] + (size_t)i * matrix_bytes(&d->systems);
        char *x = (char *)k->out[0] + (size_t)i * out_bytes;
        switch (d->task) {
        case INVERSE: TU_TRY(invert_one(k, a, x)); break;
        case SOLVE: TU_TRY(solve_one(k, a, (const char *)k->in[1] + (size_t)i * out_bytes, x)); break;
        case CHOLESKY: TU_TRY(cholesky_one(k, a, x)); break;
        }
    }
    return TU_OK;
}

static tu_status query_workspace(large_data *d) {
    int n = (int)d->systems.n;
    bool wide = d->systems.dtype == TU_F64;
    if (d->task != CHOLESKY && wide)
        SOLVER_TRY(cusolverDnDgetrf_bufferSize, d->solver, n, n, NULL, n, &d->work_elements);
    else if (d->task != CHOLESKY)
        SOLVER_TRY(cusolverDnSgetrf_bufferSize, d->solver, n, n, NULL, n, &d->work_elements);
    else if (wide)
        SOLVER_TRY(cusolverDnDpotrf_bufferSize, d->solver, CUBLAS_FILL_MODE_UPPER, n, NULL, n,
                   &d->work_elements);
    else
        SOLVER_TRY(cusolverDnSpotrf_bufferSize, d->solver, CUBLAS_FILL_MODE_UPPER, n, NULL, n,
                   &d->work_elements);
    return TU_OK;
}

/* Reserves bytes in the workspace and returns their offset. */
static size_t reserve_workspace(tu__kernel *k, size_t bytes) {
    enum { ALIGNMENT = 256 };
    size_t offset = k->workspace_bytes;
    k->workspace_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return offset;
}

static void assign_workspace(tu__kernel *k, large_data *d) {
    const systems *y = &d->systems;
    d->infos = reserve_workspace(k, 2 * sizeof(int));
    d->work = reserve_workspace(k, (size_t)d->work_elements * element_bytes(y));
    if (d->task == CHOLESKY) return;
    d->pivots = reserve_workspace(k, (size_t)y->n * sizeof(int));
    d->factors = reserve_workspace(k, matrix_bytes(y));
    if (d->task == SOLVE && y->k > 1) d->rhs = reserve_workspace(k, rhs_bytes(y));
}

static tu_status request_functions(tu__selection *s, large_data *d) {
    const char *type = cuda_type(d->systems.dtype);
    d->finish = cuda_request(s, "linalg", d->task == CHOLESKY ? "finish_cholesky<%s>" : "fill_nan<%s>", type);
    if (d->task == INVERSE) d->identity = cuda_request(s, "linalg", "identity<%s>", type);
    if (d->task == SOLVE) d->transpose = cuda_request(s, "linalg", "transpose<%s>", type);
    bool has_all = d->finish && (d->identity || d->task != INVERSE) && (d->transpose || d->task != SOLVE);
    return has_all ? TU_OK : TU_NO_MEMORY;
}

static tu_status lower_large(tu__selection *s, const tu__node *node, const systems *y, task task_kind) {
    static const char *const names[] = {
        [INVERSE] = "inverse (cuSOLVER)", [SOLVE] = "solve (cuSOLVER)", [CHOLESKY] = "cholesky (cuSOLVER)"};
    if (y->n > INT_MAX / y->n || y->k > INT_MAX / y->n) return TU_UNSUPPORTED; /* cuSOLVER uses int */
    large_data plan = {.systems = *y, .task = task_kind, .solver = cuda_solver(cuda_of(s))};
    if (!plan.solver) return TU_NOT_FOUND;
    TU_TRY(query_workspace(&plan));
    TU_TRY(request_functions(s, &plan));
    tu__kernel *k = tu__kernel_new(s, node, names[task_kind], run_large);
    large_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = plan;
    assign_workspace(k, d);
    cuda_forbid_capture(s);
    return add_operands(k, node, task_kind == SOLVE ? 1 : 0);
}

tu_status cuda_lower_inverse(tu__selection *s, const tu__node *node) {
    systems y = systems_of(s, node);
    return is_small(cuda_of(s), &y) ? lower_small_solve(s, node, &y) : lower_large(s, node, &y, INVERSE);
}

tu_status cuda_lower_solve(tu__selection *s, const tu__node *node) {
    systems y = systems_of(s, node);
    return is_small(cuda_of(s), &y) ? lower_small_solve(s, node, &y) : lower_large(s, node, &y, SOLVE);
}

tu_status cuda_lower_cholesky(tu__selection *s, const tu__node *node) {
    systems y = systems_of(s, node);
    return is_small(cuda_of(s), &y) ? lower_small_cholesky(s, node, &y) : lower_large(s, node, &y, CHOLESKY);
}

/* ---- Triangular systems ---- */

/* A step either solves rows first … first + rows - 1, or subtracts the contribution of solved rows from others. */
typedef struct triangular_step {
    cuda_gemm_plan *plan; /* NULL: a solve step */
    int64_t first, rows;
    int64_t a, solved, unsolved; /* element offsets of the matrices */
} triangular_step;

typedef struct triangular_data {
    systems systems;
    bool transpose, is_lower;
    const cuda_function *function;
    int64_t step_count;
    triangular_step *steps;
} triangular_data;

enum { BLOCK_ROWS = 64, BLOCK_COLUMNS = 32 }; /* as in kernels/linalg.cu */

static tu_status run_solve_step(const tu__kernel *k, const triangular_step *step) {
    const triangular_data *d = k->data;
    const systems *y = &d->systems;
    substitute_args a = {.a = k->in[0],
                         .x = k->out[0],
                         .n = y->n,
                         .rhs_count = y->k,
                         .first = step->first,
                         .rows = (int)step->rows,
                         .transpose = d->transpose,
                         .is_lower = d->is_lower};
    cuda_grid grid = {
        {(unsigned)y->count, min_blocks(divide_up(y->k, BLOCK_COLUMNS), MAX_BLOCKS)}, THREADS, 0};
    return cuda_launch(k, d->function, grid, &a);
}

static tu_status run_matmul_step(const tu__kernel *k, const triangular_step *step) {
    size_t element = element_bytes(&((const triangular_data *)k->data)->systems);
    char *x = k->out[0];
    return cuda_gemm_run(k, step->plan,
                         &(cuda_gemm_operands){.a = (const char *)k->in[0] + (size_t)step->a * element,
                                               .b = x + (size_t)step->solved * element,
                                               .out = x + (size_t)step->unsolved * element,
                                               .workspace = k->workspace});
}

static tu_status run_triangular(const tu__kernel *k) {
    const triangular_data *d = k->data;
    if (k->out[0] != k->in[1])
        TU_TRY(cuda_copy(k, k->out[0], k->in[1], (size_t)d->systems.count * rhs_bytes(&d->systems)));
    for (int64_t i = 0; i < d->step_count; i++)
        TU_TRY(d->steps[i].plan ? run_matmul_step(k, &d->steps[i]) : run_solve_step(k, &d->steps[i]));
    return TU_OK;
}

static void release_triangular(void *data) {
    triangular_data *d = data;
    for (int64_t i = 0; i < d->step_count; i++) cuda_gemm_plan_free(d->steps[i].plan);
}

/* Adds the step x[unsolved] -= op(a)[unsolved, solved] x[solved]; both are ranges of rows. */
static tu_status add_matmul_step(tu__kernel *k, int64_t solved, int64_t solved_rows, int64_t unsolved,
                                 int64_t unsolved_rows) {
    triangular_data *d = k->data;
    const systems *y = &d->systems;
    triangular_step *step = &d->steps[d->step_count];
    step->a = d->transpose ? solved * y->n + unsolved : unsolved * y->n + solved;
    step->solved = solved * y->k;
    step->unsolved = unsolved * y->k;
    cuda_gemm g = {.m = unsolved_rows,
                   .n = y->k,
                   .k = solved_rows,
                   .transpose_a = d->transpose,
                   .a_row_stride = y->n,
                   .b_row_stride = y->k,
                   .out_row_stride = y->k,
                   .batch = y->count,
                   .a_batch_stride = y->n * y->n,
                   .b_batch_stride = y->n * y->k,
                   .out_batch_stride = y->n * y->k,
                   .offset_bytes = (size_t)(step->a | step->solved | step->unsolved) * element_bytes(y),
                   .dtype = y->dtype,
                   .subtract = true,
                   .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    TU_TRY(cuda_gemm_plan_new(cuda_of(k), &g, &step->plan));
    d->step_count++;
    size_t workspace = cuda_gemm_workspace(step->plan);
    if (workspace > k->workspace_bytes) k->workspace_bytes = workspace;
    return TU_OK;
}

/* Halves are multiples of a block, so that most matrix products have one of a few sizes. */
static tu_status add_steps(tu__kernel *k, int64_t first, int64_t rows) {
    triangular_data *d = k->data;
    if (rows <= BLOCK_ROWS) {
        d->steps[d->step_count++] = (triangular_step){.first = first, .rows = rows};
        return TU_OK;
    }
    int64_t upper = (divide_up(rows, BLOCK_ROWS) + 1) / 2 * BLOCK_ROWS, lower = rows - upper;
    int64_t middle = first + upper;
    if (d->is_lower) {
        TU_TRY(add_steps(k, first, upper));
        TU_TRY(add_matmul_step(k, first, upper, middle, lower));
        return add_steps(k, middle, lower);
    }
    TU_TRY(add_steps(k, middle, lower));
    TU_TRY(add_matmul_step(k, middle, lower, first, upper));
    return add_steps(k, first, upper);
}

tu_status cuda_lower_triangular_solve(tu__selection *s, const tu__node *node) {
    const struct tu__triangular_solve_attrs *attrs = tu__attrs(node, triangular_solve);
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_triangular);
    triangular_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    k->release = release_triangular;
    d->systems = systems_of(s, node);
    if (d->systems.count > INT_MAX) return TU_UNSUPPORTED; /* limit of blocks in a grid */
    d->transpose = attrs->transpose;
    d->is_lower = !attrs->upper == !attrs->transpose;
    /* One step per block, and one matrix product between any two. */
    size_t max_steps = 2 * (size_t)divide_up(d->systems.n, BLOCK_ROWS);
    d->steps = tu__arena_alloc(&s->arena, max_steps * sizeof *d->steps);
    d->function = cuda_request(s, "linalg", "substitute<%s>", cuda_type(d->systems.dtype));
    if (!d->steps || !d->function) return TU_NO_MEMORY;
    TU_TRY(add_steps(k, 0, d->systems.n));
    return add_operands(k, node, 1);
}
