/* Monitors of real processes: which rank is blamed when a process is killed, stopped, late or fails.
 *
 * The ranks are forked processes that share a block of memory, through which they exchange their cards and return what
 * on_failure was called with. Delays only give heartbeats time to arrive; no test asserts that something is fast. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/monitor.h"
#include "comm/monitor_card.h"
#include "test.h"

enum { MAX_RANKS = 16, LINE = 1100, ENDED_IN_CALLBACK = 7 };

typedef struct shared {
    atomic_uint arrived, running;
    atomic_bool go;
    atomic_bool has_line[MAX_RANKS];
    char line[MAX_RANKS][LINE];
    double at[MAX_RANKS]; /* when the line arrived */
    tu__monitor_card cards[MAX_RANKS];
} shared;

typedef struct process process;
struct process {
    uint32_t rank, size, special;
    shared *shared;
    tu__monitor *monitor;
    const char *interface;
    void (*after_gather)(process *p);
};

static void pause_for(double seconds) {
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* ---- In the processes ---- */

/* A failed expectation in a forked process: cmocka's assertions would run the remaining tests there. */
#define expect(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "rank %u, line %d: %s; %s\n", p->rank, __LINE__, #condition, tu_message());      \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static tu_status gather(void *context, const void *mine, size_t bytes, void *all) {
    process *p = context;
    expect(bytes == sizeof *p->shared->cards);
    memcpy(&p->shared->cards[p->rank], mine, bytes);
    atomic_fetch_add(&p->shared->arrived, 1);
    while (atomic_load(&p->shared->arrived) < p->size) pause_for(1e-3);
    memcpy(all, p->shared->cards, p->size * bytes);
    if (p->after_gather) p->after_gather(p);
    return TU_OK;
}

static void keep_line(process *p, const char *line) {
    p->shared->at[p->rank] = tu__now();
    snprintf(p->shared->line[p->rank], LINE, "%s", line);
    atomic_store(&p->shared->has_line[p->rank], true);
}

static void end_on_failure(void *context, const char *message) {
    process *p = context;
    char copy[LINE];
    expect(tu__monitor_failure(p->monitor, copy, sizeof copy) && strcmp(copy, message) == 0);
    keep_line(p, message);
    _exit(ENDED_IN_CALLBACK);
}

static tu_status try_start(process *p) {
    char host[32], device[32];
    snprintf(host, sizeof host, "node%u", p->rank / 2);
    snprintf(device, sizeof device, "cpu:%u", p->rank);
    tu__monitor_options options = {.rank = p->rank,
                                   .size = p->size,
                                   .host = host,
                                   .device = device,
                                   .interface = p->interface,
                                   .timeout = 2,
                                   .gather = gather,
                                   .gather_context = p,
                                   .on_failure = end_on_failure,
                                   .failure_context = p};
    return tu__monitor_start(&options, &p->monitor);
}

static void start(process *p) {
    expect(try_start(p) == TU_OK);
    tu__monitor_set_step(p->monitor, 41);
    atomic_fetch_add(&p->shared->running, 1);
}

static void wait_for_go(process *p) {
    while (!atomic_load(&p->shared->go)) pause_for(1e-2);
}

static void wait_for_the_end(process *p) {
    pause_for(60);
    expect(!"a verdict");
}

static void wait_in_collective(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_reduce of 'dense/weights/grad' and 3 more");
    wait_for_the_end(p);
}

/* All but one wait in the same collective; when they are told to, all report that it has expired. */
static void wait_for_special_rank(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 6, "broadcast");
    tu__monitor_leave(p->monitor);
    if (p->rank != p->special) tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank != p->special) tu__monitor_expired(p->monitor);
    wait_for_the_end(p);
}

static void one_is_late(process *p) {
    start(p);
    if (p->rank != p->special) tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank == 1) tu__monitor_expired(p->monitor);
    wait_for_the_end(p);
}

static void all_wait(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank == p->special) tu__monitor_expired(p->monitor);
    wait_for_the_end(p);
}

