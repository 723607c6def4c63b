/* A client of serve_model.c: sends standard input as requests and prints the answers, one number per line.
 *
 *     ask_model SOCKET < sample
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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
            ssize_t sent = write(server, chunk + done, got - done);
            if (sent < 0) return print_error("cannot send");
            done += (size_t)sent;
        }
    return shutdown(server, SHUT_WR) == 0 ? 0 : print_error("cannot send");
}

static int print_answers(int server) {
    FILE *answers = fdopen(server, "rb");
    if (!answers) return print_error("cannot receive");
    float number;
    while (fread(&number, sizeof number, 1, answers) == 1) printf("%.9g\n", (double)number);
    int failed = ferror(answers);
    fclose(answers);
    return failed ? print_error("cannot receive") : 0;
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: %s SOCKET < SAMPLE\n", argv[0]);
        return 2;
    }
    memcpy(address.sun_path, argv[1], strlen(argv[1]) + 1);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (const struct sockaddr *)&address, sizeof address) != 0)
        return print_error(argv[1]);
    return send_input(server) || print_answers(server);
}
