/* Monitors of real processes: which rank is blamed when a process is killed, stopped, late or fails.
 *
 * Delays only give heartbeats time to arrive; no test asserts that something is fast. */
#include "comm/monitor.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "forked_ranks.h"

enum { ENDED_IN_CALLBACK = 7 };

/* ---- In the processes ---- */

static void end_on_failure(void *context, tu_status cause, const char *message) {
    process *p = context;
    char copy[LINE];
    expect(tu__monitor_failure(p->monitor, copy, sizeof copy) && strcmp(copy, message) == 0);
    expect(cause == (strstr(message, " failed after step ") ? TU_NO_MEMORY : TU_LOST)); /* as in one_fails */
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
                                   .on_failure = p->polls ? NULL : end_on_failure,
                                   .failure_context = p};
    return tu__monitor_start(&options, &p->monitor);
}

static void start(process *p) {
    expect(try_start(p) == TU_OK);
    tu__monitor_set_step(p->monitor, 41);
    atomic_fetch_add(&p->shared->running, 1);
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

/* All but one wait in the same collective; when they are told to, all report that it has timed out. */
static void wait_for_special_rank(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 6, "broadcast");
    tu__monitor_leave(p->monitor);
    if (p->rank != p->special) tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank != p->special) tu__monitor_timed_out(p->monitor);
    wait_for_the_end(p);
}

static void one_is_late(process *p) {
    start(p);
    if (p->rank != p->special) tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank == 1) tu__monitor_timed_out(p->monitor);
    wait_for_the_end(p);
}

static void all_wait(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank == p->special) tu__monitor_timed_out(p->monitor);
    wait_for_the_end(p);
}

static void one_fails(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    wait_for_go(p);
    if (p->rank != p->special) wait_for_the_end(p);
    char line[LINE];
    tu__monitor_fail(p->monitor, TU_NO_MEMORY, "out of memory:\ncannot allocate 12 bytes");
    expect(tu__monitor_failure(p->monitor, line, sizeof line));
    keep_line(p, line);
    tu__monitor_stop(p->monitor);
    _exit(ENDED_IN_CALLBACK);
}

/* All but one have begun their first step, and wait for it. */
static void wait_for_a_rank_that_prepares(process *p) {
    expect(try_start(p) == TU_OK);
    atomic_fetch_add(&p->shared->running, 1);
    if (p->rank != p->special) {
        tu__monitor_set_begun(p->monitor);
        tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    }
    wait_for_go(p);
    if (p->rank != p->special) tu__monitor_timed_out(p->monitor);
}

static void expect_no_failure(process *p) {
    char line[LINE] = "";
    if (tu__monitor_failure(p->monitor, line, sizeof line)) keep_line(p, line);
    expect(line[0] == '\0');
}

/* Ranks say goodbye one after the other, the special one first. */
static void end_in_turn(process *p) {
    start(p);
    if (p->rank != p->special) pause_for(0.3 * (1 + p->rank));
    expect_no_failure(p);
    tu__monitor_stop(p->monitor);
    expect(tu__alloc_live() == 0);
}

/* The special rank says goodbye first; the others go on until they are told to end. */
static void end_after_special_rank(process *p) {
    start(p);
    if (p->rank != p->special) wait_for_go(p);
    expect_no_failure(p);
    tu__monitor_stop(p->monitor);
}

/* Without on_failure: polls for the verdict, then frees everything. */
static void poll_for_failure(process *p) {
    char line[LINE];
    p->polls = true;
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_reduce of 'dense/weights/grad' and 3 more");
    while (!tu__monitor_failure(p->monitor, line, sizeof line)) pause_for(1e-2);
    keep_line(p, line);
    tu__monitor_stop(p->monitor);
    expect(tu__alloc_live() == 0);
    _exit(ENDED_IN_CALLBACK);
}

static void one_prepares(process *p) {
    wait_for_a_rank_that_prepares(p);
    expect(tu__monitor_is_preparing(p->monitor));
    pause_for(2.5);
    expect_no_failure(p);
    tu__monitor_stop(p->monitor);
}

static void one_prepares_and_is_stopped(process *p) {
    wait_for_a_rank_that_prepares(p);
    wait_for_the_end(p);
}

static void collective_completes_after_all(process *p) {
    start(p);
    tu__monitor_enter(p->monitor, 7, "all_gather of 'x'");
    if (p->rank == p->special) {
        tu__monitor_timed_out(p->monitor);
        tu__monitor_timed_out(p->monitor);
        tu__monitor_leave(p->monitor);
    }
    pause_for(2.5);
    expect_no_failure(p);
    tu__monitor_stop(p->monitor);
}