static void one_fails(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank != p->special) wait_for_the_end(p);
    char line[LINE];
    tu__monitor_fail(p->monitor, "out of memory:\ncannot allocate 12 bytes");
    expect(tu__monitor_failure(p->monitor, line, sizeof line));
    keep_line(p, line);
    tu__monitor_stop(p->monitor);
    _exit(ENDED_IN_CALLBACK);
}

static void expect_no_failure(process *p) {
    char line[LINE] = "";
    if (tu__monitor_failure(p->monitor, line, sizeof line)) keep_line(p, line);
    expect(line[0] == '\0');
}

/* Ranks say goodbye one after the other, the special one first. */
static void end_in_turn(process *p) {
    start(p);
    if (p->rank != p->special) pause_for(0.4 * (1 + p->rank));
    expect_no_failure(p);
    tu__monitor_stop(p->monitor);
    expect(tu__alloc_live() == 0);
}

static void collective_completes_after_all(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    if (p->rank == p->special) {
        tu__monitor_expired(p->monitor);
        tu__monitor_expired(p->monitor);
        tu__monitor_leave(p->monitor);
    }
    pause_for(3);
    expect_no_failure(p);
    tu__monitor_stop(p->monitor);
}

/* Rank 0 leaves and ends; another rank still waits for it in a collective. */
static void hub_leaves(process *p) {
    start(p);
    if (p->rank == 0) {
        tu__monitor_stop(p->monitor);
        _exit(ENDED_IN_CALLBACK);
    }
    tu__monitor_enter(p->monitor, 9, "all_gather of 'x'");
    wait_for_go(p);
    expect_no_failure(p);
    tu__monitor_expired(p->monitor);
    wait_for_the_end(p);
}

static void unknown_interface(process *p) {
    if (p->rank == p->special) p->interface = "nope0";
    expect(try_start(p) == TU_INVALID && !p->monitor);
    keep_line(p, tu_message());
    expect(tu__alloc_live() == 0);
}

static void use_loopback(process *p) {
    p->interface = "lo";
    end_in_turn(p);
}

/* ---- Strangers ---- */

