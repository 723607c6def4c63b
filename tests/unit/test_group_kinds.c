/* Tests of all kinds of collectives over the processes of a group: the processes are threads, with one local rank or
 * several. test_group_reduce.c has more about sums. */
#include "comm/group_reduce.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "comm/comm.h"
#include "comm/communicator.h"
#include "test.h"
#include "unit/memory_transport.h"

enum { MAX_LOCAL = 3, VALUES = 2, REPEATS = 3 };

/* ---- A collective ---- */

typedef struct collective {
    tu__collective_kind kind;
    tu_dtype dtype;
    uint32_t size, node_size;        /* processes, of all nodes and of one */
    uint32_t local_ranks[MAX_RANKS]; /* per process */
    uint32_t first_rank[MAX_RANKS + 1];
    uint32_t root;           /* a rank */
    size_t elements[VALUES]; /* of a rank's input */
    bool in_place;
} collective;

typedef struct process {
    const collective *what;
    uint32_t rank;
    tu_process_group group;
    tu__transport transport;
    tu__communicator communicator;
    char *in[MAX_LOCAL][VALUES], *out[MAX_LOCAL][VALUES];
    char message[256]; /* of a failure */
} process;

static uint32_t all_ranks(const collective *c) {
    return c->first_rank[c->size];
}

static uint32_t process_of(const collective *c, uint32_t rank) {
    uint32_t found = 0;
    while (c->first_rank[found + 1] <= rank) found++;
    return found;
}

static tu_status load(void *context, const tu_combination *what, const tu__segment_range *range, void *sum) {
    (void)context;
    const void *in[MAX_LOCAL];
    for (uint32_t k = 0; k < what->in_count; k++)
        in[k] =
            (const char *)what->segments[range->segment].in[k] + range->first * tu_dtype_size(what->dtype);
    tu__local_add(what->dtype, what->in_count, in, range->count, sum);
    return TU_OK;
}

static tu_status store(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum) {
    (void)context;
    size_t size = tu_dtype_size(what->dtype);
    for (uint32_t k = 0; k < what->out_count; k++)
        memcpy((char *)what->segments[range->segment].out[k] + range->first * size, sum, range->count * size);
    return TU_OK;
}

static tu__collective_kind kind_of_portion(tu__collective_kind kind) {
    return kind == TU__REDUCE_SCATTER ? TU__REDUCE : kind == TU__ALL_GATHER ? TU__BROADCAST : kind;
}

static tu_status perform(process *p) {
    const tu__communicator *c = &p->communicator;
    for (uint32_t portion = 0; portion < tu__communicator_portion_count(c); portion++) {
        tu__group_work work = {.kind = kind_of_portion(c->kind),
                               .root = process_of(p->what, tu__communicator_rank_of_portion(c, portion)),
                               .load = load,
                               .store = store};
        for (uint32_t i = 0; i < c->combination_count; i++) {
            work.what = &tu__communicator_of_rank(c, portion)[i];
            TU_TRY(tu__group_perform(&p->group, &work));
        }
    }
    return TU_OK;
}

static void *run_process(void *context) {
    process *p = context;
    /* The second one finds the staging buffers in use; without in_place all are equal. */
    for (int i = 0; i < (p->what->in_place ? 1 : REPEATS); i++)
        if (perform(p) != TU_OK) snprintf(p->message, sizeof p->message, "%s", tu_message());
    return NULL;
}

/* ---- Inputs and expected results ---- */

static double input_of(const collective *c, uint32_t rank, uint32_t value, size_t element) {
    double x = (double)((rank * 7919 + value * 104729 + element * 31) % 1009) / 63 - 8;
    return tu__round_to(c->dtype, tu_dtype_is_float(c->dtype) ? x : (double)(int)x);
}

static size_t result_elements(const collective *c, uint32_t value) {
    size_t n = c->elements[value];
    return c->kind == TU__REDUCE_SCATTER ? n / all_ranks(c)
           : c->kind == TU__ALL_GATHER   ? n * all_ranks(c)
                                         : n;
}