/* The others have completed a collective, in which one still receives values over a slow network. */
static void one_makes_progress(process *p) {
    enum { MOMENTS = 35 }; /* longer than the timeout */
    bool is_slow = p->rank == p->special;
    start(p);
    tu__monitor_enter(p->monitor, 7, "broadcast");
    if (!is_slow) tu__monitor_leave(p->monitor);
    if (!is_slow) tu__monitor_enter(p->monitor, 8, "all_gather of 'x'");
    for (int i = 0; i < MOMENTS; i += atomic_load(&p->shared->go)) {
        if (is_slow) tu__monitor_progress(p->monitor);
        if (!is_slow && atomic_load(&p->shared->go)) tu__monitor_timed_out(p->monitor);
        pause_for(0.1);
    }
    expect_no_failure(p);
    if (!is_slow) expect(tu__monitor_is_excused(p->monitor) && !tu__monitor_is_preparing(p->monitor));
    wait_for_the_end(p);
}

/* Rank 0 leaves and ends; another rank still waits for it in a collective. */
static void hub_leaves(process *p) {
    start(p);
    if (p->rank == 0) {
        tu__monitor_stop(p->monitor);
        expect(!"a verdict");
    }
    tu__monitor_enter(p->monitor, 9, "all_gather of 'x'");
    wait_for_go(p);
    expect_no_failure(p);
    tu__monitor_timed_out(p->monitor);
    wait_for_the_end(p);
}

/* All others say goodbye. */
static void one_is_stopped_at_the_end(process *p) {
    start(p);
    wait_for_go(p);
    if (p->rank == p->special) wait_for_the_end(p);
    tu__monitor_stop(p->monitor);
    expect(!"a verdict");
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
    const tu__monitor_endpoint *hub = &p->shared->endpoints[0];
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

static void the_verdict_can_be_polled_for(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(3, 0, poll_for_failure);
    wait_until_running(groups, 2);
    kill_one(&groups[0], 0);
    kill_one(&groups[1], 2);
    assert_killed_rank_is_named(&groups[0], "ranks 1-2: 41");
    assert_killed_rank_is_named(&groups[1], "ranks 0-1: 41");
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
        assert_contains(g, r, "it is needed in collective 7, all_gather of 'x', in which rank ");
    }
    kill(g->pids[victim], SIGCONT);
    assert_exit_code(g, victim, ENDED_IN_CALLBACK);
    assert_contains(g, victim, "the other processes have excluded this one: ");
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
             "reached collective 7, all_gather of 'x', in which rank 1 has made no progress for ",
             late, late / 2, late);
    for (uint32_t r = 0; r < g->size; r++) {
        assert_exit_code(g, r, ENDED_IN_CALLBACK);
        assert_contains(g, r, expected);
        assert_contains(g, r, " s (timeout 2 s); last steps: ");
    }
    assert_contains(g, late, "the other processes have excluded this one: rank ");
    end_group(g);
}

static void a_rank_that_makes_progress_is_late_when_it_stops(void **state) {
    (void)state;
    char expected[LINE];
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(3, 2 * i, one_makes_progress);
    wait_until_running(groups, 2);
    for (uint32_t i = 0; i < 2; i++) let_go(&groups[i]);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(
            expected, sizeof expected,
            "rank %u (host node%u, device cpu:%u) is late: alive, still in collective 7, broadcast, after step 41; "
            "it has not reached collective 8, all_gather of 'x', in which rank ",
            2 * i, i, 2 * i);
        for (uint32_t r = 0; r < 3; r++) {
            assert_exit_code(&groups[i], r, ENDED_IN_CALLBACK);
            assert_contains(&groups[i], r, expected);
        }
        end_group(&groups[i]);
    }
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
    for (uint32_t timed_out = 0; timed_out < 2; timed_out++)
        groups[timed_out] = start_group(3, timed_out, all_wait);
    wait_until_running(groups, 2);
    for (uint32_t timed_out = 0; timed_out < 2; timed_out++) let_go(&groups[timed_out]);
    for (uint32_t timed_out = 0; timed_out < 2; timed_out++) {
        group *g = &groups[timed_out];
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

static void a_rank_may_die_after_its_goodbye(void **state) {
    (void)state;
    static const uint32_t killed[2] = {0, 2};
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(3, killed[i], end_after_special_rank);
    wait_until_running(groups, 2);
    for (uint32_t i = 0; i < 2; i++) {
        kill(groups[i].pids[killed[i]], SIGKILL);
        assert_killed(&groups[i], killed[i]);
    }
    pause_for(1);
    for (uint32_t i = 0; i < 2; i++) atomic_store(&groups[i].shared->go, true);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t r = 0; r < 3; r++)
            if (r != killed[i]) assert_exit_code(&groups[i], r, 0);
    for (uint32_t i = 0; i < 2; i++) end_group(&groups[i]);
}