/* Connects to the port at which rank 0 listens on 127.0.0.1, and sends something. The connection stays open. */
static void connect_stranger(process *p, const void *bytes, size_t count) {
    const tu__monitor_card *hub = &p->shared->cards[0];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (uint32_t i = 0; i < hub->address_count; i++)
        if (memcmp(hub->addresses[i].bytes, &to.sin_addr, 4) == 0 && !hub->addresses[i].ipv6)
            memcpy(&to.sin_port, (uint8_t[]){hub->addresses[i].port[1], hub->addresses[i].port[0]}, 2);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    expect(to.sin_port != 0 && fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    expect(send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count || count == 0);
}

static void connect_strangers(process *p) {
    uint8_t hello[256], proof[TU__MONITOR_PROOF_BYTES] = {1, 2, 3};
    if (p->rank != 1) return;
    for (int i = 0; i < 100; i++) connect_stranger(p, "GET / HTTP/1.1\r\n\r\n", 18);
    for (uint32_t rank = 0; rank < 10; rank++) {
        tu__monitor_message m = {.type = TU__MONITOR_HELLO, .rank = rank, .size = p->size, .proof = proof};
        size_t bytes = tu__monitor_encode(&m, hello, sizeof hello);
        connect_stranger(p, hello, bytes);
        connect_stranger(p, hello, bytes - 1);
        connect_stranger(p, hello, 0);
    }
}

static void start_among_strangers(process *p) {
    p->after_gather = connect_strangers;
    end_in_turn(p);
}

/* ---- In the test ---- */

typedef struct group {
    uint32_t size, special;
    double caused; /* when the test did what it is about; 0: not */
    pid_t pids[MAX_RANKS];
    shared *shared;
} group;

static group start_group(uint32_t size, uint32_t special, void (*body)(process *p)) {
    group g = {.size = size, .special = special};
    g.shared = mmap(NULL, sizeof *g.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g.shared, MAP_FAILED);
    fflush(stdout);
    for (uint32_t r = 0; r < size; r++) {
        g.pids[r] = fork();
        assert_true(g.pids[r] >= 0);
        if (g.pids[r] > 0) continue;
        alarm(100); /* whatever happens, no process is left behind */
        process p = {.rank = r, .size = size, .special = special, .shared = g.shared};
        body(&p);
        _exit(0);
    }
    return g;
}

/* Waits until all ranks of some groups have started and their heartbeats have arrived. */
static void wait_until_running(const group *groups, uint32_t count) {
    for (const group *g = groups; g < groups + count; g++) {
        for (int i = 0; i < 3000 && atomic_load(&g->shared->running) < g->size; i++) pause_for(1e-2);
        assert_int_equal(atomic_load(&g->shared->running), g->size);
    }
    pause_for(1);
}

static void let_go(group *g) {
    g->caused = tu__now();
    atomic_store(&g->shared->go, true);
}

static void assert_exit_code(const group *g, uint32_t rank, int code) {
    int status;
    assert_int_equal(waitpid(g->pids[rank], &status, 0), g->pids[rank]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("rank %u: wait status 0x%x, expected exit code %d", rank, (unsigned)status, code);
}

static void assert_killed(const group *g, uint32_t rank) {
    int status;
    assert_int_equal(waitpid(g->pids[rank], &status, 0), g->pids[rank]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static const char *line_of(const group *g, uint32_t rank) {
    if (!atomic_load(&g->shared->has_line[rank])) fail_msg("on_failure was not called on rank %u", rank);
    return g->shared->line[rank];
}

static void assert_contains(const group *g, uint32_t rank, const char *part) {
    if (!strstr(line_of(g, rank), part))
        fail_msg("rank %u: \"%s\" does not contain \"%s\"", rank, line_of(g, rank), part);
}

/* Ends a test of a group, and prints how long the slowest rank took from the cause to the verdict. */
static void end_group(group *g) {
    double last = 0;
    for (uint32_t r = 0; r < g->size; r++)
        if (r != g->special && g->shared->at[r] > last) last = g->shared->at[r];
    if (g->caused > 0) print_message("    %u ranks: verdict after %.2f s\n", g->size, last - g->caused);
    munmap(g->shared, sizeof *g->shared);
}

static void kill_one(group *g, uint32_t victim) {
    g->caused = tu__now();
    g->special = victim;
    kill(g->pids[victim], SIGKILL);
    assert_killed(g, victim);
}

static void assert_killed_rank_is_named(group *g, const char *steps) {
    char expected[LINE];
    uint32_t victim = g->special;
    snprintf(expected, sizeof expected,
             "rank %u (host node%u, device cpu:%u) ended unexpectedly after step 41, while in collective 7, "
             "all_reduce of 'dense/weights/grad' and 3 more; last steps: %s",
             victim, victim / 2, victim, steps);
    for (uint32_t r = 0; r < g->size; r++) {
        if (r == victim) continue;
        assert_exit_code(g, r, ENDED_IN_CALLBACK);
        assert_string_equal(line_of(g, r), expected);
    }
    end_group(g);
}

static void every_survivor_names_a_killed_rank(void **state) {
    (void)state;
    static const struct {
        uint32_t size, victim;
        const char *steps;
    } cases[] = {{4, 0, "ranks 1-3: 41"},
                 {4, 1, "rank 0: 41, ranks 2-3: 41"},
                 {4, 2, "ranks 0-1: 41, rank 3: 41"},
                 {4, 3, "ranks 0-2: 41"},
                 {2, 0, "rank 1: 41"},
                 {2, 1, "rank 0: 41"}};
    enum { COUNT = sizeof cases / sizeof *cases };
    group groups[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) groups[i] = start_group(cases[i].size, 0, wait_in_collective);
    wait_until_running(groups, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) kill_one(&groups[i], cases[i].victim);
    for (uint32_t i = 0; i < COUNT; i++) assert_killed_rank_is_named(&groups[i], cases[i].steps);
}

static void sixteen_ranks_name_a_killed_rank(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(16, 0, wait_in_collective);
    wait_until_running(groups, 2);
    kill_one(&groups[0], 0);
    kill_one(&groups[1], 9);
    assert_killed_rank_is_named(&groups[0], "ranks 1-15: 41");
    assert_killed_rank_is_named(&groups[1], "ranks 0-8: 41, ranks 10-15: 41");
}

static void assert_stopped_rank_is_named(group *g) {
    char expected[LINE];
    uint32_t victim = g->special;
    snprintf(expected, sizeof expected, "rank %u (host node%u, device cpu:%u) has not answered for ", victim,
             victim / 2, victim);
    for (uint32_t r = 0; r < g->size; r++) {
        if (r == victim) continue;
        assert_exit_code(g, r, ENDED_IN_CALLBACK);
        assert_ptr_equal(strstr(line_of(g, r), expected), line_of(g, r));
        assert_contains(g, r, "(last heard after step 41, computing)");
        assert_contains(g, r, "it is needed in collective 7, all_gather of 'x', for which rank ");
    }
    kill(g->pids[victim], SIGCONT);
    assert_exit_code(g, victim, ENDED_IN_CALLBACK);
    assert_contains(g, victim, "the other processes have given up this one: ");
    assert_contains(g, victim, expected);
    end_group(g);
}

static void a_stopped_rank_is_silent_and_learns_it_when_it_continues(void **state) {
    (void)state;
    group groups[4];
    for (uint32_t victim = 0; victim < 4; victim++)
        groups[victim] = start_group(4, victim, wait_for_special_rank);
    wait_until_running(groups, 4);
    for (uint32_t victim = 0; victim < 4; victim++) kill(groups[victim].pids[victim], SIGSTOP);
    pause_for(0.5);
    for (uint32_t victim = 0; victim < 4; victim++) let_go(&groups[victim]);
    for (uint32_t victim = 0; victim < 4; victim++) assert_stopped_rank_is_named(&groups[victim]);
}

static void assert_late_rank_is_named(group *g) {
    char expected[LINE];
    uint32_t late = g->special;
    snprintf(expected, sizeof expected,
             "rank %u (host node%u, device cpu:%u) is late: alive, still computing after step 41; it has not "
             "reached collective 7, all_gather of 'x', for which rank 1 has waited ",
             late, late / 2, late);
    for (uint32_t r = 0; r < g->size; r++) {
        assert_exit_code(g, r, ENDED_IN_CALLBACK);
        assert_contains(g, r, expected);
        assert_contains(g, r, " s (timeout 2 s); last steps: ");
    }
    assert_contains(g, late, "the other processes have given up this one: rank ");
    end_group(g);
}

static void a_late_rank_is_named(void **state) {
    (void)state;
    static const uint32_t late[3] = {0, 2, 3};
    group groups[3];
    for (uint32_t i = 0; i < 3; i++) groups[i] = start_group(4, late[i], one_is_late);
    wait_until_running(groups, 3);
    for (uint32_t i = 0; i < 3; i++) let_go(&groups[i]);
    for (uint32_t i = 0; i < 3; i++) assert_late_rank_is_named(&groups[i]);
}

static void if_no_rank_is_late_the_network_is_named(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t expired = 0; expired < 2; expired++) groups[expired] = start_group(3, expired, all_wait);
    wait_until_running(groups, 2);
    for (uint32_t expired = 0; expired < 2; expired++) let_go(&groups[expired]);
    for (uint32_t expired = 0; expired < 2; expired++) {
        group *g = &groups[expired];
        for (uint32_t r = 0; r < 3; r++) assert_exit_code(g, r, ENDED_IN_CALLBACK);
        for (uint32_t r = 0; r < 3; r++) {
            assert_contains(g, r, "all ranks are alive and have reached it: the network");
            assert_string_equal(line_of(g, r), line_of(g, 0));
        }
        end_group(g);
    }
}

static void a_failing_rank_tells_all_others_why(void **state) {
    (void)state;
    static const uint32_t failing[2] = {0, 2};
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(4, failing[i], one_fails);
    wait_until_running(groups, 2);
    for (uint32_t i = 0; i < 2; i++) let_go(&groups[i]);
    for (uint32_t i = 0; i < 2; i++) {
        char expected[LINE];
        snprintf(
            expected, sizeof expected,
            "rank %u (host node%u, device cpu:%u) failed after step 41: out of memory:?cannot allocate 12 "
            "bytes; last steps: ",
            failing[i], failing[i] / 2, failing[i]);
        for (uint32_t r = 0; r < 4; r++) {
            assert_exit_code(&groups[i], r, ENDED_IN_CALLBACK);
            assert_ptr_equal(strstr(line_of(&groups[i], r), expected), line_of(&groups[i], r));
        }
        end_group(&groups[i]);
    }
}

static void assert_succeeds(group *g) {
    for (uint32_t r = 0; r < g->size; r++) assert_exit_code(g, r, 0);
    for (uint32_t r = 0; r < g->size; r++) assert_false(atomic_load(&g->shared->has_line[r]));
    end_group(g);
}

static void ranks_may_say_goodbye_at_different_times(void **state) {
    (void)state;
    group groups[4];
    for (uint32_t first = 0; first < 3; first++) groups[first] = start_group(4, first, end_in_turn);
    groups[3] = start_group(1, 0, end_in_turn);
    for (uint32_t i = 0; i < 4; i++) assert_succeeds(&groups[i]);
}

static void waiting_for_a_rank_that_has_ended_in_an_orderly_way_fails(void **state) {
    (void)state;
    group g = start_group(3, 0, hub_leaves);
    assert_exit_code(&g, 0, ENDED_IN_CALLBACK);
    atomic_store(&g.shared->go, true);
    for (uint32_t r = 1; r < 3; r++) {
        assert_exit_code(&g, r, ENDED_IN_CALLBACK);
        assert_contains(&g, r,
                        "rank 0 (host node0, device cpu:0) has finished after step 41 and will not reach "
                        "collective 9, all_gather of 'x', for which rank");
    }
    end_group(&g);
}

static void no_verdict_if_the_collective_completes_after_all(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(2, i, collective_completes_after_all);
    for (uint32_t i = 0; i < 2; i++) assert_succeeds(&groups[i]);
}

static void strangers_are_ignored(void **state) {
    (void)state;
    group g = start_group(3, 0, start_among_strangers);
    assert_succeeds(&g);
}

static void one_interface_can_be_chosen(void **state) {
    (void)state;
    group g = start_group(3, 0, use_loopback);
    assert_succeeds(&g);
}

static void an_unknown_interface_is_an_error_on_every_rank(void **state) {
    (void)state;
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        char expected[LINE];
        group g = start_group(2, wrong, unknown_interface);
        for (uint32_t r = 0; r < 2; r++) assert_exit_code(&g, r, 0);
        assert_contains(&g, wrong, "no network interface is named 'nope0'; this host has ");
        assert_contains(&g, wrong, "lo");
        assert_ptr_equal(strstr(line_of(&g, wrong), "no network interface"), line_of(&g, wrong));
        snprintf(expected, sizeof expected, "rank %u (host node0, device cpu:%u): %s", wrong, wrong,
                 line_of(&g, wrong));
        assert_string_equal(line_of(&g, 1 - wrong), expected);
        end_group(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_survivor_names_a_killed_rank),
        cmocka_unit_test(sixteen_ranks_name_a_killed_rank),
        cmocka_unit_test(a_stopped_rank_is_silent_and_learns_it_when_it_continues),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(if_no_rank_is_late_the_network_is_named),
        cmocka_unit_test(a_failing_rank_tells_all_others_why),
        cmocka_unit_test(ranks_may_say_goodbye_at_different_times),
        cmocka_unit_test(waiting_for_a_rank_that_has_ended_in_an_orderly_way_fails),
        cmocka_unit_test(no_verdict_if_the_collective_completes_after_all),
        cmocka_unit_test(strangers_are_ignored),
        cmocka_unit_test(one_interface_can_be_chosen),
        cmocka_unit_test(an_unknown_interface_is_an_error_on_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