/* Adds pairwise, and rounds the result as a sum that is sent or stored is. */
static double add(tu_dtype dtype, double *x, uint32_t count) {
    for (; count > 1; count = (count + 1) / 2)
        for (uint32_t k = 0; k < (count + 1) / 2; k++) {
            double sum = 2 * k + 1 < count ? x[2 * k] + x[2 * k + 1] : x[2 * k];
            x[k] = dtype == TU_F64 ? sum : (float)sum;
        }
    return tu__round_to(dtype, x[0]);
}

/* The sum of one element: of the local ranks, then of the processes of a node, then of the nodes. */
static double expected_sum(const collective *c, uint32_t value, size_t element) {
    double of_nodes[MAX_RANKS], of_processes[MAX_RANKS], of_ranks[MAX_LOCAL];
    uint32_t nodes = c->size / c->node_size;
    for (uint32_t node = 0; node < nodes; node++) {
        for (uint32_t i = 0; i < c->node_size; i++) {
            uint32_t p = node * c->node_size + i;
            for (uint32_t r = 0; r < c->local_ranks[p]; r++)
                of_ranks[r] = input_of(c, c->first_rank[p] + r, value, element);
            of_processes[i] = add(c->dtype, of_ranks, c->local_ranks[p]);
        }
        of_nodes[node] = add(c->dtype, of_processes, c->node_size);
    }
    return add(c->dtype, of_nodes, nodes);
}

static double expected(const collective *c, uint32_t rank, uint32_t value, size_t element) {
    size_t n = c->elements[value];
    if (c->kind == TU__BROADCAST) return input_of(c, c->root, value, element);
    if (c->kind == TU__ALL_GATHER) return input_of(c, (uint32_t)(element / n), value, element % n);
    if (c->kind == TU__REDUCE_SCATTER) element += rank * result_elements(c, value);
    return expected_sum(c, value, element);
}

/* ---- Running ---- */

static const char *name_of(const collective *c) {
    static char name[160];
    snprintf(name, sizeof name,
             "%s of %u processes (%u per node), %u ranks, root %u, %s, %zu and %zu elements",
             tu__collective_name(c->kind), c->size, c->node_size, all_ranks(c), c->root,
             tu_dtype_name(c->dtype), c->elements[0], c->elements[1]);
    return name;
}

static void prepare_process(process *p, const collective *c, uint32_t rank, tu__shared_area **areas,
                            tu__process *processes) {
    *p = (process){.what = c, .rank = rank};
    tu_type types[VALUES];
    for (uint32_t v = 0; v < VALUES; v++) types[v] = (tu_type){c->dtype, TU_SHAPE((int64_t)c->elements[v])};
    begin_process(&p->group, &p->transport, rank, c->size, c->node_size, areas, processes);
    assert_int_equal(
        tu__communicator_new(&p->communicator, c->kind, c->root, c->local_ranks[rank], VALUES, types), TU_OK);
    tu__communicator_span(&p->communicator, c->first_rank[rank], all_ranks(c));
    for (uint32_t r = 0; r < c->local_ranks[rank]; r++)
        for (uint32_t v = 0; v < VALUES; v++) {
            size_t size = tu_dtype_size(c->dtype), bytes = result_elements(c, v) * size;
            p->in[r][v] = malloc(c->elements[v] * size);
            p->out[r][v] = c->in_place ? p->in[r][v] : malloc(bytes);
            if (!c->in_place) memset(p->out[r][v], 0x55, bytes);
            for (size_t i = 0; i < c->elements[v]; i++)
                tu__store(c->dtype, p->in[r][v], (int64_t)i, input_of(c, c->first_rank[rank] + r, v, i));
            tu__communicator_register(&p->communicator, r, v, p->in[r][v], p->out[r][v]);
        }
    assert_int_equal(tu__communicator_connect(&p->communicator), TU_OK);
}

