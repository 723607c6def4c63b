/* Writes the command line of mpirun or srun. See launch_command.h.
 *
 * No shell reads it: mpirun and srun are executed with the words as they are. mpirun itself starts its daemons on other
 * hosts through ssh, and there a shell reads what mpirun has written; the names of hosts are checked (host_file.c). */
#include "cli/launch_command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launched.h"
#include "cli/report.h"

extern char **environ;

/* ---- Lists of words ---- */

void word_list_add(struct word_list *list, const char *format, ...) {
    if (list->count + 2 > list->size) {
        size_t size = list->size ? 2 * list->size : 64;
        char **words = realloc(list->words, size * sizeof *words);
        if (words) list->words = words;
        if (words) list->size = size;
        list->failed = list->failed || !words;
    }
    if (list->failed) return;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&list->words[list->count], format, arguments) < 0)
        list->failed = true;
    else
        list->count++;
    va_end(arguments);
    list->words[list->count] = NULL;
}

void word_list_free(struct word_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->words[i]);
    free(list->words);
    *list = (struct word_list){0};
}

static void print_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+";
    if (*word && strspn(word, plain) == strlen(word)) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    }
    putchar('\'');
}

void word_list_print(const struct word_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0) putchar(' ');
        print_word(list->words[i]);
    }
    putchar('\n');
}

/* ---- Choosing and checking the launcher ---- */

enum launcher launch_choose(enum launcher given, bool has_hosts) {
    if (given != LAUNCHER_AUTO) return given;
    return getenv("SLURM_JOB_ID") && !has_hosts ? LAUNCHER_SRUN : LAUNCHER_MPIRUN;
}

/* Runs `program --version` and returns the first line that it prints on standard output; "" if it cannot be run. */
struct version_line {
    char text[160];
};
static struct version_line read_version(char *program) {
    struct version_line line = {""};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return line;
    pid_t child = fork();
    if (child == 0) {
        char *words[] = {program, "--version", NULL};
        dup2(ends[1], STDOUT_FILENO);
        execvp(program, words);
        _exit(127);
    }
    close(ends[1]);
    FILE *file = child > 0 ? fdopen(ends[0], "r") : NULL;
    if (file && !fgets(line.text, sizeof line.text, file)) line.text[0] = '\0';
    for (char rest[256]; file && fgets(rest, sizeof rest, file);) {} /* so that it is not killed by SIGPIPE */
    if (file)
        fclose(file);
    else
        close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    line.text[strcspn(line.text, "\n")] = '\0';
    return line;
}

int launch_check(enum launcher launcher) {
    bool is_srun = launcher == LAUNCHER_SRUN;
    struct version_line version = read_version(is_srun ? "srun" : "mpirun");
    if (!*version.text && is_srun)
        return cli_input_error("launch: srun cannot be run: install Slurm's commands (Debian: apt install "
                               "slurm-client), or use --launcher mpirun");
    if (!*version.text)
        return cli_input_error(
            "launch: mpirun cannot be run: install Open MPI (Debian: apt install openmpi-bin)");
    if (is_srun || strstr(version.text, "Open MPI")) return CLI_DONE;
    return cli_input_error(
        "launch: mpirun is not that of Open MPI: it says %s; put Open MPI's first on the PATH",
        cli_quote(version.text).text);
}

/* ---- mpirun ---- */

static bool is_tutti_variable(const char *entry) {
    return strncmp(entry, "TUTTI_", 6) == 0 &&
           strncmp(entry, CLI_LAUNCH_VARIABLE "=", strlen(CLI_LAUNCH_VARIABLE) + 1) != 0;
}

/* Other hosts get only the variables that mpirun is told to pass on. It does not accept -x beside a list of its own. */
static void add_variables(struct word_list *words) {
    static const char list_name[] = "mca_base_env_list";
    const char *list = getenv("OMPI_MCA_mca_base_env_list");
    if (!list) {
        word_list_add(words, "-x");
        word_list_add(words, "%s=1", CLI_LAUNCH_VARIABLE);
        for (char **entry = environ; *entry; entry++) {
            if (!is_tutti_variable(*entry)) continue;
            word_list_add(words, "-x");
            word_list_add(words, "%.*s", (int)strcspn(*entry, "="), *entry);
        }
        return;
    }
    char *text = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) {
        words->failed = true;
        return;
    }
    fprintf(memory, "%s;%s=1", list, CLI_LAUNCH_VARIABLE);
    for (char **entry = environ; *entry; entry++)
        if (is_tutti_variable(*entry)) fprintf(memory, ";%.*s", (int)strcspn(*entry, "="), *entry);
    if (fclose(memory) != 0) words->failed = true;
    word_list_add(words, "--mca");
    word_list_add(words, "%s", list_name);
    word_list_add(words, "%s", text ? text : "");
    free(text);
}

