/* Studies in a file, with SQLite. See sql.h. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/shared_library.h"
#include "tune/sql.h"

/* ---- The library ----
 *
 * The functions that are used, as sqlite3.h declares them. */

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

enum {
    SQLITE_OK = 0,
    SQLITE_BUSY = 5,
    SQLITE_LOCKED = 6,
    SQLITE_READONLY = 8,
    SQLITE_CORRUPT = 11,
    SQLITE_FULL = 13,
    SQLITE_CANTOPEN = 14,
    SQLITE_NOTADB = 26,
    SQLITE_ROW = 100,
    SQLITE_DONE = 101,
    SQLITE_FLOAT = 2,
    SQLITE_NULL = 5,
    SQLITE_OPEN_READWRITE = 2,
    SQLITE_OPEN_CREATE = 4,
    SQLITE_OPEN_FULLMUTEX = 0x10000,
    BUSY_MS = 2000, /* for which SQLite itself waits for other processes */
};

#define SQLITE_FUNCTIONS(X)                                                                                  \
    X(int, open_v2, (const char *, sqlite3 **, int, const char *))                                           \
    X(int, close_v2, (sqlite3 *))                                                                            \
    X(const char *, errmsg, (sqlite3 *))                                                                     \
    X(int, busy_timeout, (sqlite3 *, int))                                                                   \
    X(int, prepare_v2, (sqlite3 *, const char *, int, sqlite3_stmt **, const char **))                       \
    X(int, finalize, (sqlite3_stmt *))                                                                       \
    X(int, step, (sqlite3_stmt *))                                                                           \
    X(int, bind_parameter_index, (sqlite3_stmt *, const char *))                                             \
    X(int, bind_int64, (sqlite3_stmt *, int, long long))                                                     \
    X(int, bind_double, (sqlite3_stmt *, int, double))                                                       \
    X(int, bind_text, (sqlite3_stmt *, int, const char *, int, void (*)(void *)))                            \
    X(int, bind_null, (sqlite3_stmt *, int))                                                                 \
    X(int, column_count, (sqlite3_stmt *))                                                                   \
    X(int, column_type, (sqlite3_stmt *, int))                                                               \
    X(double, column_double, (sqlite3_stmt *, int))                                                          \
    X(const unsigned char *, column_text, (sqlite3_stmt *, int))                                             \
    X(int, changes, (sqlite3 *))

static struct {
#define X(type, name, arguments) type(*name) arguments;
    SQLITE_FUNCTIONS(X)
#undef X
} api;
static pthread_once_t api_once = PTHREAD_ONCE_INIT;
static char api_error[512];

static void *find_function(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function && !*api_error) snprintf(api_error, sizeof api_error, "it has no function %s", name);
    return function;
}

static void load_api(void) {
    void *library = tu__shared_library_open("libsqlite3.so.0");
    if (!library) {
        snprintf(api_error, sizeof api_error, "%s", tu__shared_library_error());
        return;
    }
#define X(type, name, arguments) *(void **)&api.name = find_function(library, "sqlite3_" #name);
    SQLITE_FUNCTIONS(X)
#undef X
}

/* ---- Failures ---- */

static tu_status fail(tu__sql *sql, int code) {
    int kind = code & 0xFF;
    sqlite3 *db = sql->connection;
    sql->may_retry = kind == SQLITE_BUSY || kind == SQLITE_LOCKED;
    const char *reason = db ? api.errmsg(db) : "out of memory", *advice = "";
    if (kind == SQLITE_READONLY) advice = ": the file or its folder is read-only";
    if (kind == SQLITE_FULL) advice = ": nothing was lost; free space, then start the command again";
    if (kind == SQLITE_BUSY) advice = ": another process uses it";
    if (kind == SQLITE_CANTOPEN && !sql->create)
        return tu_fail(TU_NOT_FOUND, "study '%s': %s", sql->shown, reason);
    tu_status status = kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB ? TU_CORRUPT : TU_IO;
    return tu_fail(status, "study '%s': %s%s", sql->shown, reason, advice);
}

