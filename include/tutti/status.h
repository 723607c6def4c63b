/* Status codes and messages: how every call of Tutti reports failure.
 *
 * A function that can fail returns a tu_status. TU_OK is zero. After any other status tu_message() returns one line
 * that says what was wrong, with which value, what was expected and what to do. Every thread has its own message,
 * which stays until the next call that fails in that thread.
 *
 *     if (tu_compile(g, &program) != TU_OK) {
 *         fprintf(stderr, "%s\n", tu_message());
 *         return 2;
 *     }
 */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H

#if defined(__GNUC__)
#define TU_API __attribute__((visibility("default")))
#define TU_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TU_API
#define TU_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The status codes. New ones are added at the end. */
#define TU_STATUS_LIST(X)                                                                                    \
    X(OK, "ok")                                                                                              \
    X(INVALID, "invalid argument")  /* a shape, type, axis, option or name is wrong */                       \
    X(NO_MEMORY, "out of memory")   /* an allocation failed, or a program does not fit its devices */        \
    X(NOT_FOUND, "not found")       /* no object has this name or index */                                   \
    X(CORRUPT, "corrupt data")      /* a file or buffer is damaged */                                        \
    X(IO, "input/output error")     /* a read or a write failed */                                           \
    X(UNSUPPORTED, "unsupported")   /* valid, but this operation or device does not support it */            \
    X(NUMERIC, "numerical failure") /* a singular matrix, or a step with values that are not finite */       \
    X(INTERNAL, "internal error")   /* a bug in the library: please report it */                             \
    X(DEVICE, "device failure")     /* a device, its driver or its libraries failed */                       \
    X(LOST, "lost process")         /* another process of the group ended, is late or has failed */

typedef enum tu_status {
#define TU_STATUS_ENUM(name, text) TU_##name,
    TU_STATUS_LIST(TU_STATUS_ENUM)
#undef TU_STATUS_ENUM
} tu_status;

/* Returns the text of a status code, such as "invalid argument". */
TU_API const char *tu_status_text(tu_status status);

/* Returns the message of this thread's latest failure; "" if there was none. */
TU_API const char *tu_message(void);

/* Sets this thread's message and returns `status`. For custom operations and callbacks that fail. */
TU_API tu_status tu_fail(tu_status status, const char *format, ...) TU_PRINTF(2, 3);

/* Returns from the current function if `call` fails. The message stays as the callee set it. */
#define TU_TRY(call)                                                                                         \
    do {                                                                                                     \
        tu_status tu_try_status_ = (call);                                                                   \
        if (tu_try_status_ != TU_OK) return tu_try_status_;                                                  \
    } while (0)

/* TU_ABI is the version of the binary interface. A program that was compiled with one TU_ABI runs with every library
 * whose tu_abi() returns the same number, older or newer:
 *
 * - Structures that begin with struct_size grow at their end. The library reads from the size which fields a program
 *   has, so callers always set it: TU_OPTIONS for options, TU_SIZED for results (graph.h).
 * - All other structures are frozen: tu_shape, tu_type, tu_value, tu_init, tu_axes, tu_edge, tu_feed, tu_feed_many,
 *   tu_optimizer_group, tu_json. The structures for device plug-ins are versioned by TU_DEVICE_ABI (device.h).
 * - Constants keep their values; new ones are added at the end of an enum.
 *
 * tu_version() returns the library's version ("0.1.0"). */
#define TU_ABI 4
TU_API const char *tu_version(void);
TU_API int tu_abi(void);

#ifdef __cplusplus
}
#endif
#endif
