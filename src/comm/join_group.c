/* Joining and leaving a process group. See process_group.h.
 *
 * The communication thread initialises MPI, compares the builds of all processes, gathers where they are and starts the
 * monitor. After each of these the processes exchange the outcome, so that all fail alike. It also ends MPI. MPI knows no
 * deadlines, so the caller's thread watches the communication thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/build_id.h"
#include "base/clock.h"
#include "base/flushing.h"
#include "base/shared_library.h"
#include "base/sized.h"
#include "base/start_thread.h"
#include "base/time_slice.h"
#include "comm/binding.h"
#include "comm/launcher.h"
#include "comm/monitor.h"
#include "comm/process_group.h"
#include "device/device.h"

enum {
    DEFAULT_TIMEOUT = 60,
    STARTING = 60, /* seconds that all processes have to start, in addition to the timeout */
};

/* ---- Joining ---- */

static tu_status load_transport(const tu__transport_api **api) {
    static const char file[] = "libtutti_mpi.so";
    char path[1024];
    if (!tu__bundled_plugin(file, sizeof path, path))
        return tu_fail(
            TU_NOT_FOUND,
            "this process was started by mpirun or srun as one of several, but %s is not installed with "
            "Tutti: install the package tutti-mpi, or build Tutti with Open MPI (Debian: libopenmpi-dev)",
            file);
    void *library = tu__shared_library_open(path); /* never unloaded: MPI does not support it */
    if (!library)
        return tu_fail(TU_NOT_FOUND,
                       "%s: install the Open MPI with which Tutti was built (Debian: libopenmpi3)",
                       tu__shared_library_error());
    tu__transport_plugin entry;
    *(void **)&entry = dlsym(library, "tu_transport_plugin");
    if (!entry)
        return tu_fail(TU_INVALID, "'%s' is not Tutti's transport: it does not export tu_transport_plugin",
                       path);
    *api = entry();
    if (strcmp((*api)->version, tu_version()) == 0) return TU_OK;
    return tu_fail(TU_INVALID, "'%s' is of version %s, libtutti.so of version %s: expected the same", path,
                   (*api)->version, tu_version());
}

/* For the monitor, which calls it on the communication thread. */
static tu_status gather_for_monitor(void *context, const void *mine, size_t bytes, void *all) {
    return tu__group_gather_now(context, mine, bytes, all);
}

/* MPI that was not built for the launcher takes every process for one that is alone. */
static tu_status check_group_size(tu_process_group *g) {
    tu__launch launch = tu__launch_read();
    if (g->info.size != launch.size)
        return tu_fail(
            TU_INVALID,
            "%s has started %u processes, but %s finds %u of them: use the mpirun of that library, or "
            "srun --mpi=pmix",
            launch.launcher, launch.size, g->info.library, g->info.size);
    if (g->info.size <= TU__MAX_PROCESSES) return TU_OK;
    tu_fail(TU_UNSUPPORTED, "a group of %u processes: expected at most %d", g->info.size, TU__MAX_PROCESSES);
    return tu__group_disagree(g, TU_UNSUPPORTED);
}

/* The first bytes that processes exchange. They never change, so that any two versions can compare them. */
typedef struct build_card {
    char version[32], build[72], library[64], host[64];
} build_card;

static tu_status compare_cards(tu_process_group *g, uint32_t rank, const build_card *card,
                               const build_card *first) {
    if (strcmp(card->version, first->version) != 0 || strcmp(card->build, first->build) != 0)
        tu_fail(
            TU_INVALID,
            "rank %u on host '%.63s' runs another build of Tutti (version %.31s, build %.12s) than rank 0 on "
            "host '%.63s' (version %.31s, build %.12s): install the same on all hosts",
            rank, card->host, card->version, card->build, first->host, first->version, first->build);
    else if (strcmp(card->library, first->library) != 0)
        tu_fail(
            TU_INVALID,
            "rank %u on host '%.63s' uses %.63s, rank 0 on host '%.63s' %.63s: install the same MPI on all hosts",
            rank, card->host, card->library, first->host, first->library);
    else
        return TU_OK;
    return tu__group_disagree(g, TU_INVALID);
}

/* Processes of other builds may exchange other structures, so this comes first. */
static tu_status compare_builds(tu_process_group *g) {
    build_card mine = {{0}, {0}, {0}, {0}}, all[TU__MAX_PROCESSES];
    snprintf(mine.version, sizeof mine.version, "%s", tu_version());
    tu__build_id(tu_version(), mine.build);
    snprintf(mine.library, sizeof mine.library, "%s", g->info.library);
    snprintf(mine.host, sizeof mine.host, "%s", g->info.host);
    TU_TRY(tu__group_gather_now(g, &mine, sizeof mine, all));
    for (uint32_t r = 1; r < g->info.size; r++) TU_TRY(compare_cards(g, r, &all[r], &all[0]));
    return TU_OK;
}

