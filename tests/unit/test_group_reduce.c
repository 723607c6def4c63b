/* Tests of sums and gathers over the processes of a group: the ranks are threads of this process, the transport is a list of messages,
 * and every result must have the bits of the pairwise sum in the order of ranks, first within nodes, then over them. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/parallel.h"
#include "comm/comm.h"
#include "comm/group_reduce.h"
#include "unit/memory_transport.h"

enum { MAX_SEGMENTS = 3, GUARD = 64 };

/* ---- Groups ---- */

/* What is added: values of several segments on all ranks. */
typedef struct values {
    tu_dtype dtype;
    uint32_t segment_count;
    size_t counts[MAX_SEGMENTS];
} values;

typedef struct rank {
    tu_process_group group;
    tu__transport transport;
    const values *values;
    unsigned char *data[MAX_SEGMENTS];
    tu_combine_segment segments[MAX_SEGMENTS];
    const void *in[MAX_SEGMENTS];
    void *out[MAX_SEGMENTS];
    tu_combination what;
    uint32_t parts, rounds; /* how it computes */
    pthread_t thread;
    tu_status status;
    char message[256];
} rank;

typedef struct setup {
    uint32_t ranks, host_size, cores;
    rank *rank;
    tu__shared_area *areas[MAX_RANKS];
    tu__process processes[MAX_RANKS];
} setup;

static void create(setup *s, uint32_t hosts, uint32_t host_size, uint32_t cores) {
    *s = (setup){.ranks = hosts * host_size, .host_size = host_size, .cores = cores};
    s->rank = calloc(s->ranks, sizeof *s->rank);
    assert_non_null(s->rank);
    for (uint32_t r = 0; r < s->ranks; r++) {
        s->processes[r] = describe_process(r, host_size, cores);
        s->areas[r] = new_area();
    }
    for (uint32_t r = 0; r < s->ranks; r++)
        begin_process(&s->rank[r].group, &s->rank[r].transport, r, s->ranks, host_size, s->areas,
                      s->processes);
}

static void destroy(setup *s) {
    for (uint32_t r = 0; r < s->ranks; r++) {
        end_process(&s->rank[r].group);
        free_area(s->areas[r]);
    }
    assert_null(mail.first);
    free(s->rank);
}

static double element_of(const values *v, uint32_t segment, uint32_t r, size_t i) {
    size_t number = (i * 31 + segment * 7 + r * 13) % 101;
    return tu__round_to(v->dtype, (double)number / 7 - 6);
}

static tu_status load(void *context, const tu_combination *what, const tu__segment_range *range, void *sum) {
    (void)context;
    size_t size = tu_dtype_size(what->dtype);
    memcpy(sum, (const char *)what->segments[range->segment].in[0] + range->first * size,
           range->count * size);
    return TU_OK;
}

static tu_status store(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum) {
    (void)context;
    size_t size = tu_dtype_size(what->dtype);
    memcpy((char *)what->segments[range->segment].out[0] + range->first * size, sum, range->count * size);
    return TU_OK;
}

static void fill(rank *k, const values *v) {
    size_t size = tu_dtype_size(v->dtype);
    k->values = v;
    for (uint32_t i = 0; i < v->segment_count; i++) {
        size_t bytes = v->counts[i] * size;
        k->data[i] = aligned_alloc(64, (bytes + GUARD + 63) & ~(size_t)63);
        assert_non_null(k->data[i]);
        memset(k->data[i], 0xa5, bytes + GUARD);
        for (size_t e = 0; e < v->counts[i]; e++)
            tu__store(v->dtype, k->data[i], (int64_t)e, element_of(v, i, k->group.info.rank, e));
        k->in[i] = k->out[i] = k->data[i];
        k->segments[i] = (tu_combine_segment){&k->in[i], &k->out[i], v->counts[i]};
    }
    k->what = (tu_combination){
        sizeof k->what,         v->dtype, .in_count = 1, .out_count = 1, .segment_count = v->segment_count,
        .segments = k->segments};
}

/* ---- The expected sum ---- */

