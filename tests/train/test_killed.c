/* kill -9 at any moment, then --resume, as often as it takes: the weights are those of a run that nobody killed.
 *
 * The child that trains is killed after a random time; with half of the kills everything that is not needed to go on
 * (curves, kernels, what a save under way left) is removed too. TUTTI_KILLS says how many kills there are at least. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "train/fresh_run.h"

enum { EPOCHS = 40, LONGEST_MICROSECONDS = 150000 };

/* Trains, or goes on, and writes the digest to a file when the run is complete. Returns the child's exit status. */
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

/* One child, killed after `microseconds` (negative: never). Whether it came to its end. */
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

static void drop_what_is_not_needed(const char *folder) {
    if (access(folder, F_OK) != 0) return; /* killed before it was made */
    command("cd '%s' && rm -f curves.svg kernels.txt events.out.* checkpoints/.tutti-*", folder);
}

static void killing_changes_no_bit(void **state) {
    (void)state;
    const char *wanted = getenv("TUTTI_KILLS");
    int kills_wanted = wanted ? atoi(wanted) : 5, kills = 0;
    struct scratch_path whole = in_scratch("whole.digest"), resumed = in_scratch("resumed.digest");
    char expected[TU_DIGEST_TEXT], digest[TU_DIGEST_TEXT], name[32];
    assert_true(run_child(in_scratch("whole").text, whole.text, -1));
    read_digest(whole.text, expected);
    srand(20261115);
    for (int run = 0; kills < kills_wanted; run++) {
        snprintf(name, sizeof name, "run-%d", run);
        struct scratch_path folder = in_scratch(name);
        int before = kills;
        /* Each time a little longer, so that a run comes to its end however slow the machine is. */
        long most = LONGEST_MICROSECONDS;
        while (!run_child(folder.text, resumed.text, rand() % most)) {
            if (kills++ % 2) drop_what_is_not_needed(folder.text);
            if (most < 900000000 / 2 / 1000) most += most / 4;
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
    const struct CMUnitTest tests[] = {fresh(killing_changes_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