static void check_process(const process *p) {
    const collective *c = p->what;
    if (*p->message) fail_msg("%s: %s", name_of(c), p->message);
    for (uint32_t r = 0; r < c->local_ranks[p->rank]; r++)
        for (uint32_t v = 0; v < VALUES; v++) {
            uint32_t rank = c->first_rank[p->rank] + r;
            if (c->kind == TU__REDUCE && rank != c->root) continue;
            for (size_t i = 0; i < result_elements(c, v); i++) {
                double got = tu__load(c->dtype, p->out[r][v], (int64_t)i), wanted = expected(c, rank, v, i);
                if (got != wanted)
                    fail_msg("%s: element %zu of value %u on rank %u is %.9g, expected %.9g", name_of(c), i,
                             v, rank, got, wanted);
            }
        }
}

static void free_process(process *p) {
    for (uint32_t r = 0; r < p->what->local_ranks[p->rank]; r++)
        for (uint32_t v = 0; v < VALUES; v++) {
            if (!p->what->in_place) free(p->out[r][v]);
            free(p->in[r][v]);
        }
    tu__communicator_free(&p->communicator);
    end_process(&p->group);
}

/* Runs a collective and checks the results of all ranks. Returns the bytes that were sent. */
static size_t assert_collective(const collective *c) {
    process *processes = calloc(c->size, sizeof *processes);
    pthread_t threads[MAX_RANKS];
    tu__shared_area *areas[MAX_RANKS];
    tu__process descriptions[MAX_RANKS];
    mail.sent_bytes = 0;
    for (uint32_t p = 0; p < c->size; p++) {
        areas[p] = new_area();
        descriptions[p] = describe_process(p, c->node_size, 1 + p % 2);
    }
    for (uint32_t p = 0; p < c->size; p++) prepare_process(&processes[p], c, p, areas, descriptions);
    for (uint32_t p = 0; p < c->size; p++)
        assert_int_equal(pthread_create(&threads[p], NULL, run_process, &processes[p]), 0);
    for (uint32_t p = 0; p < c->size; p++) pthread_join(threads[p], NULL);
    for (uint32_t p = 0; p < c->size; p++) {
        check_process(&processes[p]);
        free_process(&processes[p]);
        free_area(areas[p]);
    }
    assert_null(mail.first);
    free(processes);
    return mail.sent_bytes;
}

/* Processes with one local rank each, or with different numbers of them. */
static collective new_collective(tu__collective_kind kind, tu_dtype dtype, uint32_t size, uint32_t node_size,
                                 bool has_equal_ranks) {
    collective c = {.kind = kind, .dtype = dtype, .size = size, .node_size = node_size};
    for (uint32_t p = 0; p < size; p++) {
        c.local_ranks[p] = has_equal_ranks ? 1 : 1 + (p * 2 + 1) % MAX_LOCAL;
        c.first_rank[p + 1] = c.first_rank[p] + c.local_ranks[p];
    }
    c.root = all_ranks(&c) / 2;
    return c;
}

static void set_elements(collective *c, size_t first, size_t second) {
    size_t factor = c->kind == TU__REDUCE_SCATTER ? all_ranks(c) : 1;
    c->elements[0] = first * factor;
    c->elements[1] = second * factor;
}

static const struct {
    uint32_t size, node_size;
} layouts[] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {2, 1}, {3, 1}, {4, 1}, {4, 2}, {8, 2}, {8, 4}};

enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static bool is_sum(tu__collective_kind kind) {
    return kind != TU__BROADCAST && kind != TU__ALL_GATHER;
}

/* ---- Tests ---- */

