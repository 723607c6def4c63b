/* Connects the GPU of this process to those of the others. See connection.h.
 *
 * Connecting is a conversation in which every process takes part, also one that already knows that it cannot: the
 * others would wait for it. So each phase ends with a gather of what went wrong, and all succeed or fail alike:
 *
 *     introduce    library, GPU, settings      NCCL missing, another version, two processes on one GPU
 *     begin        the id of rank 0            the communicator, and a first exchange over all its transports
 *     agree
 */
#include "device/cuda/runtime/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "device/cuda/runtime/capture_lock.h"

enum {
    PROBLEM_BYTES = 400,
    MAX_STAGING = 32,
    FLAG_BYTES = 16,       /* of a process */
    PART_BYTES = 16 << 20, /* of a transfer, so that progress is seen over a slow network */
};

struct cuda_connection {
    cuda_device *device;
    tu_processes processes;
    cuda_nccl *communicator;
    int users;
    size_t staging_bytes; /* of the newest block; earlier ones are in use by earlier collectives */
    uint32_t staging_count;
    CUdeviceptr staging[MAX_STAGING];
    char problem[PROBLEM_BYTES]; /* of this process, while connecting; "" */
    bool has_waited;             /* the problem is that others are late */

    /* After every exchange the GPU writes another mark, which the host reads from time to time. */
    CUdeviceptr mark;        /* a byte */
    unsigned char last_mark; /* that was enqueued */
    unsigned char seen_mark;
    unsigned char *pinned_mark; /* where it is read to */
    CUstream reads;
    CUevent mark_read;
    bool is_reading;
    double next_read;

    /* Flags of this process and of all others, by rank; the second is where they are read to. */
    CUdeviceptr flags;
    unsigned char *pinned_flags;
    CUevent flags_read;
};

/* The processes have one group, so a process has one connection. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_connection *open_connection;

cuda_device *cuda_connection_device(const cuda_connection *c) {
    return c->device;
}

/* ---- Waiting ---- */

tu_status cuda_connection_check(const cuda_connection *c) {
    bool done;
    TU_TRY(c->processes.check(c->processes.context));
    return cuda_nccl_poll(c->communicator, &done);
}

static tu_status fail_late(cuda_connection *c, double waited) {
    c->has_waited = true;
    return tu_fail(TU_DEVICE, "NCCL has waited %.3g s for other processes", waited);
}

/* Waits until NCCL has done what was begun. It does so at once if no connection has to be made for it. */
static tu_status settle(cuda_connection *c, double timeout) {
    bool done = false;
    for (double began = tu__now(), waited = 0; !done; waited = tu__now() - began) {
        TU_TRY(cuda_nccl_poll(c->communicator, &done));
        if (done) break;
        TU_TRY(c->processes.check(c->processes.context));
        if (waited > timeout) return fail_late(c, waited);
        cuda_pause(waited);
    }
    return TU_OK;
}

/* ---- Progress ---- */

static tu_status open_mark(cuda_connection *c) {
    enum { BYTES = 64 };
    TU_TRY(cuda_memory_allocate(c->device->memory, BYTES, &c->mark));
    TU_TRY(cuda_staging_allocate(BYTES, (void **)&c->pinned_mark));
    CUDA_TRY(cuStreamCreate, &c->reads, CU_STREAM_NON_BLOCKING);
    CUDA_TRY(cuEventCreate, &c->mark_read, CU_EVENT_DISABLE_TIMING);
    CUDA_TRY(cuMemsetD8Async, c->mark, 0, BYTES, c->reads);
    CUDA_TRY(cuStreamSynchronize, c->reads);
    return TU_OK;
}

static void close_mark(cuda_connection *c) {
    if (c->reads) cuda.cuStreamSynchronize(c->reads);
    if (c->mark_read) cuda.cuEventDestroy(c->mark_read);
    if (c->reads) cuda.cuStreamDestroy(c->reads);
    cuda_staging_free(c->pinned_mark);
    cuda_memory_free(c->device->memory, c->mark);
}

