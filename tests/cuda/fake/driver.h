/* Internal header of the fake driver, and what the other fake libraries need of it.
 *
 * Work is enqueued as a closure. A stream keeps the closures and runs them as late as a real GPU might: when the host
 * synchronises, waits for an event or frees memory. So a host program that reads a result, or reuses a pinned buffer,
 * without waiting is detected. FAKE_CUDA_EAGER=1 runs everything immediately instead. While a stream is captured,
 * closures become the nodes of a graph, which runs them at each launch.
 *
 * FAKE_CUDA_HANG=N makes the Nth graph launch stop half way: nothing after it runs, queries report it as not ready,
 * and calls that wait for it, or free anything, never return.
 *
 * Streams, events, modules and memory belong to the context in which they were created and are rejected in others.
 * Work of one GPU on another's memory needs cuCtxEnablePeerAccess, except copies, which the driver can do through the
 * host.
 *
 * One lock guards everything. Objects are counted by kind, so that tests can check for leaks.
 */
#ifndef FAKE_CUDA_DRIVER_H
#define FAKE_CUDA_DRIVER_H

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

typedef std::function<void()> work;
/* Starts work that waits for other processes: returns a function that continues it, and returns true at its end. */
typedef std::function<std::function<bool()>()> begun_work;

std::recursive_mutex &fake_lock();
class fake_guard {
  public:
    explicit fake_guard(std::recursive_mutex &lock); /* there is only one lock */
    ~fake_guard();
    fake_guard(const fake_guard &) = delete;
};
/* Blocks forever, to emulate waiting for a GPU that hangs (FAKE_CUDA_HANG). Releases the lock, so other threads can
 * continue. */
[[noreturn]] void fake_hang();

/* Releases the lock for a moment, so that other threads and processes can continue. */
void fake_pause();

/* Returns an environment variable as a number. */
uint64_t fake_setting(const char *name, uint64_t default_value);
/* Ends the process with a line on stderr: for errors that a real GPU would answer with wrong results. */
[[noreturn]] void fake_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Objects by kind ("stream"). `fake_remove_object` returns false for an unknown object: a handle that was freed before or is
 * invalid. */
void fake_add_object(const char *kind, const void *object);
bool fake_remove_object(const char *kind, const void *object);
bool fake_is_object(const char *kind, const void *object);

/* Enqueues work; `what` names it in messages. */
CUresult fake_enqueue(CUstream stream, const char *what, work w);
CUresult fake_enqueue_waiting(CUstream stream, const char *what, begun_work begin);
bool fake_is_captured(CUstream stream);
/* True if these bytes lie within one allocation of device memory. */
bool fake_in_memory(const void *address, size_t bytes);
/* Ends the process if these bytes are not in one allocation of device memory, or are on another GPU without peer
 * access. Called while work runs. */
void fake_need_memory(const void *address, size_t bytes, const char *what);

/* Returns the GPU of the calling thread's context; -1: there is none. */
int fake_current_gpu();

/* For functions of the other libraries that synchronise the calling thread's context inside: synchronise_context().
 * Returns false if the thread captures. */
bool fake_synchronise();

/* ---- Internal to the driver ---- */

enum { MAX_GPUS = 64 };
struct CUctx_st {
    int device;
    int users;
    bool peer_access[MAX_GPUS]; /* peer access to these other GPUs */
};
/* True if kernels of a GPU may access the memory of another. */
bool has_peer_access(int gpu, int other);
/* Returns the GPU whose work is running; -1: none. */
int working_gpu();
/* Returns the calling thread's context; NULL: none. */
CUcontext current_context();
/* For calls that a capture forbids: returns CUDA_SUCCESS, or an error and invalidates the capture. */
CUresult check_not_captured();
/* The same for calls that wait for the whole context, whichever thread captures. */
CUresult check_context_not_captured();
/* For calls that synchronise a context inside, such as cuMemFree: check_not_captured(), and invalidates what other
 * threads capture in the context. Those notice at their next call; this one succeeds, as in the real driver. */
CUresult synchronise_context(CUcontext context);
/* Returns the context a stream was created in; for the default stream (NULL) the calling thread's. */
CUcontext context_of(CUstream stream);
/* While it exists, memory of GPUs to which `gpu` has no peer access is protected: a kernel that accesses it
 * faults. */
struct without_foreign_memory {
    explicit without_foreign_memory(int gpu);
    ~without_foreign_memory();
    int gpu;
};
/* Returns the GPU whose memory at `address` the running work may not access; -1: none. */
int inaccessible_memory(const void *address);
/* Runs all enqueued work; hangs if that never ends on the thread's own GPU. */
void finish_everything();
/* Ends the process if the guard bytes of an allocation were overwritten. */
void check_guards();

#define NEED(condition, error)                                                                               \
    do {                                                                                                     \
        if (!(condition)) return error;                                                                      \
    } while (0)
#define NEED_CONTEXT NEED(current_context(), CUDA_ERROR_INVALID_CONTEXT)
#define NEED_NO_CAPTURE                                                                                      \
    do {                                                                                                     \
        CUresult captured_ = check_not_captured();                                                           \
        if (captured_ != CUDA_SUCCESS) return captured_;                                                     \
    } while (0)

#define NEED_SYNCHRONISED                                                                                    \
    do {                                                                                                     \
        CUresult synchronised_ = synchronise_context(current_context());                                     \
        if (synchronised_ != CUDA_SUCCESS) return synchronised_;                                             \
    } while (0)

/* For tests, which look it up with dlsym: returns the number of live objects, and a line that lists them. */
extern "C" size_t fake_cuda_live(char *text, size_t capacity);
/* Returns the used bytes of a GPU's memory. */
extern "C" size_t fake_cuda_used(int device);

#endif
