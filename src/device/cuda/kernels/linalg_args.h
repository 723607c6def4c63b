/* Arguments of kernels/linalg.cu, set by linalg.c. Matrices are row-major and dense. */

/* Solves a x = b for x; a: [n, n], b and x: [n, rhs_count]. blockIdx.x: the matrix of the batch. blockIdx.y: the
 * right-hand sides, rhs_per_block of them. */
typedef struct solve_args {
    const void *a, *b; /* b NULL: the identity */
    void *x;
    int n, rhs_per_block;
    int shared_ld; /* leading dimension (row length) in shared memory */
    long long rhs_count;
} solve_args;

/* Computes l with l l^T = a; a and l: [n, n]. blockIdx.x: the matrix of the batch. */
typedef struct cholesky_args {
    const void *a;
    void *l;
    int n;
    int shared_ld; /* leading dimension (row length) in shared memory */
} cholesky_args;

/* Solves op(a) z = x and stores z in x, for the rows first to first + rows - 1 of x and the triangle of `a` in these
 * rows and columns; a: [n, n], x: [n, rhs_count]. blockIdx.x: the matrix of the batch. */
typedef struct substitute_args {
    const void *a;
    void *x;
    long long n, rhs_count, first;
    int rows;
    int transpose; /* op(a) is a^T instead of a */
    int is_lower;  /* op(a) is lower triangular */
} substitute_args;

typedef struct transpose_args {
    const void *from; /* [rows, columns] */
    void *to;         /* [columns, rows] */
    long long rows, columns;
} transpose_args;

/* For kernels that write the identity, NaN or zeros to elements of one matrix. */
typedef struct matrix_fill_args {
    void *x;
    const int *info;    /* cuSOLVER's status: not 0 if the factorisation failed. Unused by `identity` */
    long long n, count; /* rows of x; elements of x */
} matrix_fill_args;
