/* Arguments of the kernels in attention.cu and attention_portable.cu, set by attention.c. */

typedef struct attention_args {
    const void *x;          /* [batch, time, 3, heads, width] */
    const void *dy;         /* [batch, time, heads, width]; gradient only */
    void *out;              /* y [batch, time, heads, width], or dx, which has the layout of x */
    void *logarithms;       /* [batch, heads, time]; written by the forward kernels */
    const void *centres;    /* [batch, heads, time]: dy . y; gradient only */
    int time, heads, width; /* the kernels with tensor cores are compiled for a width */
    int causal;
    double scale; /* of the scores; above 0 */
} attention_args;

/* centres = the products of dy and y per row of `width` elements. */
typedef struct attention_centres_args {
    const void *y, *dy; /* [batch, time, heads, width] */
    void *centres;      /* [batch, heads, time] */
    long long rows;     /* batch * time * heads */
    int time, heads, width;
} attention_centres_args;
