/* Slots that steps take their inputs from and leave their results in. Word sizes are 16, 8, 4, 2 or 1 bytes: the widest
 * of which the bytes copied, the distance between slots and, for tables, the bytes of a row are multiples. A feed or
 * fetch has fewer than 2^31 words. */

enum { RING_MOST = 8 }; /* feeds or fetches of one launch */

/* In the device's memory, both 0 before the first step of a repetition. A launch that reads one of them writes the
 * other alone. */
typedef struct ring_count {
    unsigned next; /* the step that ring_in is to begin: set by ring_out */
    unsigned now;  /* the step under way: set by ring_in */
} ring_count;

typedef struct ring_feed {
    void *to;
    const void *from;      /* slots; with `rows`: a table */
    const long long *rows; /* slots of row numbers, or NULL */
    long long stride;      /* from slot to slot: words of `from`, or row numbers of `rows` */
    long long end;         /* words of this feed and of all before it */
    divider row;           /* words of a row of the table */
    unsigned slots;        /* step s finds its slot at s mod slots; 1: the same for all */
    int word;              /* bytes */
} ring_feed;

typedef struct ring_in_args {
    ring_count *count;
    long long words; /* of all feeds */
    int feeds;
    ring_feed feed[RING_MOST];
} ring_in_args;

typedef struct ring_fetch {
    const void *from;
    void *to;         /* slots */
    long long stride; /* from slot to slot, in words */
    long long end;    /* words of this fetch and of all before it */
    unsigned slots;
    int word; /* bytes */
} ring_fetch;

typedef struct ring_out_args {
    ring_count *count;
    long long words; /* of all fetches */
    int fetches;
    ring_fetch fetch[RING_MOST];
} ring_out_args;