static void every_kind_computes_the_documented_result(void **unused) {
    (void)unused;
    for (int kind = TU__ALL_REDUCE; kind <= TU__REDUCE; kind++)
        for (size_t i = 0; i < LAYOUTS; i++)
            for (int equal = 0; equal < 2; equal++) {
                collective c = new_collective((tu__collective_kind)kind, TU_F32, layouts[i].size,
                                              layouts[i].node_size, equal);
                set_elements(&c, 1, 1); /* less than a line */
                assert_collective(&c);
                set_elements(&c, 37, 1031);
                assert_collective(&c);
            }
}

static void every_type_is_exchanged(void **unused) {
    (void)unused;
    for (int kind = TU__ALL_REDUCE; kind <= TU__REDUCE; kind++)
        for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++) {
            if (is_sum((tu__collective_kind)kind) && !tu_dtype_is_float((tu_dtype)dtype)) continue;
            collective c = new_collective((tu__collective_kind)kind, (tu_dtype)dtype, 4, 2, false);
            set_elements(&c, 5, 301);
            assert_collective(&c);
        }
}

/* More elements than fit the staging buffers. */
static void large_values_are_exchanged_in_pieces(void **unused) {
    (void)unused;
    for (int kind = TU__ALL_REDUCE; kind <= TU__REDUCE; kind++)
        for (size_t i = 3; i < LAYOUTS - 1; i += 2) { /* one host, hosts of one process, hosts of two */
            collective c = new_collective((tu__collective_kind)kind, TU_F32, layouts[i].size,
                                          layouts[i].node_size, true);
            size_t pieces = 21 * TU__PIECE_BYTES / sizeof(float) + 77;
            bool has_rows = kind == TU__REDUCE_SCATTER || kind == TU__ALL_GATHER;
            set_elements(&c, has_rows ? pieces / all_ranks(&c) : pieces, 3);
            assert_collective(&c);
        }
}

/* A variable is the source of a broadcast and its result. */
static void results_may_be_in_the_memory_of_inputs(void **unused) {
    (void)unused;
    static const tu__collective_kind kinds[] = {TU__ALL_REDUCE, TU__BROADCAST, TU__REDUCE};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < LAYOUTS; i++) {
            collective c = new_collective(kinds[k], TU_F32, layouts[i].size, layouts[i].node_size, true);
            c.in_place = true;
            set_elements(&c, 100, 2000);
            assert_collective(&c);
        }
}

static void any_rank_may_be_the_root(void **unused) {
    (void)unused;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < LAYOUTS; i++) {
            collective c = new_collective(k ? TU__BROADCAST : TU__REDUCE, TU_F32, layouts[i].size,
                                          layouts[i].node_size, false);
            set_elements(&c, 19, 333);
            for (c.root = 0; c.root < all_ranks(&c); c.root++) assert_collective(&c);
        }
}

/* Four hosts of one process, each with V bytes. In a broadcast the root sends a part to each of the 3 others, and then
 * every process its part to all but the root and itself: 3/4 + 3/4 + 3 * 2/4. In a sum every process sends a part to each
 * of the 3 others, 4 * 3/4; then 3 send theirs to the root, 3/4, or all to all others, 4 * 3/4. */
static void no_byte_is_sent_twice(void **unused) {
    (void)unused;
    static const struct {
        tu__collective_kind kind;
        double bytes;
    } cases[] = {{TU__BROADCAST, 3}, {TU__REDUCE, 3.75}, {TU__ALL_REDUCE, 6}};
    for (int k = 0; k < 3; k++) {
        collective c = new_collective(cases[k].kind, TU_F32, 4, 1, true);
        set_elements(&c, 1 << 16, 1 << 12);
        double sent = (double)assert_collective(&c) / REPEATS;
        assert_true(sent == cases[k].bytes * ((1 << 16) + (1 << 12)) * sizeof(float));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_computes_the_documented_result),
        cmocka_unit_test(every_type_is_exchanged),
        cmocka_unit_test(large_values_are_exchanged_in_pieces),
        cmocka_unit_test(results_may_be_in_the_memory_of_inputs),
        cmocka_unit_test(any_rank_may_be_the_root),
        cmocka_unit_test(no_byte_is_sent_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
