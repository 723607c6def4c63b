/* src/base/draw.h's tu__distribution. */
enum { DRAW_UNIFORM, DRAW_NORMAL, DRAW_TRUNCATED_NORMAL, DRAW_BERNOULLI };

/* y[sample, element]: four elements are drawn from one block of random words. */
typedef struct draw_args {
    const long long *ordinals; /* of the samples */
    void *y;
    long long blocks; /* of all samples */
    extent each;      /* blocks of a sample */
    long long row;    /* elements of a sample */
    unsigned key[2];
    double a, b;        /* mean and deviation; uniform: the low end and the width */
    unsigned threshold; /* Bernoulli: of 2^24 equally likely numbers, those below it give 1 */
} draw_args;
