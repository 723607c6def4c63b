/* The fake NCCL: carries bytes between processes of one machine through shared memory.
 *
 * A communicator is a file in shared memory, which rank 0 makes with the id. It has a channel for each ordered pair of
 * ranks: a ring of bytes with the number of bytes written and read. A transfer is work of the fake driver that waits for
 * other processes; it continues whenever the host waits for the stream.
 *
 * As in a non-blocking communicator of the real library, calls return before they have taken effect: transfers are
 * enqueued when ncclCommGetAsyncError is called, and a call before that is an error. As in NCCL 2.28, two ranks on one
 * GPU are refused unless their NCCL_HOSTIDs differ. A communicator must not be destroyed before the graphs that use it,
 * for which the real one waits. Both ranks must capture a transfer, or none, and replay the graphs of the same capture:
 * messages carry the number of the transfer among the captured ones between the two ranks.
 */
#include <nccl.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"

namespace {

enum { MAX_RANKS = 8, CHANNEL_BYTES = 256 << 10 };

struct channel {
    std::atomic<uint64_t> written, read;
    char ring[CHANNEL_BYTES];
};

struct shared {
    std::atomic<int> joined;
    int size;
    char place[MAX_RANKS][96]; /* of each rank: host and GPU */
    channel channels[MAX_RANKS][MAX_RANKS]; /* from, to */
};

struct transfer {
    bool is_send;
    char *data;
    size_t bytes;
    int peer;
    CUstream stream;
    uint64_t capture; /* number among the captured transfers to or from the peer; 0: not captured */
};

std::string last_error;

ncclResult_t fail(ncclResult_t result, const std::string &why) {
    last_error = why;
    return result;
}

} // namespace

struct ncclComm {
    int rank, size;
    std::string name;
    struct shared *shared;
    ncclResult_t state;             /* of the latest call */
    std::vector<transfer> enqueued; /* by the next query of the state */
    std::shared_ptr<std::atomic<bool>> aborted; /* work that is enqueued or captured has a copy */
    uint64_t groups;                /* of transfers, so far */
    uint64_t captures[2][MAX_RANKS]; /* captured transfers so far: receives and sends, by peer */
};

