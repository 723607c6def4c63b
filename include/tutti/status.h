/* Status codes and messages: how every call of Tutti reports failure.
 *
 * A function that can fail returns a tu_status. TU_OK is zero; for anything else tu_message() holds one line that
 * says what was wrong, with which value, what was expected and what to do. The message belongs to the calling
 * thread and lasts until that thread's next failing call.
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

/* One list; it expands into the enum here and into names in src/base/status.c. */
#define TU_STATUS_LIST(X)                                                                                    \
    X(OK, "ok")                                                                                              \
    X(INVALID, "invalid argument")  /* a shape, type, axis, option or name that cannot be */                 \
    X(NO_MEMORY, "out of memory")   /* the engine's allocator could not serve a request */                   \
    X(NOT_FOUND, "not found")       /* a name that nothing answers to */                                     \
    X(CORRUPT, "corrupt data")      /* a file or buffer that breaks its format */                            \
    X(IO, "input/output error")     /* the operating system refused a read or a write */                     \
    X(UNSUPPORTED, "unsupported")   /* valid, but this operation or device does not offer it */              \
    X(NUMERIC, "numerical failure") /* a singular matrix, a step that is not finite */                       \
    X(INTERNAL, "internal error")   /* a bug of the engine: please report it */                              \
    X(DEVICE, "device failure")     /* a device, its driver or its libraries failed or are gone */

typedef enum tu_status {
#define TU_STATUS_ENUM(name, text) TU_##name,
    TU_STATUS_LIST(TU_STATUS_ENUM)
#undef TU_STATUS_ENUM
} tu_status;

/* The text of a status code ("invalid argument"). */
TU_API const char *tu_status_text(tu_status status);

/* The message of this thread's latest failure; "" if there was none. */
TU_API const char *tu_message(void);

/* Sets this thread's message and returns `status`: for custom operations and callbacks that fail. */
TU_API tu_status tu_fail(tu_status status, const char *format, ...) TU_PRINTF(2, 3);

/* Returns from the current function when `call` fails; the message stays as the callee set it. */
#define TU_TRY(call)                                                                                         \
    do {                                                                                                     \
        tu_status tu_try_status_ = (call);                                                                   \
        if (tu_try_status_ != TU_OK) return tu_try_status_;                                                  \
    } while (0)

/* The library's version ("0.1.0"), and the version of its binary interface: a program compiled against one
 * TU_ABI runs with any library that reports the same number. */
#define TU_ABI 2
TU_API const char *tu_version(void);
TU_API int tu_abi(void);

#ifdef __cplusplus
}
#endif
#endif