static tu_status gather_processes(tu_process_group *g) {
    tu__process mine = {.host_rank = g->info.host_rank,
                        .first_on_host = g->info.first_on_host,
                        .host_size = g->info.host_size};
    g->processes = tu__alloc_array(g->info.size, sizeof *g->processes, "a process group");
    if (!g->processes) return TU_NO_MEMORY;
    snprintf(mine.host, sizeof mine.host, "%s", g->info.host);
    sched_getaffinity(0, sizeof mine.cores, &mine.cores);
    return tu__group_gather_now(g, &mine, sizeof mine, g->processes);
}

static tu_status start_monitor(tu_process_group *g) {
    return tu__monitor_start(&(tu__monitor_options){.rank = g->info.rank,
                                                    .size = g->info.size,
                                                    .host = g->info.host,
                                                    .device = "",
                                                    .interface = g->interface,
                                                    .timeout = g->timeout,
                                                    .gather = gather_for_monitor,
                                                    .gather_context = g,
                                                    .on_failure = tu__group_hear_of_failure,
                                                    .failure_context = g},
                             &g->monitor);
}

static tu_status join(tu_process_group *g) {
    TU_TRY(g->api->open(&g->transport, &g->info));
    TU_TRY(check_group_size(g));
    g->deadline = tu__now() + g->timeout + STARTING;
    TU_TRY(compare_builds(g));
    TU_TRY(gather_processes(g));
    TU_TRY(tu__group_agree_now(g, tu__group_choose_nodes(g)));
    return tu__group_agree_now(g, start_monitor(g));
}

static void set_closing(tu_process_group *g, bool is_closing) {
    if (!g->monitor) return;
    if (is_closing)
        tu__group_enter(g, tu__group_number(g, 1), "MPI_Finalize");
    else
        tu__group_leave(g);
    pthread_mutex_lock(&g->lock);
    g->is_closing = is_closing;
    pthread_mutex_unlock(&g->lock);
}

/* Ends MPI, which waits for all processes without a deadline, while the monitor still watches. If a process is lost, it
 * is left out. */
static void leave(tu_process_group *g) {
    if (g->transport && !atomic_load(&g->failed)) {
        set_closing(g, true);
        g->api->close(g->transport);
        set_closing(g, false);
    }
    if (g->monitor) tu__monitor_stop(g->monitor);
}

/* The start of the communication thread. On the heap: a thread that is stuck in MPI keeps it. */
typedef struct opening {
    tu_process_group *group;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    tu_status status;
    bool is_common; /* all processes have failed, with this message */
    char message[1024];
} opening;

