/* Tests which cores a process uses that mpirun has bound. Forks a launcher, and from it the bound process. */
#include "test.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/binding.h"

typedef struct launch {
    const char *launcher;         /* its name */
    const char *variable, *value; /* an option of the user; NULL: none */
    bool bound_at_launch, through_shell;
    int launcher_core; /* the only one it may use; -1: all */
} launch;

enum { OWN = 100, ALL = 101, OTHER = 102 }; /* what the process uses in the end; below: this one core */

static cpu_set_t all;

static int core_of(int index) {
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && index-- == 0) return core;
    return -1;
}

static void use_core(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(OTHER);
}

/* Ends with the exit status of a child. */
static void wait_and_exit(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : OTHER);
}

static void fork_and_wait(void) {
    pid_t child = fork();
    if (child) wait_and_exit(child);
}

/* The process is bound to the second core. */
static void be_launched(const launch *l) {
    cpu_set_t now;
    int own = core_of(1);
    unsetenv("OMPI_MCA_orte_bound_at_launch");
    if (l->bound_at_launch) setenv("OMPI_MCA_orte_bound_at_launch", "1", 1);
    if (l->variable) setenv(l->variable, l->value, 1);
    use_core(own);
    if (l->through_shell) fork_and_wait();
    prctl(PR_SET_NAME, "tutti");
    tu__undo_default_binding();
    sched_getaffinity(0, sizeof now, &now);
    if (CPU_EQUAL(&now, &all)) _exit(ALL);
    if (CPU_COUNT(&now) != 1) _exit(OTHER);
    if (CPU_ISSET(own, &now)) _exit(OWN);
    _exit(CPU_ISSET(core_of(0), &now) ? 0 : OTHER);
}

static int cores_after(launch l) {
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        if (l.launcher_core >= 0) use_core(core_of(l.launcher_core));
        prctl(PR_SET_NAME, l.launcher);
        pid_t bound = fork();
        if (bound) wait_and_exit(bound);
        prctl(PR_SET_NAME, "sh");
        be_launched(&l);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : OTHER;
}

static int needs_two_cores(void) {
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) > 1) return 1;
    print_message("this test needs two cores\n");
    return 0;
}

#define DEFAULT_BINDING .launcher = "mpirun", .bound_at_launch = true

static void the_default_binding_is_undone(void **state) {
    (void)state;
    if (!needs_two_cores()) skip();
    assert_int_equal(cores_after((launch){DEFAULT_BINDING, .launcher_core = -1}), ALL);
    assert_int_equal(cores_after((launch){DEFAULT_BINDING, .launcher_core = -1, .through_shell = true}), ALL);
    assert_int_equal(cores_after((launch){.launcher = "orted", .bound_at_launch = true, .launcher_core = -1}),
                     ALL);
    assert_int_equal(cores_after((launch){DEFAULT_BINDING, .launcher_core = -1,
                                          .variable = "OMPI_MCA_rmaps_base_mapping_policy", .value = "core"}),
                     ALL);
}

static void the_process_stays_on_the_cores_of_mpirun(void **state) {
    (void)state;
    if (!needs_two_cores()) skip();
    assert_int_equal(cores_after((launch){DEFAULT_BINDING, .launcher_core = 0}), 0);
}

static void a_binding_that_the_user_has_chosen_is_kept(void **state) {
    (void)state;
    static const char *const options[][2] = {{"OMPI_MCA_hwloc_base_binding_policy", "core"},
                                             {"OMPI_MCA_hwloc_base_cpu_set", "1"},
                                             {"OMPI_MCA_hwloc_base_cpu_list", "1"},
                                             {"OMPI_MCA_orte_rankfile", "ranks"},
                                             {"OMPI_MCA_rmaps_base_mapping_policy", "slot:PE=1"},
                                             {"OMPI_MCA_rmaps_base_mapping_policy", "slot:pe=1"}};
    if (!needs_two_cores()) skip();
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        assert_int_equal(cores_after((launch){DEFAULT_BINDING, .launcher_core = -1, .variable = options[i][0],
                                              .value = options[i][1]}),
                         OWN);
}

static void without_mpirun_nothing_changes(void **state) {
    (void)state;
    if (!needs_two_cores()) skip();
    assert_int_equal(cores_after((launch){.launcher = "mpirun", .launcher_core = -1}), OWN);
    assert_int_equal(cores_after((launch){.launcher = "bash", .bound_at_launch = true, .launcher_core = -1}),
                     OWN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_binding_is_undone),
        cmocka_unit_test(the_process_stays_on_the_cores_of_mpirun),
        cmocka_unit_test(a_binding_that_the_user_has_chosen_is_kept),
        cmocka_unit_test(without_mpirun_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
