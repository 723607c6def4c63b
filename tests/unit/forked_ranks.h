/* Tests of several processes: forks the ranks of a group and collects what they were told.
 *
 *     static void body(process *p) { … }                        // runs in each forked process, which then exits with 0
 *     group g = start_group(4, 2, body);                        // 4 ranks, of which rank 2 has a special role
 *     wait_until_running(&g, 1);
 *     let_go(&g);                                               // wait_for_go returns in the processes
 *     for (uint32_t r = 0; r < 4; r++) assert_exit_code(&g, r, 0);
 *     end_group(&g);
 *
 * The processes share a block of memory, through which they exchange the endpoints of their monitors and return a line. */
#ifndef TUTTI_FORKED_RANKS_H
#define TUTTI_FORKED_RANKS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/monitor_endpoint.h"
#include "test.h"

enum { MAX_RANKS = 16, LINE = 1100 };

typedef struct shared {
    atomic_uint arrived, running;
    atomic_bool go;
    atomic_bool has_line[MAX_RANKS];
    char line[MAX_RANKS][LINE];
    double at[MAX_RANKS]; /* when the line arrived */
    tu__monitor_endpoint endpoints[MAX_RANKS];
} shared;

typedef struct process process;
struct process {
    uint32_t rank, size, special;
    shared *shared;
    tu__monitor *monitor;
    const char *interface;
    void (*after_gather)(process *p);
    bool polls; /* calls tu__monitor_failure instead of having an on_failure */
};

static inline void pause_for(double seconds) {
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

/* For tu__monitor_options. */
static inline tu_status gather(void *context, const void *mine, size_t bytes, void *all) {
    process *p = context;
    expect(bytes == sizeof *p->shared->endpoints);
    memcpy(&p->shared->endpoints[p->rank], mine, bytes);
    atomic_fetch_add(&p->shared->arrived, 1);
    while (atomic_load(&p->shared->arrived) < p->size) pause_for(1e-3);
    memcpy(all, p->shared->endpoints, p->size * bytes);
    if (p->after_gather) p->after_gather(p);
    return TU_OK;
}

/* Keeps what the process was told, for the test. */
static inline void keep_line(process *p, const char *line) {
    p->shared->at[p->rank] = tu__now();
    snprintf(p->shared->line[p->rank], LINE, "%s", line);
    atomic_store(&p->shared->has_line[p->rank], true);
}

static inline void wait_for_go(process *p) {
    while (!atomic_load(&p->shared->go)) pause_for(1e-2);
}

/* ---- In the test ---- */

typedef struct group {
    uint32_t size, special;
    double caused; /* when the test did what it is about; 0: not */
    pid_t pids[MAX_RANKS];
    shared *shared;
} group;

static inline group start_group(uint32_t size, uint32_t special, void (*body)(process *p)) {
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
static inline void wait_until_running(const group *groups, uint32_t count) {
    for (const group *g = groups; g < groups + count; g++) {
        for (int i = 0; i < 3000 && atomic_load(&g->shared->running) < g->size; i++) pause_for(1e-2);
        assert_int_equal(atomic_load(&g->shared->running), g->size);
    }
    pause_for(1);
}

static inline void let_go(group *g) {
    g->caused = tu__now();
    atomic_store(&g->shared->go, true);
}

static inline void assert_exit_code(const group *g, uint32_t rank, int code) {
    int status;
    assert_int_equal(waitpid(g->pids[rank], &status, 0), g->pids[rank]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("rank %u: wait status 0x%x, expected exit code %d", rank, (unsigned)status, code);
}

static inline void assert_killed(const group *g, uint32_t rank) {
    int status;
    assert_int_equal(waitpid(g->pids[rank], &status, 0), g->pids[rank]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static inline const char *line_of(const group *g, uint32_t rank) {
    if (!atomic_load(&g->shared->has_line[rank])) fail_msg("on_failure was not called on rank %u", rank);
    return g->shared->line[rank];
}

static inline void assert_contains(const group *g, uint32_t rank, const char *part) {
    if (!strstr(line_of(g, rank), part))
        fail_msg("rank %u: \"%s\" does not contain \"%s\"", rank, line_of(g, rank), part);
}

/* Ends a test of a group, and prints how long the slowest rank took from the cause to the verdict. */
static inline void end_group(group *g) {
    double last = 0;
    for (uint32_t r = 0; r < g->size; r++)
        if (r != g->special && g->shared->at[r] > last) last = g->shared->at[r];
    if (g->caused > 0) print_message("    %u ranks: verdict after %.2f s\n", g->size, last - g->caused);
    munmap(g->shared, sizeof *g->shared);
}

#endif