static double expected_of(const values *v, uint32_t segment, size_t i, uint32_t first, uint32_t end) {
    uint32_t half = 1;
    if (end - first == 1) return element_of(v, segment, first, i);
    while (2 * half < end - first) half *= 2;
    double left = expected_of(v, segment, i, first, first + half),
           right = expected_of(v, segment, i, first + half, end);
    return v->dtype == TU_F64 ? left + right : (double)((float)left + (float)right);
}

/* Adds the sums of nodes, each rounded, pairwise. */
static double expected_of_nodes(const values *v, uint32_t segment, size_t i, uint32_t node_size,
                                uint32_t first, uint32_t end) {
    uint32_t half = 1;
    if (end - first == 1)
        return tu__round_to(v->dtype, expected_of(v, segment, i, first * node_size, end * node_size));
    while (2 * half < end - first) half *= 2;
    double left = expected_of_nodes(v, segment, i, node_size, first, first + half),
           right = expected_of_nodes(v, segment, i, node_size, first + half, end);
    return v->dtype == TU_F64 ? left + right : (double)((float)left + (float)right);
}

static void check(const setup *s, const values *v) {
    const tu_process_group *g = &s->rank->group;
    size_t size = tu_dtype_size(v->dtype);
    for (uint32_t segment = 0; segment < v->segment_count; segment++)
        for (size_t i = 0; i < v->counts[segment]; i++) {
            double sum = expected_of_nodes(v, segment, i, g->node_size, 0, g->node_count);
            char expected[8];
            tu__store(v->dtype, expected, 0, sum);
            for (uint32_t r = 0; r < s->ranks; r++)
                if (memcmp(s->rank[r].data[segment] + i * size, expected, size) != 0)
                    fail_msg(
                        "%u hosts of %u ranks, rank %u, segment %u of %zu %s: element %zu is %.9g instead of %.9g",
                        s->ranks / s->host_size, s->host_size, r, segment, v->counts[segment],
                        tu_dtype_name(v->dtype), i, tu__load(v->dtype, s->rank[r].data[segment], (int64_t)i),
                        sum);
        }
    for (uint32_t segment = 0; segment < v->segment_count; segment++)
        for (uint32_t r = 0; r < s->ranks; r++)
            for (size_t i = 0; i < GUARD; i++)
                assert_int_equal(s->rank[r].data[segment][v->counts[segment] * size + i], 0xa5);
}

/* ---- Adding ---- */

typedef struct part {
    rank *rank;
    uint32_t index;
    tu_status status;
    pthread_t thread;
} part;

static tu__group_work sum_of(const rank *k) {
    return (tu__group_work){.what = &k->what, .load = load, .store = store};
}

static void *run_part(void *argument) {
    part *p = argument;
    double waited = 0;
    const tu__group_work sum = sum_of(p->rank);
    p->status = tu__group_perform_part(&p->rank->group, &sum, p->index, p->rank->parts, &waited);
    assert_true(waited >= 0);
    return NULL;
}

/* Adds with one thread per part; or, if `parts` is 0, all with two threads of a parallel loop. */
static void *run_rank(void *argument) {
    rank *k = argument;
    part parts[TU__MAX_LANES];
    if (k->parts) {
        for (uint32_t i = 0; i < k->parts; i++) {
            parts[i] = (part){.rank = k, .index = i};
            assert_int_equal(pthread_create(&parts[i].thread, NULL, run_part, &parts[i]), 0);
        }
        for (uint32_t i = 0; i < k->parts; i++) {
            pthread_join(parts[i].thread, NULL);
            if (parts[i].status != TU_OK) k->status = parts[i].status;
        }
        return NULL;
    }
    tu__parallel_setting before = tu__parallel_begin(2);
    const tu__group_work sum = sum_of(k);
    k->status = tu__group_perform(&k->group, &sum);
    if (k->status != TU_OK) snprintf(k->message, sizeof k->message, "%s", tu_message());
    tu__parallel_end(before);
    return NULL;
}