/* ---- Opening ---- */

static void close_database(tu__sql *sql) {
    if (sql->connection) api.close_v2(sql->connection);
    sql->connection = NULL;
}

static tu_status open_database(tu__sql *sql) {
    sqlite3 *db = NULL;
    pthread_once(&api_once, load_api);
    if (*api_error)
        return tu_fail(
            TU_UNSUPPORTED,
            "study '%s': SQLite (libsqlite3.so.0) cannot be opened: %s; install it (Debian: libsqlite3-0)",
            sql->shown, api_error);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | (sql->create ? SQLITE_OPEN_CREATE : 0);
    int code = api.open_v2(sql->address, &db, flags, NULL);
    sql->connection = db;
    if (code == SQLITE_OK) {
        api.busy_timeout(db, BUSY_MS);
        return TU_OK;
    }
    tu_status status = fail(sql, code);
    close_database(sql);
    return status;
}

/* ---- Statements ---- */

static int bind(sqlite3_stmt *statement, int index, const tu__sql_value *value) {
    switch (value->kind) {
    case TU__SQL_INTEGER: return api.bind_int64(statement, index, value->integer);
    case TU__SQL_REAL: return api.bind_double(statement, index, value->real);
    case TU__SQL_TEXT:
        return api.bind_text(statement, index, value->text, -1, NULL); /* outlives the statement */
    case TU__SQL_NULL: break;
    }
    return api.bind_null(statement, index);
}

static int bind_all(sqlite3_stmt *statement, size_t count, const tu__sql_value *values) {
    int code = SQLITE_OK;
    for (size_t i = 0; i < count && code == SQLITE_OK; i++) {
        char name[24];
        snprintf(name, sizeof name, "$%zu", i + 1);
        int index = api.bind_parameter_index(statement, name);
        if (index) code = bind(statement, index, &values[i]);
    }
    return code;
}

static tu_status read_row(sqlite3_stmt *statement, tu__sql_result *result) {
    const char **row = tu__sql_add_row(result);
    if (!row) return TU_NO_MEMORY;
    for (int i = 0; i < (int)result->columns; i++) {
        char number[TU__NUMBER_TEXT];
        int type = api.column_type(statement, i);
        if (type == SQLITE_NULL) continue;
        /* SQLite's own text of a number has 15 digits. */
        if (type == SQLITE_FLOAT) tu__format_number(api.column_double(statement, i), number);
        row[i] = tu__arena_string(
            &result->arena, type == SQLITE_FLOAT ? number : (const char *)api.column_text(statement, i));
        if (!row[i]) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status run(tu__sql *sql, const char *text, size_t count, const tu__sql_value *values,
                     tu__sql_result *result) {
    sqlite3_stmt *statement = NULL;
    int code = api.prepare_v2(sql->connection, text, -1, &statement, NULL);
    if (code != SQLITE_OK) return fail(sql, code);
    tu_status status = TU_OK;
    code = bind_all(statement, count, values);
    result->columns = (size_t)api.column_count(statement);
    if (code == SQLITE_OK)
        while (status == TU_OK && (code = api.step(statement)) == SQLITE_ROW)
            status = read_row(statement, result);
    if (status == TU_OK && code != SQLITE_DONE) status = fail(sql, code);
    if (status == TU_OK) result->changed = api.changes(sql->connection);
    api.finalize(statement);
    return status;
}

/* The file is on one host, so this host's clock is everybody's. */
static tu_status read_clock(tu__sql *sql, double *seconds) {
    (void)sql;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    *seconds = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    return TU_OK;
}

/* IMMEDIATE takes the lock for writing at once: two processes that read first and then wanted to write would be in each
 * other's way. */
const tu__sql_driver tu__sql_sqlite = {.begin = "BEGIN IMMEDIATE",
                                       .begin_read = "BEGIN",
                                       .open = open_database,
                                       .close = close_database,
                                       .run = run,
                                       .now = read_clock};
