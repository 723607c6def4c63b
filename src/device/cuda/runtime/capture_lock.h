/* Keeps captures of CUDA graphs apart from calls that synchronise a context.
 *
 * A call that synchronises a context invalidates all captures of its streams, also those of other threads, in every
 * capture mode: the captured calls then fail, or cuStreamEndCapture does. All logical devices of a GPU share one
 * context, so the end of one training could break the capture of another. Some calls synchronise inside:
 *
 *     creating and destroying handles of cuBLASLt, cuDNN and cuSOLVER, and NCCL's communicators
 *     allocating, freeing and pinning memory, of the GPU and of the host
 *     loading and unloading modules, enabling peer access, releasing a context
 *
 * They are made between cuda_sync_lock() and cuda_sync_unlock(), and a thread captures between cuda_capture_lock() and
 * cuda_capture_unlock(). Captures exclude those calls but not each other; those calls exclude everything. CUDA's
 * documentation does not say that destroying streams, events and graphs synchronises, so they are not in the list.
 * Libraries may also synchronise in calls that nobody expects to: a capture that was invalidated is repeated
 * (executable.c).
 *
 * A thread may be in several of these sections at once: only the outermost one locks. A call that synchronises, made
 * by a thread that captures, is an error that the driver reports; it must not block.
 *
 * Lock order: this lock is taken last. A thread that is between these functions takes no other lock of the device,
 * except that kernels take `library_lock` of cuda_device when they are enqueued; whoever holds that one does not
 * synchronise. It also waits for no other thread of the process: what a capture or a connection waits for (NCCL, other
 * processes) is done by threads that do not come here. */
#ifndef TU__DEVICE_CUDA_RUNTIME_CAPTURE_LOCK_H
#define TU__DEVICE_CUDA_RUNTIME_CAPTURE_LOCK_H

/* Before and after a thread captures a stream. */
void cuda_capture_lock(void);
void cuda_capture_unlock(void);
/* Before and after calls that may synchronise a context. */
void cuda_sync_lock(void);
void cuda_sync_unlock(void);

#endif
