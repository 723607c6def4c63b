/* What linalg.c hands to kernels/linalg.cu. Matrices are row-major and dense unless a distance of rows is named. */

/* a [n, n] x = b [n, k] for each matrix of a batch, one along blockIdx.x; blockIdx.y says which `columns` right
 * sides. */
typedef struct solve_args {
    const void *a, *b; /* b NULL: the identity */
    void *x;
    int n, columns, width; /* width: of a row in shared memory */
    long long k;
} solve_args;

typedef struct cholesky_args {
    const void *a;
    void *l;
    int n, width;
} cholesky_args;

/* op(a) x = x for the rows from `first` on, `rows` of them, of every matrix of a batch (blockIdx.x). */
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

/* What cuSOLVER says of a matrix is in *info: not 0, it cannot be used. */
typedef struct square_args {
    void *x;
    const int *info;
    long long n, count;
} square_args;
