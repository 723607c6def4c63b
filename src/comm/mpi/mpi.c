/* The transport over MPI. See comm/transport.h.
 *
 * Nothing here chooses an order of additions or waits with a deadline: the process group does. Errors of MPI are
 * returned, not fatal. If the caller has initialised MPI already, it is used as it is, and not finalised. */
#include <mpi.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "comm/transport.h"

enum {
    MAX_MESSAGE = 1 << 30, /* bytes: MPI counts in int */
    ALIGNMENT = 4096,      /* of shared memory */
};

struct tu__transport {
    MPI_Comm world, host; /* our own copies */
    MPI_Win window;
    bool finalize;
};

struct tu__transfer {
    MPI_Request request;
};

static tu_status check(int code, const char *what) {
    if (code == MPI_SUCCESS) return TU_OK;
    char reason[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (MPI_Error_string(code, reason, &length) != MPI_SUCCESS)
        snprintf(reason, sizeof reason, "code %d", code);
    return tu_fail(TU_DEVICE, "MPI: %s failed: %s", what, reason);
}

/* ---- Opening and closing ---- */

/* Over TCP, Open MPI sends messages of more than 64 KiB only once the receiver has answered that it expects them. The
 * answer takes as long as two threads that compute keep the communication threads from their cores. The process group
 * limits the number of messages on their way, so its messages (128 KiB) can be sent at once. */
static void choose_settings(void) {
    setenv("OMPI_MCA_btl_tcp_eager_limit", "200000", 0); /* unless the user has set it */
}

static tu_status initialise(tu__transport *t) {
    int is_initialised, provided;
    TU_TRY(check(MPI_Initialized(&is_initialised), "MPI_Initialized"));
    if (is_initialised) {
        TU_TRY(check(MPI_Query_thread(&provided), "MPI_Query_thread"));
        if (provided < MPI_THREAD_SERIALIZED)
            return tu_fail(
                TU_INVALID,
                "MPI was initialised by the caller without threads: expected MPI_THREAD_SERIALIZED "
                "or MPI_THREAD_MULTIPLE, since Tutti calls MPI in a thread of its own");
        return TU_OK;
    }
    choose_settings();
    TU_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread"));
    t->finalize = true;
    if (provided < MPI_THREAD_FUNNELED)
        return tu_fail(TU_UNSUPPORTED, "this MPI library supports no threads (MPI_THREAD_FUNNELED)");
    return TU_OK;
}

static tu_status duplicate_communicators(tu__transport *t) {
    TU_TRY(check(MPI_Comm_dup(MPI_COMM_WORLD, &t->world), "MPI_Comm_dup"));
    MPI_Comm_set_errhandler(t->world, MPI_ERRORS_RETURN);
    TU_TRY(check(MPI_Comm_split_type(t->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &t->host),
                 "MPI_Comm_split_type"));
    MPI_Comm_set_errhandler(t->host, MPI_ERRORS_RETURN);
    return TU_OK;
}

static void describe_library(tu__transport_info *info) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(text, &length);
    size_t name = strcspn(text, ",\n");
    if (strncmp(text, "Open MPI v", 10) == 0)
        snprintf(info->library, sizeof info->library, "Open MPI %.*s", (int)(name - 10), text + 10);
    else
        snprintf(info->library, sizeof info->library, "%.*s", (int)name, text);
}

static tu_status describe(const tu__transport *t, tu__transport_info *info) {
    int rank, size, host_rank, host_size, length;
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Comm_rank(t->world, &rank);
    MPI_Comm_size(t->world, &size);
    MPI_Comm_rank(t->host, &host_rank);
    MPI_Comm_size(t->host, &host_size);
    TU_TRY(check(MPI_Get_processor_name(host, &length), "MPI_Get_processor_name"));
    *info = (tu__transport_info){.rank = (uint32_t)rank,
                                 .size = (uint32_t)size,
                                 .host_rank = (uint32_t)host_rank,
                                 .host_size = (uint32_t)host_size};
    int first = rank;
    TU_TRY(check(MPI_Bcast(&first, 1, MPI_INT, 0, t->host), "MPI_Bcast"));
    info->first_on_host = (uint32_t)first;
    snprintf(info->host, sizeof info->host, "%.63s", host);
    describe_library(info);
    return TU_OK;
}

static void close_transport(tu__transport *t) {
    if (t->window != MPI_WIN_NULL) MPI_Win_free(&t->window);
    if (t->host != MPI_COMM_NULL) MPI_Comm_free(&t->host);
    if (t->world != MPI_COMM_NULL) MPI_Comm_free(&t->world);
    if (t->finalize) MPI_Finalize();
    free(t);
}