static tu_status open_flags(cuda_connection *c) {
    size_t bytes = (size_t)FLAG_BYTES * c->processes.size;
    TU_TRY(cuda_memory_allocate(c->device->memory, bytes, &c->flags));
    TU_TRY(cuda_staging_allocate(bytes, (void **)&c->pinned_flags));
    CUDA_TRY(cuEventCreate, &c->flags_read, CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static void close_flags(cuda_connection *c) {
    if (c->flags_read) cuda.cuEventDestroy(c->flags_read);
    cuda_staging_free(c->pinned_flags);
    cuda_memory_free(c->device->memory, c->flags);
}

/* Begins to read the mark, without waiting for the exchanges, or takes it if it has been read. */
static tu_status read_mark(cuda_connection *c) {
    if (!c->is_reading) {
        CUDA_TRY(cuMemcpyDtoHAsync, c->pinned_mark, c->mark, 1, c->reads);
        CUDA_TRY(cuEventRecord, c->mark_read, c->reads);
        c->is_reading = true;
    } else if (cuda.cuEventQuery(c->mark_read) != CUDA_ERROR_NOT_READY) {
        c->is_reading = false;
        if (*c->pinned_mark != c->seen_mark) c->processes.progress(c->processes.context);
        c->seen_mark = *c->pinned_mark;
    }
    return TU_OK;
}

tu_status cuda_connection_watch(cuda_connection *c) {
    const double interval = 20e-3;
    double now = tu__now();
    TU_TRY(cuda_connection_check(c));
    if (now < c->next_read) return TU_OK;
    c->next_read = now + interval;
    TU_TRY(cuda_make_current(c->device));
    return read_mark(c);
}

/* ---- Exchanging ---- */

static tu_status exchange_at_once(cuda_connection *c, uint32_t count, const cuda_transfer *transfers,
                                  CUstream stream) {
    TU_TRY(cuda_nccl_transfer(c->communicator, count, transfers, stream));
    TU_TRY(settle(c, c->processes.timeout));
    CUDA_TRY(cuMemsetD8Async, c->mark, ++c->last_mark, 1, stream);
    return TU_OK;
}

static size_t longest_of(uint32_t count, const cuda_transfer *transfers) {
    size_t longest = 0;
    for (const cuda_transfer *t = transfers; t < transfers + count; t++) {
        if (t->send_bytes > longest) longest = t->send_bytes;
        if (t->receive_bytes > longest) longest = t->receive_bytes;
    }
    return longest;
}

static size_t bytes_of_part(size_t bytes, size_t first) {
    size_t left = bytes > first ? bytes - first : 0;
    return left < PART_BYTES ? left : PART_BYTES;
}

/* The bytes of a transfer from `first` on. Both processes divide it alike. */
static cuda_transfer part_of(const cuda_transfer *t, size_t first) {
    return (cuda_transfer){t->process, (const char *)t->send + first, (char *)t->receive + first,
                           bytes_of_part(t->send_bytes, first), bytes_of_part(t->receive_bytes, first)};
}

tu_status cuda_exchange(cuda_connection *c, uint32_t count, const cuda_transfer *transfers, CUstream stream) {
    size_t longest = longest_of(count, transfers);
    tu_status status = TU_OK;
    if (longest <= PART_BYTES) return exchange_at_once(c, count, transfers, stream);
    cuda_transfer *parts = tu__alloc_array(count, sizeof *parts, "an exchange");
    if (!parts) return TU_NO_MEMORY;
    for (size_t first = 0; status == TU_OK && first < longest; first += PART_BYTES) {
        for (uint32_t i = 0; i < count; i++) parts[i] = part_of(&transfers[i], first);
        status = exchange_at_once(c, count, parts, stream);
    }
    tu__free(parts);
    return status;
}

/* ---- Flags ---- */

static CUdeviceptr flags_of(const cuda_connection *c, uint32_t process) {
    return c->flags + (CUdeviceptr)FLAG_BYTES * process;
}

/* In the stream that reads the mark: nothing else is exchanged meanwhile. */
tu_status cuda_connection_send_flags(cuda_connection *c, unsigned char flags, CUevent *sent) {
    const tu_processes *p = &c->processes;
    cuda_transfer *list = tu__alloc_array(p->size, sizeof *list, "an exchange");
    uint32_t count = 0;
    if (!list) return TU_NO_MEMORY;
    for (uint32_t r = 0; r < p->size; r++)
        if (r != p->rank)
            list[count++] = (cuda_transfer){r, cuda_pointer(flags_of(c, p->rank)),
                                            cuda_pointer(flags_of(c, r)), FLAG_BYTES, FLAG_BYTES};
    tu_status status = cuda_make_current(c->device);
    if (status == TU_OK)
        status = CUDA_CALL(cuMemsetD8Async, flags_of(c, p->rank), flags, FLAG_BYTES, c->reads);
    if (status == TU_OK) status = cuda_exchange(c, count, list, c->reads);
    tu__free(list);
    TU_TRY(status);
    CUDA_TRY(cuMemcpyDtoHAsync, c->pinned_flags, c->flags, (size_t)FLAG_BYTES * p->size, c->reads);
    CUDA_TRY(cuEventRecord, c->flags_read, c->reads);
    *sent = c->flags_read;
    return TU_OK;
}

unsigned cuda_connection_flags(const cuda_connection *c) {
    unsigned all = 0;
    for (uint32_t r = 0; r < c->processes.size; r++) all |= c->pinned_flags[(size_t)FLAG_BYTES * r];
    return all;
}

/* ---- Staging memory ---- */

CUdeviceptr cuda_connection_staging(cuda_connection *c, size_t bytes) {
    CUdeviceptr block = 0;
    if (c->staging_count && bytes <= c->staging_bytes) return c->staging[c->staging_count - 1];
    if (bytes < 2 * c->staging_bytes) bytes = 2 * c->staging_bytes; /* so that there are few blocks */
    tu_status status = c->staging_count < MAX_STAGING
                           ? cuda_memory_allocate(c->device->memory, bytes, &block)
                           : tu_fail(TU_NO_MEMORY, "too many sizes of collectives");
    if (status != TU_OK) {
        tu_fail(status, "%s: for collectives over processes: %s", c->device->name, tu_message());
        return 0;
    }
    c->staging[c->staging_count++] = block;
    c->staging_bytes = bytes;
    return block;
}

/* ---- Introducing ---- */

typedef struct introduction {
    char problem[PROBLEM_BYTES]; /* why the process cannot connect; "" */
    char version[24];            /* of NCCL */
    CUuuid gpu;
    bool may_share;  /* GPUs with other processes */
    bool has_waited; /* the problem is that others are late: one of them has another problem */
} introduction;

static tu_status read_setting(bool *may_share) {
    const char *setting = getenv("TUTTI_NCCL");
    *may_share = setting && strcmp(setting, "share") == 0;
    if (!setting || !*setting || *may_share) return TU_OK;
    if (strcmp(setting, "off") == 0) return tu_fail(TU_UNSUPPORTED, "NCCL is disabled (TUTTI_NCCL=off)");
    return tu_fail(TU_UNSUPPORTED, "TUTTI_NCCL is '%.40s': expected off or share", setting);
}

static tu_status describe_self(const cuda_connection *c, introduction *mine) {
    TU_TRY(read_setting(&mine->may_share));
    TU_TRY(cuda_load_library(CUDA_nccl));
    snprintf(mine->version, sizeof mine->version, "%s", cuda_library_version(CUDA_nccl));
    CUDA_TRY(cuDeviceGetUuid, &mine->gpu, c->device->handle);
    return TU_OK;
}

/* Returns the first process before `rank` on the same GPU; `rank` if there is none. */
static uint32_t find_same_gpu(const introduction *all, uint32_t rank) {
    uint32_t other = 0;
    while (other < rank && memcmp(&all[other].gpu, &all[rank].gpu, sizeof all[rank].gpu) != 0) other++;
    return other;
}

static tu_status check_problems(const introduction *all, uint32_t size) {
    uint32_t first = size;
    for (uint32_t r = size; r-- > 0;)
        if (all[r].problem[0] && (first == size || !all[r].has_waited || all[first].has_waited)) first = r;
    if (first == size) return TU_OK;
    bool same = true;
    for (uint32_t r = 0; r < size; r++) same = same && strcmp(all[r].problem, all[first].problem) == 0;
    if (same) return tu_fail(TU_UNSUPPORTED, "%s", all[first].problem);
    return tu_fail(TU_UNSUPPORTED, "rank %u: %s", first, all[first].problem);
}

/* NCCL identifies a GPU by host and bus. With a host id for each process it takes them for several GPUs, which then
 * exchange bytes through sockets. The user's own settings stay. */
static void set_up_sharing(uint32_t rank, bool on_one_gpu) {
    char host[32];
    snprintf(host, sizeof host, "tutti-%u", rank);
    setenv("NCCL_HOSTID", host, 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_P2P_DISABLE", "1", 0);
    setenv("NCCL_SHM_DISABLE", "1", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (on_one_gpu) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

static tu_status check_all(const introduction *all, const tu_processes *p) {
    uint32_t sharing = 0;
    TU_TRY(check_problems(all, p->size));
    for (uint32_t r = 1; r < p->size; r++) {
        uint32_t other = find_same_gpu(all, r);
        if (strcmp(all[r].version, all[0].version) != 0)
            return tu_fail(TU_UNSUPPORTED, "rank 0 has NCCL %s, rank %u has NCCL %s: expected the same",
                           all[0].version, r, all[r].version);
        if (other < r && !(all[r].may_share && all[other].may_share))
            return tu_fail(TU_UNSUPPORTED, "ranks %u and %u use the same GPU, which NCCL does not support",
                           other, r);
        sharing += other < r;
    }
    if (sharing) set_up_sharing(p->rank, sharing == p->size - 1);
    return TU_OK;
}

static tu_status introduce(const cuda_connection *c) {
    const tu_processes *p = &c->processes;
    introduction mine = {.may_share = false}, *all = tu__alloc_array(p->size, sizeof *all, "a connection");
    if (!all) return TU_NO_MEMORY;
    if (describe_self(c, &mine) != TU_OK) snprintf(mine.problem, sizeof mine.problem, "%s", tu_message());
    tu_status status = p->gather(p->context, &mine, sizeof mine, all);
    if (status == TU_OK) status = check_all(all, p);
    tu__free(all);
    return status;
}

/* ---- Beginning ---- */

typedef struct invitation {
    char problem[PROBLEM_BYTES];
    cuda_nccl_id id;
} invitation;

/* Gives all processes the id that rank 0 has made. */
static tu_status exchange_id(const cuda_connection *c, cuda_nccl_id *id) {
    const tu_processes *p = &c->processes;
    invitation mine = {.problem = ""}, *all = tu__alloc_array(p->size, sizeof *all, "a connection");
    if (!all) return TU_NO_MEMORY;
    if (p->rank == 0 && cuda_nccl_new_id(&mine.id) != TU_OK)
        snprintf(mine.problem, sizeof mine.problem, "%s", tu_message());
    tu_status status = p->gather(p->context, &mine, sizeof mine, all);
    if (status == TU_OK && all[0].problem[0]) status = tu_fail(TU_UNSUPPORTED, "rank 0: %s", all[0].problem);
    if (status == TU_OK) *id = all[0].id;
    tu__free(all);
    return status;
}

enum { FIRST_BYTES = 256 }; /* exchanged with each process while connecting */

/* NCCL makes the transport between two processes at their first transfer. */
static tu_status exchange_first(cuda_connection *c, CUdeviceptr block, double timeout) {
    const tu_processes *p = &c->processes;
    cuda_transfer *list = tu__alloc_array(p->size, sizeof *list, "a connection");
    uint32_t count = 0;
    bool done = false;
    CUstream stream = c->device->own_queue.stream;
    for (uint32_t r = 0; list && r < p->size; r++)
        if (r != p->rank)
            list[count++] = (cuda_transfer){r, cuda_pointer(block),
                                            cuda_pointer(block + (CUdeviceptr)FIRST_BYTES * (r + 1)),
                                            FIRST_BYTES, FIRST_BYTES};
    tu_status status = list ? cuda_nccl_transfer(c->communicator, count, list, stream) : TU_NO_MEMORY;
    tu__free(list);
    TU_TRY(status);
    TU_TRY(settle(c, timeout));
    for (double began = tu__now(), waited = 0; !done; waited = tu__now() - began) {
        done = cuda.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
        if (done) break;
        TU_TRY(cuda_connection_check(c));
        if (waited > timeout) return fail_late(c, waited);
        cuda_pause(waited);
    }
    CUDA_TRY(cuStreamSynchronize, stream);
    return TU_OK;
}

static tu_status make_communicator(cuda_connection *c, const cuda_nccl_id *id, CUdeviceptr block) {
    /* So that all processes are back in a gather within its own timeout. */
    const double timeout = c->processes.timeout / 3;
    TU_TRY(cuda_nccl_begin(c->processes.rank, c->processes.size, id, &c->communicator));
    TU_TRY(settle(c, timeout));
    return exchange_first(c, block, timeout);
}

/* NCCL's threads allocate memory until the first exchange has ended, so nothing may be captured until then. The other
 * processes do the same at this moment, and for that they need no capture of this one. */
static tu_status begin(cuda_connection *c, const cuda_nccl_id *id) {
    TU_TRY(cuda_make_current(c->device));
    TU_TRY(open_mark(c));
    TU_TRY(open_flags(c));
    CUdeviceptr block = cuda_connection_staging(c, (size_t)FIRST_BYTES * (c->processes.size + 1));
    if (!block) return TU_NO_MEMORY;
    cuda_sync_lock();
    tu_status status = make_communicator(c, id, block);
    cuda_sync_unlock();
    return status == TU_OK ? cuda_measure_overhead(c->device) : status;
}

static tu_status agree(const cuda_connection *c) {
    const tu_processes *p = &c->processes;
    introduction *all = tu__alloc_array(p->size, sizeof *all, "a connection"), mine = {.may_share = false};
    if (!all) return TU_NO_MEMORY;
    memcpy(mine.problem, c->problem, sizeof mine.problem);
    mine.has_waited = c->has_waited;
    tu_status status = p->gather(p->context, &mine, sizeof mine, all);
    if (status == TU_OK) status = check_problems(all, p->size);
    tu__free(all);
    return status;
}

/* ---- Connecting ---- */

static void free_connection(cuda_connection *c) {
    cuda.cuCtxSetCurrent(c->device->context);
    close_mark(c);
    close_flags(c);
    for (uint32_t i = 0; i < c->staging_count; i++) cuda_memory_free(c->device->memory, c->staging[i]);
    tu__free(c);
}

static void abort_communicator(const cuda_connection *c) {
    cuda_sync_lock();
    cuda_nccl_abort(c->communicator);
    cuda_sync_unlock();
}

static tu_status connect(cuda_connection *c) {
    cuda_nccl_id id;
    TU_TRY(introduce(c));
    TU_TRY(exchange_id(c, &id));
    tu_status status = begin(c, &id);
    if (status == TU_LOST) return status;
    if (status != TU_OK) snprintf(c->problem, sizeof c->problem, "%s", tu_message());
    return agree(c);
}

static tu_status connect_first(cuda_device *device, const tu_processes *processes,
                               cuda_connection **connection) {
    cuda_connection *c = tu__alloc(sizeof *c, "a connection");
    if (!c) return TU_NO_MEMORY;
    *c = (cuda_connection){.device = device, .processes = *processes, .users = 1};
    tu_status status = connect(c);
    if (status == TU_LOST && c->communicator) return status; /* freeing could wait for the lost process */
    if (status == TU_OK) {
        *connection = c;
        return TU_OK;
    }
    if (c->communicator) abort_communicator(c);
    free_connection(c);
    return status;
}

tu_status cuda_connect(cuda_device *device, const tu_processes *processes, cuda_connection **connection) {
    TU_TRY(cuda_make_current(device));
    pthread_mutex_lock(&lock);
    cuda_connection *c = open_connection;
    tu_status status = TU_OK;
    if (!c)
        status = connect_first(device, processes, &open_connection);
    else if (c->processes.context == processes->context && c->device == device)
        c->users++;
    else
        status = tu_fail(TU_UNSUPPORTED, "this process is connected through %s already", c->device->name);
    *connection = status == TU_OK ? open_connection : NULL;
    pthread_mutex_unlock(&lock);
    return status;
}

cuda_connection *cuda_connection_to(const tu_processes *processes) {
    pthread_mutex_lock(&lock);
    cuda_connection *found = open_connection;
    pthread_mutex_unlock(&lock);
    if (found && found->processes.context == processes->context) return found;
    tu_fail(TU_INVALID, "a collective over processes was built before they were connected");
    return NULL;
}

/* Ends the communicator with the other processes. If that fails, it stays allocated, and NCCL's threads with it. */
static bool end(cuda_connection *c) {
    enum { SECONDS = 10 };
    if (cuda_is_abandoned(c->device) || c->processes.check(c->processes.context) != TU_OK) return false;
    cuda.cuCtxSetCurrent(c->device->context);
    if (cuda_nccl_end(c->communicator) != TU_OK || settle(c, SECONDS) != TU_OK) return false;
    cuda_sync_lock();
    cuda_nccl_free(c->communicator);
    cuda_sync_unlock();
    return true;
}

void cuda_disconnect(cuda_connection *c) {
    if (!c) return;
    pthread_mutex_lock(&lock);
    bool is_last = --c->users == 0;
    if (is_last) open_connection = NULL;
    pthread_mutex_unlock(&lock);
    if (is_last && end(c)) free_connection(c);
}
