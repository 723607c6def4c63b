/* A server: loads a model file once and answers requests on a Unix socket, from several threads.
 *
 *     serve_model FILE SOCKET [THREADS]
 *
 * A request is one sample: the bytes of the model's input. The answer is the first output for it. A connection may send any
 * number of requests, one after another; each thread serves one connection at a time. examples/systemd has a unit that runs
 * it, and ask_model.c is a client. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <tutti/model.h>

enum { MAX_THREADS = 256 };

static tu_model *model;
static int listener = -1;

/* A thread, and its connection, which the main thread ends when the server stops. */
static struct worker {
    pthread_t thread;
    int connection; /* -1: none */
} workers[MAX_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `connection` and `stopped` */
static bool stopped;

static int print_error(const char *what, const char *why) {
    fprintf(stderr, "serve_model: %s: %s\n", what, why);
    return 1;
}

/* ---- One connection ---- */

/* Reads `size` bytes. Returns false if the client has closed the connection. */
static bool receive(int connection, char *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(connection, bytes + done, size - done);
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) done += (size_t)got;
    }
    return true;
}

static bool reply(int connection, const char *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(connection, bytes + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) return false;
        if (sent > 0) done += (size_t)sent;
    }
    return true;
}

static void answer_requests(int connection) {
    tu_type input = {0}, output = {0};
    tu_model_input(model, 0, NULL, &input);
    tu_model_output(model, 0, NULL, &output);
    size_t input_bytes = tu_type_bytes(input), output_bytes = tu_type_bytes(output);
    char *request = malloc(input_bytes), *result = malloc(output_bytes);
    while (request && result && receive(connection, request, input_bytes)) {
        if (tu_model_run(model, 1, request, result) != TU_OK) {
            print_error("a request failed", tu_message());
            break;
        }
        if (!reply(connection, result, output_bytes)) break;
    }
    free(request);
    free(result);
}

/* Returns false if the server has stopped. */
static bool set_connection(struct worker *worker, int connection) {
    pthread_mutex_lock(&lock);
    worker->connection = connection;
    bool goes_on = !stopped;
    pthread_mutex_unlock(&lock);
    return goes_on;
}

static void *work(void *context) {
    struct worker *worker = context;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection >= 0 && set_connection(worker, connection)) answer_requests(connection);
        bool goes_on = set_connection(worker, -1);
        if (connection >= 0) close(connection);
        if (!goes_on) return NULL;
        if (connection < 0) usleep(10000); /* too many open files, for example: others may be closed soon */
    }
}

/* ---- The server ---- */

static bool listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    unlink(path); /* left by a server that was killed */
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return listener >= 0 && bind(listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
           listen(listener, 64) == 0;
}

/* Ends all connections, so that the threads return. */
static void stop(int count) {
    pthread_mutex_lock(&lock);
    stopped = true;
    shutdown(listener, SHUT_RDWR);
    for (int i = 0; i < count; i++)
        if (workers[i].connection >= 0) shutdown(workers[i].connection, SHUT_RDWR);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
}

/* Serves until the process gets SIGTERM or SIGINT, which are blocked in all threads. */
static int serve(const char *path, int threads) {
    sigset_t signals;
    int started = 0, signal_number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (!listen_at(path)) return print_error(path, strerror(errno));
    for (; started < threads; started++) {
        workers[started].connection = -1;
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) break;
    }
    tu_model_memory_report memory = TU_SIZED(tu_model_memory_report);
    if (tu_model_memory(model, &memory) == TU_OK)
        printf("ready on %s: %s, %d threads, %.1f MB\n", path, memory.device, started,
               (double)memory.total_bytes / 1e6);
    fflush(stdout);
    if (started == threads) sigwait(&signals, &signal_number);
    stop(started);
    unlink(path);
    return started == threads ? 0 : print_error("cannot start a thread", "use fewer");
}

int main(int argc, char **argv) {
    int threads = argc == 4 ? (int)strtol(argv[3], NULL, 10) : 4;
    if ((argc != 3 && argc != 4) || threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "usage: %s FILE SOCKET [THREADS]\n", argv[0]);
        return 2;
    }
    if (tu_model_load(argv[1], &model, .threads = 1, .max_batch = 1, .sessions = threads) != TU_OK)
        return print_error(argv[1], tu_message());
    int outcome = serve(argv[2], threads);
    if (listener >= 0) close(listener);
    tu_model_free(model);
    return outcome;
}