namespace {

/* ---- Transfers ---- */

/* A message is a header, which both sides must agree on, and its data. */
struct message {
    char *data;
    size_t bytes, done; /* counts the 8 bytes of the header, too */
    uint64_t expected, header;
};

enum { SIZE_BITS = 48 };

uint64_t header_of(const transfer &t) {
    return (uint64_t)t.bytes | t.capture << SIZE_BITS;
}

void check_header(const message &m) {
    const uint64_t size_mask = ((uint64_t)1 << SIZE_BITS) - 1;
    size_t received = (size_t)(m.header & size_mask);
    if (received != m.bytes) fake_fail("NCCL: a rank receives %zu bytes, the other one sends %zu", m.bytes, received);
    if (m.header != m.expected)
        fake_fail("NCCL: a rank receives in its captured transfer %d (0: not captured), the other one sends in its %d",
                  (int)(m.expected >> SIZE_BITS), (int)(m.header >> SIZE_BITS));
}

char *byte_of(message &m, size_t index) {
    return index < 8 ? (char *)&m.header + index : m.data + (index - 8);
}

/* Moves as many bytes as the channel has room for. Returns true when the message is complete. */
bool go_on(message &m, channel &c, bool is_send) {
    while (m.done < m.bytes + 8) {
        uint64_t at = is_send ? c.written.load() : c.read.load();
        uint64_t room = is_send ? CHANNEL_BYTES - (at - c.read.load()) : c.written.load() - at;
        if (!room) return false;
        size_t part = m.done < 8 ? 8 - m.done : m.bytes + 8 - m.done;
        if (part > room) part = room;
        if (part > CHANNEL_BYTES - at % CHANNEL_BYTES) part = CHANNEL_BYTES - at % CHANNEL_BYTES;
        char *ring = c.ring + at % CHANNEL_BYTES, *own = byte_of(m, m.done);
        memcpy(is_send ? ring : own, is_send ? own : ring, part);
        m.done += part;
        (is_send ? c.written : c.read).store(at + part);
        if (!is_send && m.done == 8) check_header(m);
    }
    return true;
}

struct side { /* the messages to or from one rank, one after another */
    bool is_send;
    int peer;
    std::vector<message> messages;
    size_t first = 0;
};

std::vector<side> sort_by_peer(const std::vector<transfer> &list) {
    std::vector<side> sides;
    for (const transfer &t : list) {
        side *found = nullptr;
        for (side &s : sides)
            if (s.is_send == t.is_send && s.peer == t.peer) found = &s;
        if (!found) sides.push_back({t.is_send, t.peer, {}}), found = &sides.back();
        found->messages.push_back({t.data, t.bytes, 0, header_of(t), header_of(t)});
    }
    return sides;
}

bool go_on_with(struct shared *shared, int rank, std::vector<side> &sides) {
    bool all = true;
    for (side &s : sides) {
        channel &c = s.is_send ? shared->channels[rank][s.peer] : shared->channels[s.peer][rank];
        while (s.first < s.messages.size() && go_on(s.messages[s.first], c, s.is_send)) s.first++;
        all = all && s.first == s.messages.size();
    }
    return all;
}

uint64_t milliseconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Of a group of transfers, also of one that is replayed: of the first FAKE_NCCL_SLOW_GROUPS. */
uint64_t next_delay() {
    static uint64_t groups;
    return groups++ < fake_setting("FAKE_NCCL_SLOW_GROUPS", 0) ? fake_setting("FAKE_NCCL_MILLISECONDS", 0) : 0;
}

ncclResult_t enqueue(ncclComm *c) {
    std::vector<transfer> list;
    list.swap(c->enqueued);
    if (list.empty()) return ncclSuccess;
    uint64_t breaks = fake_setting("FAKE_NCCL_BREAKS", 0);
    if (breaks && ++c->groups >= breaks) return fail(ncclRemoteError, "the emulated network is broken");
    for (const transfer &t : list)
        if (t.stream != list[0].stream) return fail(ncclInvalidUsage, "a group uses several streams");
    if (fake_is_captured(list[0].stream))
        for (transfer &t : list) t.capture = ++c->captures[t.is_send][t.peer];
    struct shared *shared = c->shared;
    int rank = c->rank;
    std::shared_ptr<std::atomic<bool>> aborted = c->aborted;
    CUresult result = fake_enqueue_waiting(list[0].stream, "ncclGroup", [=]() -> std::function<bool()> {
        auto sides = std::make_shared<std::vector<side>>(sort_by_peer(list));
        uint64_t begin_at = milliseconds_now() + next_delay();
        return [=] {
            if (*aborted) return true;
            if (milliseconds_now() < begin_at) return false;
            for (const transfer &t : list) fake_need_memory(t.data, t.bytes, "NCCL");
            return go_on_with(shared, rank, *sides);
        };
    });
    return result == CUDA_SUCCESS ? ncclSuccess : fail(ncclUnhandledCudaError, "the stream cannot be used");
}

/* ---- Groups ---- */

thread_local int depth;
thread_local std::vector<std::pair<ncclComm *, transfer>> group;

ncclResult_t end_group() {
    for (auto &entry : group) {
        entry.first->enqueued.push_back(entry.second);
        entry.first->state = ncclInProgress;
    }
    bool is_empty = group.empty();
    group.clear();
    return is_empty ? ncclSuccess : ncclInProgress;
}

ncclResult_t add(ncclComm *c, const transfer &t) {
    if (c->state != ncclSuccess)
        return fail(ncclInvalidUsage, "the communicator is used before its last call has ended");
    if (t.peer < 0 || t.peer >= c->size || t.peer == c->rank) return fail(ncclInvalidArgument, "no such peer");
    group.push_back({c, t});
    return depth ? ncclSuccess : end_group();
}

/* ---- Communicators ---- */

struct shared *map(const std::string &name, bool create) {
    int file = shm_open(name.c_str(), create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (file < 0) return nullptr;
    if (create && ftruncate(file, sizeof(struct shared)) != 0) return nullptr;
    void *memory = mmap(nullptr, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : (struct shared *)memory;
}

void write_place(char *text, size_t capacity) {
    char host[64] = "";
    const char *id = getenv("NCCL_HOSTID");
    CUuuid gpu;
    gethostname(host, sizeof host - 1);
    cuDeviceGetUuid(&gpu, fake_current_gpu());
    snprintf(text, capacity, "%.50s GPU %d", id ? id : host, gpu.bytes[0]);
}

/* All ranks have joined. */
ncclResult_t check_places(const ncclComm *c) {
    for (int a = 0; a < c->size; a++)
        for (int b = 0; b < a; b++)
            if (strcmp(c->shared->place[a], c->shared->place[b]) == 0)
                return fail(ncclInvalidUsage, "Duplicate GPU detected: rank " + std::to_string(b) + " and rank " +
                                                  std::to_string(a));
    return ncclSuccess;
}

void leave(ncclComm *c) {
    munmap(c->shared, sizeof *c->shared);
    fake_remove_object("NCCL communicator", c);
    delete c;
}

} // namespace

ncclResult_t ncclGetVersion(int *version) {
    *version = (int)fake_setting("FAKE_NCCL_VERSION", NCCL_VERSION_CODE);
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "internal error";
    }
}
const char *ncclGetLastError(ncclComm_t) {
    return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static int count;
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/fake_nccl_%d_%d_%ld", (int)getpid(), count++,
             (long)(now.tv_sec % 1000000 * 1000 + now.tv_nsec / 1000000));
    struct shared *shared = map(id->internal, true);
    if (!shared) return fail(ncclSystemError, "shm_open failed");
    munmap(shared, sizeof *shared);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (config->size != sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
        return fail(ncclInvalidArgument, "expected the configuration of a non-blocking communicator");
    if (size > MAX_RANKS || rank < 0 || rank >= size) return fail(ncclInvalidArgument, "too many ranks");
    if (fake_current_gpu() < 0) return fail(ncclUnhandledCudaError, "no GPU is current");
    if (!fake_synchronise()) return fail(ncclUnhandledCudaError, "the thread captures");
    struct shared *shared = map(id.internal, false);
    if (!shared) return fail(ncclSystemError, "shm_open failed");
    write_place(shared->place[rank], sizeof shared->place[rank]);
    *made = new ncclComm{rank, size, id.internal, shared, ncclInProgress, {},
                         std::make_shared<std::atomic<bool>>(false), 0, {}};
    fake_add_object("NCCL communicator", *made);
    shared->joined++;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    fake_guard guard(fake_lock());
    if (c->state == ncclInProgress && c->shared->joined == c->size) {
        c->state = c->name.empty() ? enqueue(c) : check_places(c);
        if (!c->name.empty()) fake_synchronise(); /* the real library has allocated memory meanwhile */
        if (!c->name.empty() && c->rank == 0) shm_unlink(c->name.c_str());
        c->name.clear();
    }
    *state = c->state;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    if (c->state != ncclSuccess) return fail(ncclInvalidUsage, "the communicator is in use");
    c->state = ncclInProgress;
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    fake_guard guard(fake_lock());
    cuCtxSynchronize();
    if (c->aborted.use_count() > 1) fake_fail("an NCCL communicator was destroyed before a CUDA graph that uses it");
    leave(c);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
    fake_guard guard(fake_lock());
    fake_synchronise();
    if (!c->name.empty()) shm_unlink(c->name.c_str());
    *c->aborted = true; /* kernels of the real library end then */
    leave(c);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (!depth) return fail(ncclInvalidUsage, "no group was started");
    return --depth ? ncclSuccess : end_group();
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
    if (type != ncclInt8) return fail(ncclInvalidArgument, "the emulated NCCL sends bytes");
    return add(c, {true, (char *)data, count, peer, (CUstream)stream, 0});
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
    if (type != ncclInt8) return fail(ncclInvalidArgument, "the emulated NCCL receives bytes");
    return add(c, {false, (char *)data, count, peer, (CUstream)stream, 0});
}
