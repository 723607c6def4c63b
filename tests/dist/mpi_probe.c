// Shows what ranks of an MPI program see, to test the hosts and the Slurm cluster of this folder without Tutti.
//
//   mpi_probe nodes             each rank prints its processor name and its place among the ranks of its node
//   mpi_probe bandwidth BYTES   ranks 0 and the last exchange BYTES, both directions in turn; prints the rate
//   mpi_probe signals SECONDS   each rank prints every signal it receives, as it comes, and ends after SECONDS
//   mpi_probe die SECONDS       as signals, but rank 1 kills itself after one second
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int world_rank, world_size;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Ranks of a node share memory: rank 0 of each node writes a number that the others read.
static int show_nodes(void) {
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int rank, size, disp_unit;
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    MPI_Win window;
    int *memory;
    MPI_Win_allocate_shared(rank == 0 ? sizeof *memory : 0, sizeof *memory, MPI_INFO_NULL, node, &memory,
                            &window);
    MPI_Aint bytes;
    MPI_Win_shared_query(window, 0, &bytes, &disp_unit, &memory);
    MPI_Win_fence(0, window);
    if (rank == 0) *memory = world_rank;
    MPI_Win_fence(0, window);
    int first = *memory;
    MPI_Win_free(&window);
    MPI_Comm_free(&node);

    char name[MPI_MAX_PROCESSOR_NAME];
    int length;
    MPI_Get_processor_name(name, &length);
    printf("rank %d of %d on %s: %d of %d on its node, first rank of the node %d\n", world_rank, world_size,
           name, rank, size, first);
    return 0;
}

static int measure_bandwidth(int bytes) {
    int last = world_size - 1;
    char *buffer = calloc((size_t)bytes, 1);
    if (!buffer || world_size < 2) {
        fprintf(stderr, "mpi_probe: bandwidth needs two ranks and memory for %d bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    double begin = 0;
    for (int round = 0; round < 2; round++) { // the first round connects the ranks
        MPI_Barrier(MPI_COMM_WORLD);
        begin = now();
        if (world_rank == 0) {
            MPI_Send(buffer, bytes, MPI_BYTE, last, 0, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_BYTE, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (world_rank == last) {
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    if (world_rank == 0)
        printf("%.3f Gbit/s between ranks 0 and %d, %d bytes each way\n", 16e-9 * bytes / (now() - begin),
               last, bytes);
    free(buffer);
    return 0;
}

// Prints at once: the next signal may be SIGKILL. Only functions that a signal handler may call.
static void show_signal(int number) {
    char line[] = "rank 0000: signal 00\n";
    for (int digit = 8, rest = world_rank; digit >= 5; digit--, rest /= 10)
        line[digit] = (char)('0' + rest % 10);
    line[18] = (char)('0' + number / 10);
    line[19] = (char)('0' + number % 10);
    if (write(STDOUT_FILENO, line, sizeof line - 1) < 0) _exit(3);
}

static int wait_for_signals(double seconds, bool rank_1_dies) {
    static const int signals[] = {SIGTERM, SIGINT, SIGCONT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_handler = show_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %04d: ready\n", world_rank);
    fflush(stdout);
    double begin = now();
    while (now() - begin < seconds) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        if (rank_1_dies && world_rank == 1 && now() - begin > 1) raise(SIGKILL);
    }
    return 0;
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    const char *what = count > 1 ? words[1] : "", *number = count > 2 ? words[2] : "0";
    int status = 2;
    if (!strcmp(what, "nodes"))
        status = show_nodes();
    else if (!strcmp(what, "bandwidth"))
        status = measure_bandwidth(atoi(number));
    else if (!strcmp(what, "signals"))
        status = wait_for_signals(atof(number), false);
    else if (!strcmp(what, "die"))
        status = wait_for_signals(atof(number), true);
    else
        fprintf(stderr, "mpi_probe: '%s': expected nodes, bandwidth, signals or die\n", what);
    MPI_Finalize();
    return status;
}