static void add_hosts(struct word_list *words, const struct cli_hosts *hosts) {
    char *text = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) {
        words->failed = true;
        return;
    }
    for (size_t i = 0; i < hosts->count; i++)
        fprintf(memory, "%s%s:%d", i ? "," : "", hosts->list[i].name, (int)hosts->list[i].slots);
    if (fclose(memory) != 0) words->failed = true;
    word_list_add(words, "--host");
    word_list_add(words, "%s", text ? text : "");
    free(text);
}

/* Each process divides the cores of its host with the others, so mpirun need not bind them. */
static void add_mpirun(struct word_list *words, const struct launch_command *command) {
    word_list_add(words, "mpirun");
    if (geteuid() == 0) word_list_add(words, "--allow-run-as-root");
    word_list_add(words, "-n");
    word_list_add(words, "%lld", (long long)command->processes);
    if (command->hosts)
        add_hosts(words, command->hosts);
    else if (!getenv("SLURM_JOB_ID"))
        word_list_add(words, "--oversubscribe");
    if (!getenv("OMPI_MCA_hwloc_base_binding_policy")) {
        word_list_add(words, "--bind-to");
        word_list_add(words, "none");
    }
    add_variables(words);
}

/* If a host is cut off, mpirun notices only when its connection to the daemon there fails, by default after eight
 * minutes. Here it does so after 70 s: Tutti's processes, which say more, end after 60 s if any of them is left.
 *
 * With the default fence of Slurm's PMIx plug-in, processes on several busy hosts sometimes crash in MPI_Init (see
 * tests/dist/README.md). */
void launch_set_environment(enum launcher launcher) {
    if (launcher == LAUNCHER_SRUN) {
        setenv("SLURM_PMIX_FENCE", "ring", 0);
        return;
    }
    setenv("OMPI_MCA_oob_tcp_keepalive_time", "20", 0);
    setenv("OMPI_MCA_oob_tcp_keepalive_intvl", "10", 0);
    setenv("OMPI_MCA_oob_tcp_keepalive_probes", "5", 0);
}

/* ---- srun ---- */

/* Since Slurm 22.05 srun does not take the number of cores of a process from the allocation. */
static void add_srun(struct word_list *words, const struct launch_command *command) {
    const char *cores = getenv("SLURM_CPUS_PER_TASK");
    word_list_add(words, "srun");
    word_list_add(words, "--mpi=pmix");
    word_list_add(words, "-n");
    word_list_add(words, "%lld", (long long)command->processes);
    if (cores && !getenv("SRUN_CPUS_PER_TASK")) word_list_add(words, "--cpus-per-task=%s", cores);
    word_list_add(words, "--export=ALL,%s=1", CLI_LAUNCH_VARIABLE);
}

/* ---- Tutti ---- */

/* The program that runs now: another one of this name on the PATH of a host may be of another version. */
static void add_program(struct word_list *words) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) {
        words->failed = true;
        return;
    }
    path[length] = '\0';
    word_list_add(words, "%s", path);
}

/* The options to resume come first, so that they are options also if the arguments contain "--". If the arguments
 * have --out, it names the same folder. */
static void add_arguments(struct word_list *words, const struct launch_command *command) {
    word_list_add(words, "%s", command->arguments[0]);
    if (command->resumes) word_list_add(words, "--resume");
    if (command->resumes && *command->folder) word_list_add(words, "--out=%s", command->folder);
    for (int i = 1; i < command->argument_count; i++) word_list_add(words, "%s", command->arguments[i]);
}

int launch_write_command(const struct launch_command *command, struct word_list *words) {
    if (command->launcher == LAUNCHER_SRUN)
        add_srun(words, command);
    else
        add_mpirun(words, command);
    add_program(words);
    add_arguments(words, command);
    return words->failed ? cli_fail("launch: out of memory for the command line") : CLI_DONE;
}
