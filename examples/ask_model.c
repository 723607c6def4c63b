/* A client of serve_model.c: sends standard input as requests and prints the answers, one number per line.
 *
 *     ask_model SOCKET < samples
 *
 * Another process sends while this one receives: the server answers each sample at once, and waits for room if nobody reads
 * its answers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int print_error(const char *what) {
    fprintf(stderr, "ask_model: %s: %s\n", what, strerror(errno));
    return 1;
}

/* Sends all of standard input, then tells the server that no more follows. */
static int send_input(int server) {
    char chunk[65536];
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, stdin)) > 0;)
        for (size_t done = 0; done < got;) {
            ssize_t sent = send(server, chunk + done, got - done, MSG_NOSIGNAL);
            if (sent < 0) return print_error("cannot send");
            done += (size_t)sent;
        }
    return shutdown(server, SHUT_WR) == 0 ? 0 : print_error("cannot send");
}

static int print_answers(int server) {
    FILE *answers = fdopen(server, "rb");
    if (!answers) return print_error("cannot receive");
    float number;
    int count = 0, failed;
    for (; fread(&number, sizeof number, 1, answers) == 1; count = 1) printf("%.9g\n", (double)number);
    failed = ferror(answers);
    fclose(answers);
    if (failed) return print_error("cannot receive");
    if (count) return 0;
    fprintf(stderr, "ask_model: no answer: expected the bytes of one or more samples on standard input\n");
    return 1;
}

/* Returns the exit status of the process that sends. */
static int wait_for(pid_t sender) {
    int status;
    while (waitpid(sender, &status, 0) < 0)
        if (errno != EINTR) return print_error("cannot wait for the process that sends");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: %s SOCKET < SAMPLES\n", argv[0]);
        return 2;
    }
    memcpy(address.sun_path, argv[1], strlen(argv[1]) + 1);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (const struct sockaddr *)&address, sizeof address) != 0)
        return print_error(argv[1]);
    pid_t sender = fork();
    if (sender < 0) return print_error("cannot start a process");
    if (sender == 0) _exit(send_input(server));
    int failed = print_answers(server);
    return wait_for(sender) || failed;
}
