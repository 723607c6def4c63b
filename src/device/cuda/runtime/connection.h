/* Connections to the GPUs of other processes, through NCCL.
 *
 * A connection carries bytes between this process and all others; what is added in which order is decided elsewhere
 * (process_collective.c). It belongs to one GPU of this process. All programs of the same processes share it. NCCL needs the
 * same operations in the same order in all processes, and one order of all streams that use it: those of a process wait
 * for each other by events, or the host waits in between.
 *
 * The communicator is non-blocking: no call of NCCL waits for other processes without the connection's deadline, and
 * none waits once the processes are known to be broken (`check` of tu_processes). cuda_connect() makes all
 * transports, by a first exchange, so later calls find them ready. */
#ifndef TU__DEVICE_CUDA_RUNTIME_CONNECTION_H
#define TU__DEVICE_CUDA_RUNTIME_CONNECTION_H

#include "device/cuda/runtime/cuda.h"
#include "device/cuda/runtime/nccl.h"

typedef struct cuda_connection cuda_connection;

/* Connects a GPU to one of every other process; all must call it. Fails with TU_UNSUPPORTED in all processes if one of
 * them cannot. Each success must be followed by cuda_disconnect(). */
tu_status cuda_connect(cuda_device *device, const tu_processes *processes, cuda_connection **connection);
/* The last one frees the communicator, unless a process is lost: that could wait for it. CUDA graphs with exchanges must
 * be destroyed before. NULL is ignored. */
void cuda_disconnect(cuda_connection *connection);

/* Returns the open connection to these processes; NULL (message set) if there is none. */
cuda_connection *cuda_connection_to(const tu_processes *processes);
/* The GPU that is connected. */
cuda_device *cuda_connection_device(const cuda_connection *connection);

/* Fails if a process is lost, or if NCCL reports an error of the connection. */
tu_status cuda_connection_check(const cuda_connection *connection);
/* The same, and tells the engine when exchanges have ended since the last call. One thread at a time may call it. Makes the
 * connected GPU current. */
tu_status cuda_connection_watch(cuda_connection *connection);

/* Tells all processes the low bits of a number, and gets theirs: cuda_connection_flags() returns all of them, combined by
 * or, once `*sent` has happened. The host must wait for it before the next exchange. */
tu_status cuda_connection_send_flags(cuda_connection *connection, unsigned char flags, CUevent *sent);
unsigned cuda_connection_flags(const cuda_connection *connection);

/* Returns GPU memory of at least `bytes` that all users of the connection share, one after another; 0 (message set) if
 * there is not enough. It keeps its address until the connection ends. */
CUdeviceptr cuda_connection_staging(cuda_connection *connection, size_t bytes);

/* Enqueues transfers, which progress together; large ones in parts, one after another. May be captured. */
tu_status cuda_exchange(cuda_connection *connection, uint32_t count, const cuda_transfer *transfers,
                        CUstream stream);

#endif
