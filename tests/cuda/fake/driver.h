/* The fake driver from inside, and what the other fake libraries need of it.
 *
 * Work is enqueued as a closure. A stream keeps what is enqueued and does it as late as a card may: when somebody
 * synchronizes, waits for an event or frees memory. So a host program that reads a result, or reuses a pinned buffer,
 * before it has waited is found out. FAKE_CUDA_EAGER=1 does everything at once instead. While a stream is captured,
 * closures become the nodes of a graph, which runs them each time it is launched.
 *
 * FAKE_CUDA_HANG=N makes the Nth launch of a graph one that stops half way: nothing behind it is done, who asks is told that it is
 * under way, and who waits for it, or frees anything, never returns.
 *
 * Streams, events, modules and memory belong to the context in which they were made, and are refused in another's. Work of
 * one card on another's memory needs cuCtxEnablePeerAccess, but for copies, which a driver takes through the host.
 *
 * One lock guards all of it. Objects are counted by kind, so that tests can ask what was not given back. */
#ifndef FAKE_CUDA_DRIVER_H
#define FAKE_CUDA_DRIVER_H

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

typedef std::function<void()> work;

std::recursive_mutex &fake_lock();
class fake_guard {
  public:
    explicit fake_guard(std::recursive_mutex &lock); /* there is but one */
    ~fake_guard();
    fake_guard(const fake_guard &) = delete;
};
/* What waits for a card that hangs (FAKE_CUDA_HANG) never returns; other threads may call on. */
[[noreturn]] void fake_hang();

/* An environment variable as a number. */
uint64_t fake_setting(const char *name, uint64_t otherwise);
/* Ends the process with a line on stderr: for what a card would answer with garbage. */
[[noreturn]] void fake_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Objects by kind ("stream"). `fake_gone` is false for one that is not there: a handle used twice, or not one at all. */
void fake_born(const char *kind, const void *object);
bool fake_gone(const char *kind, const void *object);
bool fake_is(const char *kind, const void *object);

/* Enqueues work; `what` names it in messages. */
CUresult fake_enqueue(CUstream stream, const char *what, work w);
/* Whether these bytes lie within one allocation of device memory. */
bool fake_in_memory(const void *address, size_t bytes);
/* As above, and ends the process when they do not, or are another card's whose memory this one was not let into: for work
 * that is being done. */
void fake_need_memory(const void *address, size_t bytes, const char *what);

/* ---- Within the driver ---- */

enum { MAX_CARDS = 64 };
struct CUctx_st {
    int device;
    int users;
    bool let_into[MAX_CARDS]; /* kernels may use the memory of these other cards */
};
/* Whether kernels of a card may use memory of another. */
bool is_let_into(int card, int other);
/* The card whose work is being done; -1: none. */
int working_card();
/* The calling thread's context; NULL: none. */
CUcontext current_context();
/* For calls that a capture forbids: CUDA_SUCCESS, or the error, and the capture is lost. */
CUresult unless_captured();
/* For calls that wait for the whole context: the same, whichever thread captures. */
CUresult unless_context_captured();
/* The context a stream was made in; NULL: the default stream's, which is the calling thread's. */
CUcontext context_of(CUstream stream);
/* Takes the memory of cards that `card` was not let into away while it lives: a kernel that touches it faults. */
struct without_foreign_memory {
    explicit without_foreign_memory(int card);
    ~without_foreign_memory();
    int card;
};
/* Which card's memory a kernel was refused; -1: it was none. */
int refused_memory(const void *address);
/* Does all that is enqueued anywhere; hangs where that does not end on the thread's own card. */
void finish_everything();
/* Ends the process if anybody wrote beside an allocation. */
void check_guards();

#define NEED(condition, error)                                                                               \
    do {                                                                                                     \
        if (!(condition)) return error;                                                                      \
    } while (0)
#define NEED_CONTEXT NEED(current_context(), CUDA_ERROR_INVALID_CONTEXT)
#define NEED_NO_CAPTURE                                                                                      \
    do {                                                                                                     \
        CUresult captured_ = unless_captured();                                                              \
        if (captured_ != CUDA_SUCCESS) return captured_;                                                     \
    } while (0)

/* For tests, which find them with dlsym: how many objects are alive, and a line that says which. */
extern "C" size_t fake_cuda_live(char *text, size_t capacity);
/* Bytes of a card's memory that are taken. */
extern "C" size_t fake_cuda_used(int device);

#endif