static opening *new_opening(tu_process_group *g) {
    pthread_condattr_t monotonic;
    opening *o = tu__alloc(sizeof *o, "a process group");
    if (!o) return NULL;
    o->group = g;
    pthread_mutex_init(&o->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&o->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return o;
}

static void free_opening(opening *o) {
    pthread_cond_destroy(&o->done);
    pthread_mutex_destroy(&o->lock);
    tu__free(o);
}

static void report_opened(opening *o, tu_status status) {
    pthread_mutex_lock(&o->lock);
    o->status = status;
    o->is_common = o->group->disagreement != TU_OK;
    if (status != TU_OK) snprintf(o->message, sizeof o->message, "%s", tu_message());
    o->is_done = true;
    pthread_cond_signal(&o->done);
    pthread_mutex_unlock(&o->lock);
}

static void free_group(tu_process_group *g) {
    tu__free(g->processes);
    tu__free(g->areas);
    tu__free_aligned(g->receive_buffers);
    pthread_cond_destroy(&g->wakeup);
    pthread_mutex_destroy(&g->lock);
    tu__free(g);
}

/* If the group cannot be joined, the caller learns it before the thread leaves MPI: mpirun ends all processes once one
 * of them has ended with an error, perhaps before another one could print it. */
static void *communicate(void *argument) {
    opening *o = argument;
    tu_process_group *g = o->group;
    tu_status status = join(g);
    report_opened(o, status); /* `o` is not used any more */
    if (status == TU_OK) {
        tu__set_flushing(TU__FLUSH_ALL); /* as the threads of a CPU do when they add */
        tu__request_short_time_slices();
        tu__group_run_jobs(g);
    }
    leave(g);
    if (status != TU_OK) free_group(g);
    return NULL;
}

/* Waits until the thread has joined the group. False if it has not in time. */
static bool wait_opened(opening *o, double deadline) {
    struct timespec until = {.tv_sec = (time_t)deadline};
    until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
    int error = 0;
    pthread_mutex_lock(&o->lock);
    while (!o->is_done && error != ETIMEDOUT) error = pthread_cond_timedwait(&o->done, &o->lock, &until);
    bool in_time = o->is_done;
    pthread_mutex_unlock(&o->lock);
    return in_time;
}

static tu_status start_thread(opening *o, pthread_t *thread) {
    int failure = tu__start_thread(thread, communicate, o);
    if (failure == 0) return TU_OK;
    return tu_fail(TU_NO_MEMORY, "cannot start the communication thread: %s", strerror(failure));
}

/* MPI waits without a deadline for processes that do not start, or that it cannot reach. The thread cannot be ended, so
 * it keeps the group. */
static tu_status fail_stuck(double seconds) {
    return tu_fail(
        TU_LOST,
        "MPI has not connected the processes within %g s: one of them does not start, or its host cannot "
        "be reached; with several networks, name one: mpirun --mca btl_tcp_if_include eth0 --mca "
        "oob_tcp_if_include eth0",
        seconds);
}

static bool try_join(pthread_t thread, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(1e9 * seconds);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

/* Set if opening has failed for a reason that all processes know, and this is not the one that prints it. */
static atomic_bool another_prints;

/* The thread of a group that could not be joined. The process must not end before it has left MPI. */
static pthread_t leaving;

static void wait_until_left(void) {
    const double patience = 5;
    try_join(leaving, patience);
}

/* Adds rank and host to a failure that this process alone knows. */
static tu_status name_process(tu_status status) {
    char host[64] = "", message[1024];
    gethostname(host, sizeof host - 1);
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(status, "rank %u on host '%s': %s", tu__launch_read().rank, host, message);
}

/* Waits for the communication thread. If it fails to join, it frees the group, perhaps before this function sees it;
 * if it is stuck, it keeps all it has. */
static tu_status await_opened(tu_process_group *g, opening *o, pthread_t thread, double seconds) {
    if (!wait_opened(o, tu__now() + seconds)) return name_process(fail_stuck(seconds));
    tu_status status = o->status;
    bool is_common = o->is_common;
    if (status != TU_OK) tu_fail(status, "%s", o->message);
    free_opening(o);
    if (status == TU_OK) {
        g->thread = thread;
        return TU_OK;
    }
    leaving = thread;
    atexit(wait_until_left);
    atomic_store(&another_prints, is_common && tu__launch_read().rank != 0);
    return is_common ? status : name_process(status);
}

/* Starts the communication thread and waits until it has joined the group. If it cannot, it frees the group. */
static tu_status open_group(tu_process_group *g) {
    pthread_t thread = 0;
    double seconds =
        g->timeout + STARTING + 5; /* longer than the thread's own deadline, whose message is better */
    opening *o = new_opening(g);
    tu_status status = o ? start_thread(o, &thread) : TU_NO_MEMORY;
    if (status == TU_OK) return await_opened(g, o, thread, seconds);
    if (o) free_opening(o);
    free_group(g);
    return status;
}

static tu_status prepare(const tu__transport_api **api) {
    tu__launch launch = tu__launch_read();
    if (!launch.connects) {
        atomic_store(&another_prints, launch.rank != 0);
        return tu_fail(
            TU_INVALID,
            "%s has started %u processes without PMIx, which MPI needs to connect them: expected srun "
            "--mpi=pmix, or --independent for separate trainings",
            launch.launcher, launch.size);
    }
    TU_TRY(load_transport(api));
    tu__undo_default_binding();
    return TU_OK;
}

bool tu_process_group_prints(const tu_process_group *g) {
    return g ? g->info.rank == 0 : !atomic_load(&another_prints);
}

static tu_process_group *new_group(const tu_process_group_options *o, const tu__transport_api *api) {
    tu_process_group *g = tu__alloc(sizeof *g, "a process group");
    if (!g) return NULL;
    g->api = api;
    g->timeout = o->timeout > 0 ? o->timeout : DEFAULT_TIMEOUT;
    g->interface = o->interface;
    g->on_failure = o->on_failure;
    g->failure_context = o->context;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->wakeup, NULL);
    return g;
}

tu_status tu_process_group_open_with(tu_process_group **group, const tu_process_group_options *options) {
    TU__OPTIONS(tu_process_group_options, o, options);
    const tu__transport_api *api = NULL;
    if (o.timeout < 0)
        return tu_fail(TU_INVALID, "process group: timeout %g: expected a number of seconds", o.timeout);
    tu_status status = prepare(&api);
    if (status != TU_OK) return name_process(status);
    tu_process_group *g = new_group(&o, api);
    if (!g) return TU_NO_MEMORY;
    TU_TRY(open_group(g));
    *group = g;
    return TU_OK;
}

/* Waits until the communication thread has ended. After the deadline of a collective the monitor says who is late. False
 * if the thread is stuck. */
static bool join_thread(tu_process_group *g) {
    const double patience = 6, interval = 0.1; /* longer than the monitor takes */
    double deadline = tu__now() + g->timeout;
    while (!try_join(g->thread, interval)) {
        double now = tu__now();
        if (atomic_load(&g->failed) && now < deadline) deadline = now;
        if (now > deadline + patience) return false;
        pthread_mutex_lock(&g->lock);
        if (now > deadline && g->is_closing) tu__monitor_timed_out(g->monitor);
        pthread_mutex_unlock(&g->lock);
    }
    return true;
}

void tu_process_group_close(tu_process_group *g) {
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_signal(&g->wakeup);
    pthread_mutex_unlock(&g->lock);
    if (join_thread(g)) free_group(g); /* otherwise the thread keeps the group */
}
