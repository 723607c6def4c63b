/* As tu__distribution of src/base/draw.h. */
enum { DRAW_UNIFORM, DRAW_NORMAL, DRAW_TRUNCATED_NORMAL, DRAW_BERNOULLI };

/* y[sample, element]: four elements are generated from one block of random words. */
typedef struct draw_args {
    const long long *ordinals; /* per sample */
    void *y;
    long long blocks; /* number of random blocks of all samples */
    extent blocks_per_sample;
    long long elements_per_sample;
    unsigned key[2];
    double a, b;        /* mean and standard deviation; uniform: low end and width */
    unsigned threshold; /* Bernoulli: 1 if a number of 24 random bits is below it */
} draw_args;

/* The numbers of several networks: `draw.ordinals` per sample of all of them. */
typedef struct draw_members_args {
    draw_args draw;                  /* without key, a, b and threshold */
    const unsigned long long *seeds; /* per network, like a and b, which are those of the distribution */
    const double *a, *b;
    extent samples_per_member;
    unsigned long long operation;
} draw_members_args;