static void add_and_check(setup *s, const values *v) {
    for (uint32_t r = 0; r < s->ranks; r++) fill(&s->rank[r], v);
    for (uint32_t r = 0; r < s->ranks; r++)
        assert_int_equal(pthread_create(&s->rank[r].thread, NULL, run_rank, &s->rank[r]), 0);
    for (uint32_t r = 0; r < s->ranks; r++) pthread_join(s->rank[r].thread, NULL);
    for (uint32_t r = 0; r < s->ranks; r++) assert_int_equal(s->rank[r].status, TU_OK);
    check(s, v);
    for (uint32_t r = 0; r < s->ranks; r++)
        for (uint32_t i = 0; i < v->segment_count; i++) free(s->rank[r].data[i]);
}

/* Sums of several sizes, one after another in the same group, as in steps. */
static void check_sizes(setup *s) {
    static const values all[] = {
        {TU_F32, 1, {1}},
        {TU_F32, 3, {17, 0, 5}},
        {TU_BF16, 2, {33, 5000}},
        {TU_F32, 1, {100003}},
        {TU_F64, 2, {70001, 3}},
        {TU_F16, 1, {4097}},
        {TU_F32, 3, {300000, 1, 200001}},
        {TU_F32, 1, {64}},
        {TU_BF16, 1, {400000}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) add_and_check(s, &all[i]);
}

static void sums_of_one_host_are_pairwise(void **state) {
    (void)state;
    setup s;
    for (uint32_t ranks = 1; ranks <= 5; ranks++) {
        create(&s, 1, ranks, ranks == 3 ? 1 : 4);
        assert_true(tu__group_adds_in_memory(&s.rank->group));
        check_sizes(&s);
        destroy(&s);
    }
}

static void sums_of_hosts_are_pairwise(void **state) {
    (void)state;
    static const uint32_t shapes[][2] = {{2, 1}, {3, 1}, {2, 2}, {4, 2}};
    setup s;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        create(&s, shapes[i][0], shapes[i][1], 2);
        assert_false(tu__group_adds_in_memory(&s.rank->group));
        check_sizes(&s);
        destroy(&s);
    }
}

/* The timeout is for the next message, not for the sum of 8 MiB. */
static void a_sum_may_take_longer_than_the_timeout_while_messages_arrive(void **state) {
    (void)state;
    const double timeout = 2;
    static const values v = {TU_F32, 1, {2 << 20}};
    setup s;
    create(&s, 2, 1, 1);
    for (uint32_t r = 0; r < s.ranks; r++) {
        s.rank[r].group.timeout = timeout;
        s.rank[r].group.deadline = tu__now() + timeout;
    }
    mail.interval = 30e-3;
    double began = tu__now();
    add_and_check(&s, &v);
    assert_true(tu__now() - began > timeout); /* otherwise the test shows nothing */
    mail.interval = mail.next = 0;
    destroy(&s);
}

/* 3 ranks per host: adding by host would change the order of additions, so every rank is a node. */
static void hosts_whose_ranks_are_no_power_of_two_exchange_messages(void **state) {
    (void)state;
    setup s;
    create(&s, 2, 3, 1);
    assert_int_equal(s.rank[4].group.node_count, 6);
    assert_int_equal(s.rank[4].group.node, 4);
    check_sizes(&s);
    destroy(&s);
}

static void processes_may_use_different_numbers_of_threads(void **state) {
    (void)state;
    setup s;
    create(&s, 1, 4, TU__MAX_LANES);
    for (uint32_t r = 0; r < s.ranks; r++) s.rank[r].parts = r;
    check_sizes(&s);
    s.rank[2].parts = TU__MAX_LANES;
    check_sizes(&s);
    destroy(&s);
}

/* Every node sends its part of the sum to the others, and receives theirs. */
static void bf16_halves_the_bytes_between_hosts(void **state) {
    (void)state;
    static const values f32 = {TU_F32, 1, {1 << 18}}, bf16 = {TU_BF16, 1, {1 << 18}};
    setup s;
    create(&s, 2, 1, 1);
    mail.sent_bytes = 0;
    add_and_check(&s, &f32);
    assert_int_equal(mail.sent_bytes, 2 * sizeof(float) * (1 << 18));
    mail.sent_bytes = 0;
    add_and_check(&s, &bf16);
    assert_int_equal(mail.sent_bytes, sizeof(float) * (1 << 18));
    destroy(&s);
}

