/* Runs a grid of blocks of threads on one thread of the host.
 *
 * Blocks run one after another. The threads of a block are fibers: each runs until it ends or must wait at a barrier
 * or in a shuffle; then the next one runs. When all threads that can arrive have arrived, the waiting ones continue.
 * Threads run in ascending order in one block and in descending order in the next, so that a kernel with a missing
 * barrier sooner or later gives different results.
 *
 * Shared memory is filled with 0xff when a block starts: NaN as a float, far out of range as an index.
 *
 * Fibers are switched by a few assembler instructions, since swapcontext makes a system call each time. This file is
 * never compiled with a sanitizer, which would report a fiber's stack as a fault.
 */
#include "grid.h"

#include "driver.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "fibers are written for x86-64 and aarch64"
#endif

namespace {

enum { STACK = 128 << 10, MAX_THREADS = 1024, WARP = 32, MAX_SHARED = 232 << 10, GUARD = 64 };

/* ---- Fibers ---- */

/* Saves the callee-saved registers on the stack, stores the stack pointer in *from, and continues at `to`. */
extern "C" void switch_stack(void **from, void *to);
#ifdef __x86_64__
__asm__(".text\n.local switch_stack\nswitch_stack:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
enum { SAVED_WORDS = 7, ENTRY_WORD = 6 }; /* six registers, then the return address */
#else
__asm__(
    ".text\n.local switch_stack\nswitch_stack:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
enum { SAVED_WORDS = 20, ENTRY_WORD = 11 };
#endif

enum waiting_for { NOTHING, BARRIER, EXCHANGE, VOTE, END };

/* Stacks of ended threads are reused. */
std::vector<void *> free_stacks;

struct fiber {
    point index;  /* thread index in the block, the same for all blocks of a grid */
    void *stack;  /* lowest address; NULL before it starts and after it ends */
    void *resume; /* saved stack pointer */
    waiting_for state;
    int line;      /* of the barrier or shuffle */
    unsigned mask; /* lanes of the shuffle */
    int source;
    unsigned long long value, result;
};

struct running_block {
    const emulated_kernel *kernel;
    void **parameters;
    unsigned thread_count, current;
    bool descending; /* descending order of threads */
};

fiber fibers[MAX_THREADS];
running_block running;
void *scheduler; /* saved stack pointer of run_block */
alignas(256) unsigned char dynamic_shared[MAX_SHARED + GUARD];
uint64_t launches;

[[noreturn]] void fail(const char *what) {
    const emulated_state *s = running.kernel->state;
    fprintf(stderr, "emulated GPU: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n",
            running.kernel->name, s->block.x, s->block.y, s->block.z, s->thread.x, s->thread.y, s->thread.z,
            what);
    fflush(stderr);
    _exit(98);
}

void suspend(waiting_for what, int line) {
    fiber &f = fibers[running.current];
    f.state = what;
    f.line = line;
    switch_stack(&f.resume, scheduler);
}

void fiber_main() {
    running.kernel->run(running.parameters);
    suspend(END, 0);
}

void *get_stack() {
    if (!free_stacks.empty()) {
        void *stack = free_stacks.back();
        free_stacks.pop_back();
        return stack;
    }
    void *stack =
        mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0) fail("no memory for a thread's stack");
    return stack;
}

/* Prepares a fiber to start at fiber_main. */
void start(fiber &f) {
    f.stack = get_stack();
    void **top = (void **)((char *)f.stack + STACK - 64); /* 16-byte aligned, as before a call */
    *--top = nullptr;
    top -= SAVED_WORDS;
#ifdef __aarch64__
    top = (void **)((uintptr_t)top & ~(uintptr_t)15);
#endif
    memset(top, 0, SAVED_WORDS * sizeof *top);
    top[ENTRY_WORD] = (void *)fiber_main;
    f.resume = top;
}

point thread_index(unsigned thread, point size) {
    return {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

void resume(unsigned thread) {
    fiber &f = fibers[thread];
    running.current = thread;
    running.kernel->state->thread = f.index;
    if (!f.stack) start(f);
    switch_stack(&scheduler, f.resume);
    if (f.state != END) return;
    free_stacks.push_back(f.stack);
    f.stack = nullptr;
}

/* ---- Barriers and warp functions ---- */

unsigned warp_of(unsigned thread) {
    return thread / WARP;
}
fiber *lane_of(unsigned warp, unsigned lane) {
    unsigned thread = warp * WARP + lane;
    return thread < running.thread_count ? &fibers[thread] : nullptr;
}

/* Returns the lanes of `mask` that have not ended. */
unsigned running_lanes(unsigned warp, unsigned mask) {
    unsigned alive = 0;
    for (unsigned lane = 0; lane < WARP; lane++) {
        const fiber *f = lane_of(warp, lane);
        if (f && f->state != END && (mask >> lane & 1u)) alive |= 1u << lane;
    }
    return alive;
}

/* True if all lanes that `f` waits for have arrived at the same line with the same mask. */
bool have_arrived(unsigned warp, const fiber &f) {
    unsigned alive = running_lanes(warp, f.mask);
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(alive >> lane & 1u)) continue;
        const fiber *other = lane_of(warp, lane);
        if (other->state != f.state || other->mask != f.mask || other->line != f.line) return false;
    }
    return true;
}

/* Returns a lane's result; 0xff… if the source lane ended or is not in the mask. */
unsigned long long result_of(unsigned warp, const fiber &f, unsigned alive) {
    if (f.state == EXCHANGE)
        return f.source >= 0 && f.source < WARP && (alive >> f.source & 1u)
                   ? lane_of(warp, (unsigned)f.source)->value
                   : ~0ull;
    unsigned long long votes = 0;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (alive >> lane & 1u) votes |= (unsigned long long)(lane_of(warp, lane)->value != 0) << lane;
    return votes;
}

/* Lets the lanes that `f` waited for continue. */
void release_lanes(unsigned warp, const fiber &f) {
    unsigned alive = running_lanes(warp, f.mask);
    for (unsigned lane = 0; lane < WARP; lane++)
        if (alive >> lane & 1u) lane_of(warp, lane)->result = result_of(warp, *lane_of(warp, lane), alive);
    for (unsigned lane = 0; lane < WARP; lane++)
        if (alive >> lane & 1u) lane_of(warp, lane)->state = NOTHING;
}

bool release_warps() {
    bool any = false;
    for (unsigned thread = 0; thread < running.thread_count; thread++) {
        const fiber &f = fibers[thread];
        if ((f.state != EXCHANGE && f.state != VOTE) || !have_arrived(warp_of(thread), f)) continue;
        release_lanes(warp_of(thread), f);
        any = true;
    }
    return any;
}

const char *state_name(waiting_for state) {
    static const char *const names[] = {"runs", "waits in __syncthreads", "waits in a shuffle",
                                        "waits in a vote", "has ended"};
    return names[state];
}

[[noreturn]] void fail_deadlock(const fiber &a, const fiber &b) {
    char text[256];
    snprintf(
        text, sizeof text,
        "threads wait for each other forever: thread %d %s in line %d (mask %08x), thread %d %s in line %d (mask %08x)",
        (int)(&a - fibers), state_name(a.state), a.line, a.mask, (int)(&b - fibers), state_name(b.state),
        b.line, b.mask);
    fail(text);
}

/* Releases a barrier. All threads that have not ended must be at the same one. Returns false if all have ended. */
bool release_barrier() {
    const fiber *first = nullptr;
    for (unsigned thread = 0; thread < running.thread_count; thread++) {
        const fiber &f = fibers[thread];
        if (f.state == END) continue;
        if (!first) first = &f;
        if (f.state != BARRIER || f.line != first->line) fail_deadlock(*first, f);
    }
    for (unsigned thread = 0; thread < running.thread_count; thread++)
        if (fibers[thread].state == BARRIER) fibers[thread].state = NOTHING;
    return first != nullptr;
}

/* ---- Functions called by kernels ---- */

void barrier(int line) {
    suspend(BARRIER, line);
}

unsigned long long wait_for_warp(waiting_for what, unsigned mask, unsigned long long value, int source, int line) {
    fiber &f = fibers[running.current];
    if (!(mask >> running.current % WARP & 1u))
        fail("a lane calls a warp function with a mask that it is not in");
    f.mask = mask;
    f.value = value;
    f.source = source;
    suspend(what, line);
    return f.result;
}
unsigned long long exchange(unsigned mask, unsigned long long value, int source, int line) {
    return wait_for_warp(EXCHANGE, mask, value, source, line);
}
unsigned vote(unsigned mask, int value, int line) {
    return (unsigned)wait_for_warp(VOTE, mask, (unsigned long long)(value != 0), 0, line);
}

/* ---- Blocks ---- */

void run_ready() {
    for (unsigned i = 0; i < running.thread_count; i++) {
        unsigned thread = running.descending ? running.thread_count - 1 - i : i;
        if (fibers[thread].state == NOTHING) resume(thread);
    }
}

void check_shared(size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        if (dynamic_shared[bytes + i] != 0xff) {
            char text[128];
            snprintf(text, sizeof text, "wrote past the end of its %zu bytes of dynamic shared memory",
                     bytes);
            fail(text);
        }
}

void run_block(size_t shared_bytes) {
    memset(running.kernel->statics, 0xff, (size_t)(running.kernel->statics_end - running.kernel->statics));
    memset(dynamic_shared, 0xff, shared_bytes + GUARD);
    for (unsigned thread = 0; thread < running.thread_count; thread++) fibers[thread].state = NOTHING;
    do {
        do run_ready();
        while (release_warps());
    } while (release_barrier());
    check_shared(shared_bytes);
}

/* ---- Faults ---- */

void report_fault(int signal, siginfo_t *where, void *) {
    int other = signal == SIGSEGV || signal == SIGBUS ? inaccessible_memory(where->si_addr) : -1;
    if (other >= 0) {
        char text[128];
        snprintf(text, sizeof text, "GPU %d accesses memory of GPU %d without peer access",
                 working_gpu(), other);
        fail(text);
    }
    fail(signal == SIGILL || signal == SIGTRAP
             ? "an access that is not aligned to its type, or an index outside of a fixed array"
         : signal == SIGFPE ? "an integer was divided by zero"
                            : "an access to unallocated memory (or a stack overflow)");
}

const int fault_signals[] = {SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE};
enum { FAULTS = sizeof fault_signals / sizeof *fault_signals };

struct fault_watch {
    struct sigaction before[FAULTS];
    fault_watch() {
        struct sigaction action = {};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = report_fault;
        for (int i = 0; i < FAULTS; i++) sigaction(fault_signals[i], &action, &before[i]);
    }
    ~fault_watch() {
        for (int i = 0; i < FAULTS; i++) sigaction(fault_signals[i], &before[i], nullptr);
    }
};

} // namespace

void run_grid(const emulated_kernel &kernel, point blocks, point threads, size_t shared_bytes,
              void **parameters) {
    emulated_state *s = kernel.state;
    *s = {{0, 0, 0}, {0, 0, 0}, threads, blocks, dynamic_shared, barrier, exchange, vote};
    running = {&kernel, parameters, threads.x * threads.y * threads.z, 0, false};
    for (unsigned thread = 0; thread < running.thread_count; thread++)
        fibers[thread].index = thread_index(thread, threads);
    fault_watch watch;
    for (s->block.z = 0; s->block.z < blocks.z; s->block.z++)
        for (s->block.y = 0; s->block.y < blocks.y; s->block.y++)
            for (s->block.x = 0; s->block.x < blocks.x; s->block.x++) {
                running.descending = (s->block.x + launches) % 2;
                run_block(shared_bytes);
            }
    launches++;
}
