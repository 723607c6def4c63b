/* Arguments of kernels/linalg.cu, set by linalg.c. Matrices are row-major and dense unless a row stride is given. */

/* Solves a [n, n] x = b [n, k] for each matrix of a batch (blockIdx.x); blockIdx.y selects `columns` right-hand
 * sides. */
typedef struct solve_args {
    const void *a, *b; /* b NULL: the identity */
    void *x;
    int n, columns, width; /* width: row length in shared memory */
    long long k;
} solve_args;

typedef struct cholesky_args {
    const void *a;
    void *l;
    int n, width;
} cholesky_args;

/* Solves op(a) x = x for `rows` rows from `first` on, for every matrix of a batch (blockIdx.x). */
typedef struct substitute_args {
    const void *a;
    void *x;
    long long n, k, first;
    int rows;
    int transpose; /* a^T instead of a */
    int downwards; /* op(a) is a lower triangle */
} substitute_args;

typedef struct transposed_args {
    const void *from; /* [rows, columns] */
    void *to;         /* [columns, rows] */
    long long rows, columns;
} transposed_args;

/* *info is cuSOLVER's status of the matrix: not 0 if the factorisation failed. */
typedef struct square_args {
    void *x;
    const int *info;
    long long n, count;
} square_args;
