/* Asynchronous copies from global to shared memory, so that a block fetches its next data while it computes.
 *
 *     copy_async<16>(to, from, inside);   // per thread; writes zeros if not `inside`
 *     …                                   // anything that does not access `to`
 *     wait_for_copies();                  // the copies of this thread are done,
 *     __syncthreads();                    // and those of all threads
 *
 * For several stages on their way: commit_copies() ends a group of copies, and wait_for_copies_but<N>() waits for all
 * groups but the last N.
 *
 * Both addresses are multiples of BYTES: 4, 8 or 16. Of 16, copy_async<16, true> also keeps them in the L1 cache, for words that
 * the multiprocessor reads again. Needs compute capability 8.0; the emulated GPU copies
 * synchronously.
 */
#ifndef TU_ASYNC
#define TU_ASYNC

#include "prelude.cuh"

#ifndef TU_EMULATED
template <int BYTES, bool REUSED = BYTES != 16>
__device__ inline void copy_async(u32 *to, const void *from, bool inside) {
    u32 address = (u32)__cvta_generic_to_shared(to);
    if (!REUSED) /* bypasses the L1 cache: it is read once */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(address), "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(address), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0)
                     : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int GROUPS> __device__ inline void wait_for_copies_but() {
    asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
}
#else
template <int BYTES, bool REUSED = false>
__device__ inline void copy_async(u32 *to, const void *from, bool inside) {
    typedef pack<u32, BYTES / 4> words;
    *(words *)to = inside ? *(const words *)from : words{};
}
__device__ inline void wait_for_copies() {}
__device__ inline void commit_copies() {}
template <int GROUPS> __device__ inline void wait_for_copies_but() {}
#endif

#endif
