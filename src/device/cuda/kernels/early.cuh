/* Kernels that start early: while the kernel before them in the stream still runs (programmatic dependent launch).
 *
 *     start_next_kernel();       // the next kernel of the stream may start as well, if it is such a kernel
 *     …                          // reads constants only
 *     wait_for_kernels_before(); // all kernels before have ended, and their results are visible
 *     …                          // anything
 *
 * Every thread must wait: a kernel that has ended without waiting would tell the next one that it may begin. Launched in
 * the ordinary way, both do nothing. Needs compute capability 9.0; the emulated GPU runs one kernel after another.
 */
#ifndef TU_EARLY
#define TU_EARLY

#ifndef TU_EMULATED
__device__ inline void start_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" : : : "memory"); }
__device__ inline void wait_for_kernels_before() { asm volatile("griddepcontrol.wait;" : : : "memory"); }
#else
__device__ inline void start_next_kernel() {}
__device__ inline void wait_for_kernels_before() {}
#endif

#endif