static tu_status open_transport(tu__transport **transport, tu__transport_info *info) {
    tu__transport *t = calloc(1, sizeof *t);
    if (!t) return tu_fail(TU_NO_MEMORY, "out of memory for the MPI transport");
    t->world = t->host = MPI_COMM_NULL;
    t->window = MPI_WIN_NULL;
    tu_status status = initialise(t);
    if (status == TU_OK) status = duplicate_communicators(t);
    if (status == TU_OK) status = describe(t, info);
    if (status != TU_OK) {
        close_transport(t);
        return status;
    }
    *transport = t;
    return TU_OK;
}

/* Fails in all processes of the host if the memory does not fit: MPI_Win_allocate_shared would fail in one of them, and
 * never return in the others. */
static tu_status check_room(const tu__transport *t, size_t bytes) {
    struct statvfs files;
    int size, fits = 1, all_fit;
    MPI_Comm_size(t->host, &size);
    double needed = (double)bytes * size, free_bytes = 0;
    if (statvfs("/dev/shm", &files) == 0) {
        free_bytes = (double)files.f_bavail * (double)files.f_frsize;
        fits = free_bytes > needed;
    }
    TU_TRY(check(MPI_Allreduce(&fits, &all_fit, 1, MPI_INT, MPI_MIN, t->host), "MPI_Allreduce"));
    if (all_fit) return TU_OK;
    return tu_fail(
        TU_NO_MEMORY,
        "/dev/shm has %.4g MiB free, but the %d processes of this host need %.4g MiB to share: make it larger "
        "(container: --shm-size)",
        free_bytes / 1048576, size, needed / 1048576);
}

/* MPI aligns the memory only to 8 bytes. */
static void *align(void *address) {
    return (char *)address + (ALIGNMENT - (uintptr_t)address % ALIGNMENT) % ALIGNMENT;
}

static tu_status share(tu__transport *t, size_t bytes, void **areas) {
    void *own;
    int size;
    bytes += ALIGNMENT;
    TU_TRY(check_room(t, bytes));
    TU_TRY(check(MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, t->host, &own, &t->window),
                 "MPI_Win_allocate_shared"));
    memset(own, 0, bytes);
    MPI_Comm_size(t->host, &size);
    for (int i = 0; i < size; i++) {
        MPI_Aint area_bytes;
        int unit;
        TU_TRY(
            check(MPI_Win_shared_query(t->window, i, &area_bytes, &unit, &areas[i]), "MPI_Win_shared_query"));
        areas[i] = align(areas[i]);
    }
    return check(MPI_Barrier(t->host), "MPI_Barrier"); /* all have zeroed theirs */
}

/* ---- Transfers ---- */

static tu_status check_size(size_t bytes) {
    if (bytes <= MAX_MESSAGE) return TU_OK;
    return tu_fail(TU_INTERNAL, "MPI: a message of %zu bytes: expected at most %d", bytes, MAX_MESSAGE);
}

static tu_status new_transfer(size_t bytes, tu__transfer **transfer) {
    TU_TRY(check_size(bytes));
    *transfer = calloc(1, sizeof **transfer);
    return *transfer ? TU_OK : tu_fail(TU_NO_MEMORY, "out of memory for a message");
}

/* Frees the transfer if the call that should have begun it has failed. */
static tu_status check_begun(int code, const char *what, tu__transfer *transfer) {
    if (code != MPI_SUCCESS) free(transfer);
    return check(code, what);
}

/* `test` waits for the requests, which clang-tidy does not see. NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */

static tu_status gather(tu__transport *t, const void *mine, size_t bytes, void *all,
                        tu__transfer **transfer) {
    TU_TRY(new_transfer(bytes, transfer));
    int code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, t->world,
                              &(*transfer)->request);
    return check_begun(code, "MPI_Iallgather", *transfer);
}

static tu_status send(tu__transport *t, uint32_t to, int tag, const void *data, size_t bytes,
                      tu__transfer **transfer) {
    TU_TRY(new_transfer(bytes, transfer));
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, tag, t->world, &(*transfer)->request);
    return check_begun(code, "MPI_Isend", *transfer);
}

static tu_status receive(tu__transport *t, uint32_t from, int tag, void *data, size_t bytes,
                         tu__transfer **transfer) {
    TU_TRY(new_transfer(bytes, transfer));
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, tag, t->world, &(*transfer)->request);
    return check_begun(code, "MPI_Irecv", *transfer);
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static tu_status test(tu__transport *t, tu__transfer *transfer, bool *done) {
    (void)t;
    int flag = 0;
    tu_status status = check(MPI_Test(&transfer->request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    *done = status == TU_OK && flag;
    if (*done) free(transfer);
    return status;
}

static const tu__transport_api api = {
    .version = TU_VERSION,
    .open = open_transport,
    .close = close_transport,
    .share = share,
    .gather = gather,
    .send = send,
    .receive = receive,
    .test = test,
};

TU_API const tu__transport_api *tu_transport_plugin(void);
const tu__transport_api *tu_transport_plugin(void) {
    return &api;
}
