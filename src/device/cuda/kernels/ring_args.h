/* Slots from which steps read inputs and to which they write results. Words are 16, 8, 4, 2 or 1 bytes: the widest
 * that divides the bytes copied, the distance of slots and, for tables, the bytes per row. A feed or fetch has fewer
 * than 2^31 words. */

enum { RING_MAX = 8 }; /* feeds or fetches per launch */

/* In device memory, both 0 before the first step of a multi-step call. A launch writes only the field that it does
 * not read. */
typedef struct ring_counter {
    unsigned next_step;    /* the step that the next ring_in starts: set by ring_out */
    unsigned current_step; /* set by ring_in */
} ring_counter;

typedef struct ring_feed {
    void *to;
    const void *from;      /* slots; with `rows`: a table */
    const long long *rows; /* slots of row indices, or NULL */
    long long stride;      /* between slots: words of `from`, or row indices of `rows` */
    long long end;         /* words of this feed and of all before it */
    fast_divmod row;       /* words per row of the table */
    unsigned slots;        /* step s uses slot s mod slots; 1: the same for all steps */
    int word;              /* bytes per word */
} ring_feed;

typedef struct ring_in_args {
    ring_counter *count;
    long long words; /* of all feeds */
    int feeds;
    ring_feed feed[RING_MAX];
} ring_in_args;

typedef struct ring_fetch {
    const void *from;
    void *to;         /* slots */
    long long stride; /* between slots, in words */
    long long end;    /* words of this fetch and of all before it */
    unsigned slots;
    int word; /* bytes per word */
} ring_fetch;

typedef struct ring_out_args {
    ring_counter *count;
    long long words; /* of all fetches */
    int fetches;
    ring_fetch fetch[RING_MAX];
} ring_out_args;
