/* Clusters: blocks that run at the same time and read each other's shared memory.
 *
 *     __global__ void __cluster_dims__(1, BLOCKS, 1) kernel(…)
 *     …
 *     synchronize_cluster();                      // the others' writes before are visible
 *     load_from_block(address, rank)              // what block `rank` has at the address of a variable of one's own
 *     synchronize_cluster();                      // before a block whose shared memory is read ends or writes it
 *
 * Needs compute capability 9.0. The emulated GPU runs one block after another: kernels let the first block of a cluster compute
 * what all would.
 */
#ifndef TU_CLUSTER
#define TU_CLUSTER

#include "prelude.cuh"

#ifdef TU_EMULATED
#define __cluster_dims__(...)
#else
__device__ inline void synchronize_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" : : : "memory");
}
/* Loads four sums at the address that `mine` has in block `rank` of the cluster. */
__device__ inline pack<float, 4> load_from_block(const float *mine, int rank) {
    pack<float, 4> sums;
    u32 address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(address)
                 : "r"((u32)__cvta_generic_to_shared(mine)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sums.element[0]), "=f"(sums.element[1]), "=f"(sums.element[2]), "=f"(sums.element[3])
                 : "r"(address)
                 : "memory");
    return sums;
}
#endif

#endif
