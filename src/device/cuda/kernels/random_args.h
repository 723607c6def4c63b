/* As tu__distribution of src/base/draw.h. */
enum { DRAW_UNIFORM, DRAW_NORMAL, DRAW_TRUNCATED_NORMAL, DRAW_BERNOULLI };

/* y[sample, element]: four elements are drawn from one block of random words. */
typedef struct draw_args {
    const long long *ordinals; /* of the samples */
    void *y;
    long long blocks; /* of all samples */
    extent each;      /* blocks per sample */
    long long row;    /* elements per sample */
    unsigned key[2];
    double a, b;        /* mean and standard deviation; uniform: low end and width */
    unsigned threshold; /* Bernoulli: 1 if a number of 24 random bits is below it */
} draw_args;
