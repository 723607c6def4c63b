/* Arguments of kernels/sums.cu. */
typedef struct finish_sums_args {
    const void *partial; /* part j of result i is at i * result_stride + j * part_stride */
    void *out;
    long long results, parts, result_stride, part_stride;
    double divisor;
} finish_sums_args;
