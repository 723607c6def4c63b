/* kill -9 at any moment, then --resume, repeatedly: the weights are identical to those of an uninterrupted run.
 *
 * The training process is killed after a random time. After every other kill, files that are not needed to resume
 * (curves, kernels, unfinished saves) are removed too. TUTTI_KILLS sets the minimum number of kills. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "train/fresh_run.h"

enum { EPOCHS = 40, MAX_MICROSECONDS = 150000 };

/* Trains or resumes, and writes the digest to a file when the run is complete. Returns the exit status of the
 * child. */
static int train_in_child(const char *folder, const char *digest_path) {
    tu_train_result result = TU_SIZED(tu_train_result);
    tu_status status = tu_train("mlp", NULL, &result, .set = set, .out = folder, .resume = true, SMALL_RUN,
                                .epochs = EPOCHS, .optimizer = "adam", .rate = 0.003, .schedule = "cosine",
                                .pad = 1, .flip = 1, .average = 0.99, .checkpoint_every = 3);
    if (status != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        return 1;
    }
    FILE *file = fopen(digest_path, "w");
    if (!file) return 1;
    fputs(result.digest, file);
    return fclose(file) == 0 ? 0 : 1;
}

/* Runs a child and kills it after `microseconds` (negative: never). Returns true if it finished. */
static bool run_child(const char *folder, const char *digest_path, long microseconds) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(train_in_child(folder, digest_path));
    if (microseconds >= 0) {
        nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
        kill(child, SIGKILL);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return false;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return true;
}

static void read_digest(const char *path, char digest[TU_DIGEST_TEXT]) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(digest, TU_DIGEST_TEXT, file));
    fclose(file);
}

static void remove_optional_files(const char *folder) {
    if (access(folder, F_OK) != 0) return; /* killed before the folder was created */
    command("cd '%s' && rm -f curves.svg kernels.txt events.out.* checkpoints/.tutti-*", folder);
}

static void killed_and_resumed_runs_are_bit_identical(void **state) {
    (void)state;
    const char *kills_text = getenv("TUTTI_KILLS");
    int kills_wanted = kills_text ? atoi(kills_text) : 5, kills = 0;
    struct scratch_path whole = in_scratch("whole.digest"), resumed = in_scratch("resumed.digest");
    char expected[TU_DIGEST_TEXT], digest[TU_DIGEST_TEXT], name[32];
    assert_true(run_child(in_scratch("whole").text, whole.text, -1));
    read_digest(whole.text, expected);
    srand(20261115);
    for (int run = 0; kills < kills_wanted; run++) {
        snprintf(name, sizeof name, "run-%d", run);
        struct scratch_path folder = in_scratch(name);
        int before = kills;
        /* Longer each time, so that a run finishes on slow machines too. */
        long max_delay = MAX_MICROSECONDS;
        while (!run_child(folder.text, resumed.text, rand() % max_delay)) {
            if (kills++ % 2) remove_optional_files(folder.text);
            if (max_delay < 900000000 / 2 / 1000) max_delay += max_delay / 4;
            if (kills - before > 40) {
                assert_true(run_child(folder.text, resumed.text, -1));
                break;
            }
        }
        read_digest(resumed.text, digest);
        assert_string_equal(digest, expected);
    }
    print_message("%d kills\n", kills);
}

int main(void) {
    const struct CMUnitTest tests[] = {fresh(killed_and_resumed_runs_are_bit_identical)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