/* Two messages after each other would take twice as long. */
static void hosts_send_small_sums_to_all_others_at_once(void **state) {
    (void)state;
    static const values small = {TU_F32, 1, {256}}, large = {TU_F32, 1, {3 << 16}};
    const size_t hosts = 3;
    setup s;
    create(&s, (uint32_t)hosts, 1, 1);
    mail.sent_bytes = 0;
    add_and_check(&s, &small);
    assert_int_equal(mail.sent_bytes, hosts * (hosts - 1) * 256 * sizeof(float));
    mail.sent_bytes = 0;
    add_and_check(&s, &large);
    assert_int_equal(mail.sent_bytes, 2 * (hosts - 1) * (3 << 16) * sizeof(float));
    destroy(&s);
}

typedef struct gather_work {
    tu_process_group *group;
    pthread_t thread;
    uint32_t wrong; /* number of results that were not those of this gather */
} gather_work;

static uint64_t gathered_number(uint32_t r, uint32_t round) {
    return (uint64_t)round << 32 | r;
}

static void *gather_often(void *argument) {
    enum { ROUNDS = 500, NUMBERS = TU__GATHER_BYTES / sizeof(uint64_t) };
    gather_work *w = argument;
    uint64_t mine[NUMBERS], all[MAX_RANKS][NUMBERS];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < NUMBERS; i++) mine[i] = gathered_number(w->group->info.rank, round);
        if (tu__group_gather_in_memory(w->group, mine, sizeof mine, all) != TU_OK) w->wrong++;
        for (uint32_t r = 0; r < w->group->info.size; r++)
            w->wrong +=
                all[r][0] != gathered_number(r, round) || all[r][NUMBERS - 1] != gathered_number(r, round);
    }
    return NULL;
}

static void gathers_in_memory_follow_each_other(void **state) {
    (void)state;
    setup s;
    gather_work work[3];
    create(&s, 1, 3, 1);
    for (uint32_t r = 0; r < s.ranks; r++) {
        s.rank[r].group.timeout = 100;
        work[r] = (gather_work){.group = &s.rank[r].group};
        assert_int_equal(pthread_create(&work[r].thread, NULL, gather_often, &work[r]), 0);
    }
    for (uint32_t r = 0; r < s.ranks; r++) pthread_join(work[r].thread, NULL);
    for (uint32_t r = 0; r < s.ranks; r++) assert_int_equal(work[r].wrong, 0);
    destroy(&s);
}

/* A rank that waits for one that never comes fails when the group does. */
static void waiting_ends_when_the_group_fails(void **state) {
    (void)state;
    static const values v = {TU_F32, 1, {1000}};
    setup s;
    create(&s, 1, 2, 2);
    rank *k = &s.rank[0];
    fill(k, &v);
    assert_int_equal(pthread_create(&k->thread, NULL, run_rank, k), 0);
    struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&k->group.lock);
    snprintf(k->group.message, sizeof k->group.message, "rank 1 ended");
    atomic_store(&k->group.failed, true);
    pthread_mutex_unlock(&k->group.lock);
    pthread_join(k->thread, NULL);
    assert_int_equal(k->status, TU_LOST);
    assert_string_equal(k->message, "rank 1 ended");
    free(k->data[0]);
    destroy(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_one_host_are_pairwise),
        cmocka_unit_test(sums_of_hosts_are_pairwise),
        cmocka_unit_test(a_sum_may_take_longer_than_the_timeout_while_messages_arrive),
        cmocka_unit_test(hosts_whose_ranks_are_no_power_of_two_exchange_messages),
        cmocka_unit_test(processes_may_use_different_numbers_of_threads),
        cmocka_unit_test(bf16_halves_the_bytes_between_hosts),
        cmocka_unit_test(hosts_send_small_sums_to_all_others_at_once),
        cmocka_unit_test(gathers_in_memory_follow_each_other),
        cmocka_unit_test(waiting_ends_when_the_group_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