static void waiting_for_a_rank_that_has_ended_in_an_orderly_way_fails(void **state) {
    (void)state;
    group g = start_group(3, 0, hub_leaves);
    wait_until_running(&g, 1);
    let_go(&g);
    for (uint32_t r = 0; r < 3; r++) {
        assert_exit_code(&g, r, ENDED_IN_CALLBACK);
        assert_contains(&g, r,
                        "rank 0 (host node0, device cpu:0) has finished after step 41 and will not reach "
                        "collective 9, all_gather of 'x', in which rank");
    }
    end_group(&g);
}

static void a_rank_that_is_stopped_before_its_goodbye_is_silent(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(3, i, one_is_stopped_at_the_end);
    wait_until_running(groups, 2);
    for (uint32_t i = 0; i < 2; i++) kill(groups[i].pids[i], SIGSTOP);
    for (uint32_t i = 0; i < 2; i++) atomic_store(&groups[i].shared->go, true);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t r = 0; r < 3; r++) {
            if (r == i) continue;
            assert_exit_code(&groups[i], r, ENDED_IN_CALLBACK);
            assert_contains(&groups[i], r, "is unreachable; the others have finished; last steps: rank");
        }
        kill(groups[i].pids[i], SIGKILL);
        assert_killed(&groups[i], i);
        end_group(&groups[i]);
    }
}

static void no_verdict_if_the_collective_completes_after_all(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(2, i, collective_completes_after_all);
    for (uint32_t i = 0; i < 2; i++) assert_succeeds(&groups[i]);
}

static void a_rank_before_its_first_step_is_not_late(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(3, i, one_prepares);
    wait_until_running(groups, 2);
    for (uint32_t i = 0; i < 2; i++) atomic_store(&groups[i].shared->go, true);
    for (uint32_t i = 0; i < 2; i++) assert_succeeds(&groups[i]);
}

static void a_rank_that_is_stopped_before_its_first_step_is_silent(void **state) {
    (void)state;
    group groups[2];
    for (uint32_t i = 0; i < 2; i++) groups[i] = start_group(3, i, one_prepares_and_is_stopped);
    wait_until_running(groups, 2);
    for (uint32_t i = 0; i < 2; i++) kill(groups[i].pids[i], SIGSTOP);
    pause_for(0.5);
    for (uint32_t i = 0; i < 2; i++) let_go(&groups[i]);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t r = 0; r < 3; r++) {
            if (r == i) continue;
            assert_exit_code(&groups[i], r, ENDED_IN_CALLBACK);
            assert_contains(&groups[i], r,
                            "(last heard before its first step, computing): the process is stopped");
        }
        kill(groups[i].pids[i], SIGKILL);
        assert_killed(&groups[i], i);
        end_group(&groups[i]);
    }
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
        cmocka_unit_test(a_rank_that_makes_progress_is_late_when_it_stops),
        cmocka_unit_test(every_survivor_names_a_killed_rank),
        cmocka_unit_test(sixteen_ranks_name_a_killed_rank),
        cmocka_unit_test(the_verdict_can_be_polled_for),
        cmocka_unit_test(a_stopped_rank_is_silent_and_learns_it_when_it_continues),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(if_no_rank_is_late_the_network_is_named),
        cmocka_unit_test(a_failing_rank_tells_all_others_why),
        cmocka_unit_test(ranks_may_say_goodbye_at_different_times),
        cmocka_unit_test(a_rank_may_die_after_its_goodbye),
        cmocka_unit_test(waiting_for_a_rank_that_has_ended_in_an_orderly_way_fails),
        cmocka_unit_test(a_rank_that_is_stopped_before_its_goodbye_is_silent),
        cmocka_unit_test(no_verdict_if_the_collective_completes_after_all),
        cmocka_unit_test(a_rank_before_its_first_step_is_not_late),
        cmocka_unit_test(a_rank_that_is_stopped_before_its_first_step_is_silent),
        cmocka_unit_test(strangers_are_ignored),
        cmocka_unit_test(one_interface_can_be_chosen),
        cmocka_unit_test(an_unknown_interface_is_an_error_on_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
