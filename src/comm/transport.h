/* The interface between a process group and the plug-in that carries its bytes: libtutti_mpi.so (comm/mpi).
 *
 * All functions are called by one thread, the group's communication thread. Those that begin something return at once;
 * `test` says when it is done. So the group can watch deadlines, which MPI does not have. Only `open`, `share` and
 * `close` wait for the other processes. */
#ifndef TU__COMM_TRANSPORT_H
#define TU__COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

typedef struct tu__transport tu__transport;
typedef struct tu__transfer tu__transfer; /* a message or a gather that was begun */

typedef struct tu__transport_info {
    uint32_t rank, size;
    uint32_t host_rank, host_size; /* among the processes that can share memory */
    uint32_t first_on_host;        /* the lowest rank on this host */
    char host[64];                 /* its name */
    char library[64];              /* "Open MPI 4.1.4" */
} tu__transport_info;

typedef struct tu__transport_api {
    const char *version; /* of Tutti: must be the same */
    tu_status (*open)(tu__transport **transport, tu__transport_info *info);
    /* Leaves the group; all processes must. */
    void (*close)(tu__transport *transport);
    /* Allocates zeroed, page-aligned memory that all processes of the host share, the same number of bytes for each, and sets
     * `areas` to the address of each one's in this process, by host_rank. */
    tu_status (*share)(tu__transport *transport, size_t bytes, void **areas);
    /* Gives every process the `bytes` at `mine` of all processes, in the order of ranks. */
    tu_status (*gather)(tu__transport *transport, const void *mine, size_t bytes, void *all,
                        tu__transfer **transfer);
    /* Messages between two ranks with the same tag arrive in order. */
    tu_status (*send)(tu__transport *transport, uint32_t to, int tag, const void *data, size_t bytes,
                      tu__transfer **transfer);
    tu_status (*receive)(tu__transport *transport, uint32_t from, int tag, void *data, size_t bytes,
                         tu__transfer **transfer);
    /* Sets `*done`; then the transfer is freed. */
    tu_status (*test)(tu__transport *transport, tu__transfer *transfer, bool *done);
} tu__transport_api;

/* The function that the plug-in exports: `tu_transport_plugin`. */
typedef const tu__transport_api *(*tu__transport_plugin)(void);

#endif
