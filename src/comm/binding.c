/* Undoes the default binding of mpirun. See binding.h.
 *
 * mpirun tells its processes in environment variables, the parameters of Open MPI, that they are bound and which options
 * the user gave. It does not say which cores it may use itself. It may even bind to others: `taskset -c 0 mpirun` binds
 * the second process to core 1. */
#include "comm/binding.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool has_text(const char *text, const char *part) {
    for (size_t length = strlen(part); text && *text; text++)
        if (strncasecmp(text, part, length) == 0) return true;
    return false;
}

/* True if the user has said which cores a process gets: by --bind-to, --cpu-set, --cpu-list, a rank file, or
 * --map-by …:PE=n. */
static bool is_chosen(void) {
    static const char *const parameters[] = {"OMPI_MCA_hwloc_base_binding_policy",
                                             "OMPI_MCA_hwloc_base_cpu_set", "OMPI_MCA_hwloc_base_cpu_list",
                                             "OMPI_MCA_orte_rankfile", "OMPI_MCA_rmaps_rank_file_path"};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (getenv(parameters[i])) return true;
    return has_text(getenv("OMPI_MCA_rmaps_base_mapping_policy"), "PE=");
}

static bool is_launcher(const char *name) {
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "orted"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Reads the name of a process, and its parent. */
static bool read_process(pid_t pid, char name[64], pid_t *parent) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    const char *begin = strchr(line, '('); /* PID (NAME) STATE PARENT */
    if (!end || !begin || strlen(end) < 5) return false;
    *end = '\0';
    snprintf(name, 64, "%s", begin + 1);
    *parent = (pid_t)strtol(end + 4, NULL, 10);
    return true;
}

/* Finds the mpirun or orted that has started this process, perhaps through a shell. */
static bool find_launcher(pid_t *launcher) {
    char name[64];
    pid_t parent;
    for (*launcher = getppid(); *launcher > 1; *launcher = parent) {
        if (!read_process(*launcher, name, &parent)) return false;
        if (is_launcher(name)) return true;
    }
    return false;
}

void tu__undo_default_binding(void) {
    pid_t launcher;
    cpu_set_t cores;
    if (!getenv("OMPI_MCA_orte_bound_at_launch") || is_chosen() || !find_launcher(&launcher)) return;
    if (sched_getaffinity(launcher, sizeof cores, &cores) == 0) sched_setaffinity(0, sizeof cores, &cores);
}
