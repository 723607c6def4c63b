/* Process groups: one training on several processes, on one machine or many.
 *
 * mpirun, or Slurm's srun, starts the same program once per rank. Every process opens the group and compiles the same
 * graph for its own devices; the replicas of a program are then the devices of all processes:
 *
 *     tu_process_group *group = NULL;
 *     tu_program *step;
 *     float value;
 *     if (tu_process_group_is_launched()) tu_process_group_open(&group);
 *     tu_compile(g, &step, .fetch = &loss, .fetch_count = 1, .updates = true, .strategy = "mirrored", .group = group);
 *     // Every process runs it. The feeds are the global batch, of which a process reads only the rows of its devices.
 *     tu_run(step, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){&value});
 *     tu_program_free(step);
 *     tu_process_group_close(group);
 *
 * With strategy "central" only process 0 uses the variables of its state; those of the others may be states of a graph
 * without variables, made with the same seed.
 *
 * All processes must compile and run the same programs in the same order. They wait for each other in collectives. If
 * a process ends, fails or is late, all others fail with TU_LOST and a message that names it. */
#ifndef TUTTI_PROCESS_GROUP_H
#define TUTTI_PROCESS_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/graph.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_process_group tu_process_group;

typedef struct tu_process_group_options {
    size_t struct_size;
    double timeout; /* seconds that a collective may take before the group fails; 0: 60 */
    /* The network interface for heartbeats, such as "eth0"; NULL: the first one that reaches rank 0. */
    const char *interface;
    /* Called at most once, in a thread of the group, when the group has failed: other threads may be stuck in a
     * kernel. `cause`: the status with which another process has failed by itself, otherwise TU_LOST. NULL: runs fail with
     * TU_LOST as soon as they notice. */
    void (*on_failure)(void *context, tu_status cause, const char *message);
    void *context; /* passed to on_failure */
} tu_process_group_options;

/* True if this process was started by mpirun or srun as one of several. */
TU_API bool tu_process_group_is_launched(void);

/* Joins the group of all processes that were started together; waits for them. A process opens one group at most
 * once.
 *
 * mpirun by default binds each of two processes to one core, and more to a socket. Opening the group undoes that, so that
 * the processes of a host divide the cores that mpirun may use. It changes nothing if the user has chosen a binding:
 * --bind-to, --cpu-set, --cpu-list, a rank file, or --map-by with PE=n. */
TU_API tu_status tu_process_group_open_with(tu_process_group **group,
                                            const tu_process_group_options *options);
#define tu_process_group_open(group, ...)                                                                    \
    tu_process_group_open_with(group, TU_OPTIONS(tu_process_group_options, __VA_ARGS__))
/* True for the process that prints what all of them have in common: rank 0, and a process alone (NULL). After
 * tu_process_group_open has failed, pass NULL: false if another process has the same message and prints it. */
TU_API bool tu_process_group_prints(const tu_process_group *group);
/* Leaves the group, after all programs that use it are freed. Waits for the other processes as in a collective, unless the
 * group has failed. */
TU_API void tu_process_group_close(tu_process_group *group);

typedef struct tu_process_info {
    size_t struct_size;
    uint32_t rank, size;
    uint32_t host_rank, host_size; /* among the processes of the same host */
    uint32_t core_rank, core_size; /* among those of them that may use the same cores, which they divide */
    const char *host;
    const char *transport; /* "Open MPI 4.1.4" */
} tu_process_info;
/* Describes this process's place in the group. */
TU_API tu_status tu_process_group_describe(const tu_process_group *group, tu_process_info *info);

/* Writes the part of a device list (NULL: "all") that this process uses:
 *
 *     all          the host's GPUs are divided among its processes; without GPUs, the CPU's cores are
 *     gpu:0-7      eight processes on the host: one GPU each; two processes: four each
 *     gpu:0-3/2    four processes: one GPU each, as two logical devices
 *     cpu:0/2      fewer devices than processes: each process gets so many, of equal parts of the device
 *
 * Of a CPU, only processes that may use the same cores get a part (core_size). */
TU_API tu_status tu_process_group_devices(const tu_process_group *group, const char *list, char *devices,
                                          size_t size);

/* Gives every process the `bytes` at `mine` of all processes, in the order of ranks. All processes must call it, with
 * the same number of bytes. */
TU_API tu_status tu_process_group_gather(tu_process_group *group, const void *mine, size_t bytes, void *all);

/* Gives every process the `bytes` at `data` of process `root`. All processes must call it. */
TU_API tu_status tu_process_group_broadcast(tu_process_group *group, uint32_t root, void *data, size_t bytes);

/* Exchanges the outcome of what every process has just done. If one has failed, all fail, with its status and message; it
 * is named, unless all have the same message. All processes must call it, or one of the functions above: after a failure
 * a process can agree, whatever exchange the others are in. No exchange is possible afterwards, so all should end. */
TU_API tu_status tu_process_group_agree(tu_process_group *group, tu_status status);

/* Makes all other processes fail, since this one cannot go on: they learn its status and message. Does nothing if all know
 * from an exchange that they have failed. */
TU_API void tu_process_group_fail(tu_process_group *group, tu_status cause, const char *message);

#ifdef __cplusplus
}
#endif
#endif
