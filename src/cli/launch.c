/* `tutti launch -n 4 -- train …`: starts a command as several processes, through mpirun or srun, and restarts a training
 * that has lost one of them.
 *
 * launch_command.c writes the command line, launch_run.c runs it, launched.c is the part of the processes. A process is
 * lost if it was killed, or if the others say so and end with CLI_LOST. One that ends with a status of its own has said
 * why: that would happen again, so nothing is restarted. */
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/process_group.h>

#include "cli/command.h"
#include "cli/host_check.h"
#include "cli/launch_command.h"
#include "cli/launch_run.h"

enum { MAX_PROCESSES = 65536, MAX_RESTARTS = 1000000, STOPPED = 130 /* as `tutti train` */ };

struct launch_values {
    int64_t processes; /* 0: not given */
    const char *hosts;
    int64_t restarts;
    int launcher; /* enum launcher */
    bool dry_run;
};

static const struct launch_values defaults = {.restarts = 3};

static const char *const launchers[] = {"auto", "mpirun", "srun", NULL};

static const struct cli_option options[] = {
    CLI_INT(struct launch_values, processes, "processes", 'n', "N", 1, MAX_PROCESSES,
            "number of processes (default: all slots of --hosts, or the tasks of the Slurm job)"),
    CLI_STRING(struct launch_values, hosts, "hosts", 0, "FILE", "hosts to use, one per line: NAME slots=N"),
    CLI_INT(struct launch_values, restarts, "restarts", 0, "N", 0, MAX_RESTARTS,
            "how often to restart a training that has lost a process"),
    CLI_CHOICE(struct launch_values, launcher, "launcher", 0, "NAME", launchers,
               "program that starts the processes (auto: srun inside a Slurm job, else mpirun)"),
    CLI_FLAG(struct launch_values, dry_run, "dry-run", 0, "print the command that starts the processes"),
    {0},
};

/* ---- The command to start ---- */

struct task {
    const struct cli_command *command;
    char **arguments; /* its name and arguments */
    int count;
    bool trains, has_folder; /* `tutti train`; with --out */
    bool asks_for_help;
};

/* True if the option `name`, which is a text, was given. */
static bool is_given(const struct cli_command *command, const void *values, const char *name) {
    for (const struct cli_option *option = command->options; option && option->name; option++)
        if (strcmp(option->name, name) == 0)
            return *(const char *const *)((const char *)values + option->offset) != NULL;
    return false;
}

/* Checks the options before any process is started. Parsing sorts the arguments, so it gets a copy. */
static int check_arguments(struct task *task) {
    void *values = NULL;
    char **copy = malloc(((size_t)task->count + 1) * sizeof *copy);
    if (!copy) return cli_fail("launch: out of memory");
    memcpy(copy, task->arguments, (size_t)task->count * sizeof *copy);
    int operands = cli_parse_command(task->command, task->count - 1, copy + 1, &values);
    task->asks_for_help = operands == CLI_PARSE_HELP;
    task->has_folder = operands >= 0 && task->trains && is_given(task->command, values, "out");
    free(values);
    free(copy);
    return operands == CLI_PARSE_ERROR ? CLI_BAD_INPUT : CLI_DONE;
}

static int find_task(int count, char **arguments, struct task *task) {
    *task = (struct task){.arguments = arguments, .count = count};
    task->command = cli_find_command(arguments[0]);
    if (!task->command) return CLI_BAD_INPUT;
    if (!task->command->joins_processes)
        return cli_input_error("launch: '%s' runs in one process: expected train or bench",
                               task->command->name);
    for (int i = 1; i < count; i++)
        if (strcmp(arguments[i], ":") == 0)
            return cli_input_error(
                "launch: argument ':': mpirun and srun would take what follows for another "
                "program: expected no such argument");
    task->trains = strcmp(task->command->name, "train") == 0;
    return check_arguments(task);
}

/* ---- Processes and hosts ---- */

struct launch {
    const struct launch_values *values;
    struct task task;
    struct cli_hosts hosts;  /* of --hosts */
    struct cli_hosts in_use; /* those that have answered; its list may be NULL: all */
    int64_t processes;       /* as asked for */
    int64_t restarts;        /* so far */
    int64_t max_processes;   /* if not all hosts answer: train has refused more; 0: any number */
    struct launch_command command;
    char folder[4096]; /* of the training run; "": not known */
};

/* Sets the number of processes: as given, or all slots, or the tasks of the Slurm job. */
static int choose_processes(struct launch *l) {
    const char *tasks = getenv("SLURM_NTASKS");
    if (!tasks) tasks = getenv("SLURM_NNODES"); /* of a job that names no number, as srun counts them */
    int64_t slots = cli_count_slots(&l->hosts);
    l->processes = l->values->processes;
    if (!l->processes && slots) l->processes = slots;
    if (!l->processes && tasks) l->processes = strtoll(tasks, NULL, 10);
    if (l->processes < 1 || l->processes > MAX_PROCESSES)
        return cli_input_error("launch: expected the number of processes: -n N, or --hosts, or a Slurm job");
    if (!slots || l->processes <= slots) return CLI_DONE;
    return cli_input_error("launch: -n %d: the hosts of %s have %d slots: add hosts or slots, or start fewer "
                           "processes",
                           (int)l->processes, cli_quote(l->values->hosts).text, (int)slots);
}

static int choose_hosts(struct launch *l) {
    const struct launch_values *v = l->values;
    l->command.launcher = launch_choose((enum launcher)v->launcher, v->hosts != NULL);
    if (!v->hosts) return CLI_DONE;
    if (l->command.launcher == LAUNCHER_SRUN)
        return cli_input_error(
            "launch: --hosts %s: srun uses the hosts of its Slurm job: expected --launcher "
            "mpirun, or no --hosts",
            cli_quote(v->hosts).text);
    int status = cli_read_hosts(v->hosts, &l->hosts);
    l->command.hosts = &l->hosts;
    return status;
}

static void warn_shared_cores(const struct launch *l) {
    cpu_set_t cores;
    if (l->command.launcher != LAUNCHER_MPIRUN || l->command.hosts || getenv("SLURM_JOB_ID")) return;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0 || l->processes <= CPU_COUNT(&cores)) return;
    fprintf(stderr, "tutti: notice: launch: %d processes share the %d cores of this host\n",
            (int)l->processes, CPU_COUNT(&cores));
}

/* ---- Running once ---- */

static int run_once(struct launch *l, struct launch_outcome *outcome) {
    static const struct launch_limits of_mpirun = {.join = 300, .lost = 10, .rest = 2};
    static const struct launch_limits of_srun = {.lost = 60,
                                                 .rest = 2}; /* srun may wait until nodes are free */
    const struct launch_limits *limits = l->command.launcher == LAUNCHER_SRUN ? &of_srun : &of_mpirun;
    struct word_list words = {0};
    int status = launch_write_command(&l->command, &words);
    if (status == CLI_DONE && !launch_run(words.words, limits, outcome)) status = CLI_FAILED;
    word_list_free(&words);
    if (status == CLI_DONE && *outcome->messages.folder)
        snprintf(l->folder, sizeof l->folder, "%s", outcome->messages.folder);
    return status;
}

/* Returns the number of the signal that has ended a process, or the launcher; 0: none. mpirun also uses statuses that
 * are larger. */
static int killing_signal(const struct launch_outcome *outcome) {
    int number = outcome->status - 128;
    return outcome->status != STOPPED && number > 0 && number <= SIGRTMAX ? number : 0;
}

/* True if a restart on fewer hosts has failed before the training was resumed. The number of processes may be the reason:
 * --invariant requires a power of two. */
static bool is_number_refused(const struct launch *l, const struct launch_outcome *outcome) {
    const struct launch_messages *m = &outcome->messages;
    return l->command.processes > 1 && l->command.processes < l->processes && m->status == CLI_BAD_INPUT &&
           !*m->folder;
}

/* Returns true if a process was lost. Otherwise sets the exit status of `tutti launch`. A process that is killed can
 * make others fail with an error of their own, so it comes first. */
static bool has_lost_process(const struct launch *l, const struct launch_outcome *outcome, int *status) {
    const struct launch_messages *m = &outcome->messages;
    *status = CLI_DONE;
    if (outcome->status == 0) return false;
    if (launch_is_stopped()) {
        bool is_lost = m->lost && !outcome->was_ended;
        *status = m->status ? m->status : is_lost ? CLI_LOST : STOPPED;
        return false;
    }
    bool has_started = m->joined || l->restarts > 0;
    if (has_started && (killing_signal(outcome) || !m->status)) return true;
    if (is_number_refused(l, outcome)) return true;
    if (m->status)
        *status = m->status;
    else
        *status = cli_fail("launch: %s ended with status %d before the processes had found each other",
                           l->command.launcher == LAUNCHER_SRUN ? "srun" : "mpirun", outcome->status);
    return false;
}

/* ---- Restarting ---- */

/* Returns what happened, for a message: "a process was lost". */
struct loss {
    char text[96];
};
static struct loss describe_loss(const struct launch *l, const struct launch_outcome *outcome) {
    struct loss loss = {"a process was lost"};
    int number = killing_signal(outcome);
    if (is_number_refused(l, outcome))
        snprintf(loss.text, sizeof loss.text, "%d processes are refused", (int)l->command.processes);
    else if (number)
        snprintf(loss.text, sizeof loss.text, "a process was killed by signal %d (%.40s)", number,
                 strsignal(number));
    return loss;
}

static bool has_checkpoint(const char *folder) {
    char path[4200];
    bool found = false;
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    DIR *entries = opendir(path);
    if (!entries) return false;
    for (struct dirent *entry; !found && (entry = readdir(entries));)
        found = strncmp(entry->d_name, "step-", 5) == 0;
    closedir(entries);
    return found;
}

/* Returns the largest power of two that is less than `number`, which is at least 2. */
static int64_t power_of_two_below(int64_t number) {
    int64_t power = 1;
    while (2 * power < number) power *= 2;
    return power;
}

/* Leaves out the hosts that do not answer any more; those of an earlier restart may answer again. Returns false if none
 * does. */
static bool find_hosts(struct launch *l) {
    l->command.processes = l->processes;
    if (!l->command.hosts) return true;
    free(l->in_use.list);
    l->in_use = cli_find_answering_hosts(&l->hosts, launch_is_stopped);
    int64_t slots = cli_count_slots(&l->in_use);
    l->command.hosts = &l->in_use;
    if (slots < l->processes) l->command.processes = slots;
    if (slots < l->processes && l->max_processes && l->max_processes < slots)
        l->command.processes = l->max_processes;
    return slots > 0;
}

static void announce_restart(const struct launch *l, const struct loss *loss) {
    const char *how =
        *l->folder ? has_checkpoint(l->folder) ? "resuming" : "starting again" : "starting again";
    fprintf(stderr, "tutti: notice: launch: %s; restart %d of %d: %s%s%s%s, with %d process%s\n", loss->text,
            (int)l->restarts, (int)l->values->restarts, how, *l->folder ? " '" : "", l->folder,
            *l->folder ? "'" : "", (int)l->command.processes, l->command.processes == 1 ? "" : "es");
}

/* Says that nothing is restarted any more, and how to resume by hand. */
static int give_up(const struct launch *l, const struct loss *loss, const char *why) {
    const char *resume = *l->folder ? "; resume with 'tutti launch … -- train " : "";
    cli_fail("launch: %s%s%s%s%s", loss->text, why, resume, l->folder, *l->folder ? " --resume'" : "");
    return CLI_LOST;
}

/* Prepares a restart. Returns false, with the exit status, if there is none. */
static bool prepare_restart(struct launch *l, const struct launch_outcome *outcome, int *status) {
    const char *why = !l->task.trains ? "" : l->values->restarts ? ", after the last restart" : "";
    bool restarts = l->task.trains && l->restarts < l->values->restarts;
    const struct loss loss = describe_loss(l, outcome);
    if (is_number_refused(l, outcome)) l->max_processes = power_of_two_below(l->command.processes);
    if (restarts && !find_hosts(l) && !launch_is_stopped()) {
        restarts = false;
        why = ", and no host answers";
    }
    *status = launch_is_stopped() ? STOPPED : restarts ? CLI_DONE : give_up(l, &loss, why);
    if (*status != CLI_DONE) return false;
    l->restarts++;
    l->command.resumes = *l->folder || l->task.has_folder;
    l->command.folder = l->folder;
    announce_restart(l, &loss);
    return true;
}

static int run_to_end(struct launch *l) {
    struct launch_outcome outcome;
    int status;
    launch_catch_signals();
    do {
        status = run_once(l, &outcome);
        if (status != CLI_DONE) return status;
        if (!has_lost_process(l, &outcome, &status)) return status;
    } while (prepare_restart(l, &outcome, &status));
    return status;
}

/* ---- The command ---- */

static int prepare(struct launch *l, int count, char **arguments) {
    if (tu_process_group_is_launched())
        return cli_input_error(
            "launch: this process was started by mpirun or srun as one of several: expected "
            "'tutti launch' to be started once, or 'tutti train' in its place");
    int status = find_task(count, arguments, &l->task);
    if (status != CLI_DONE || l->task.asks_for_help) return status;
    status = choose_hosts(l);
    if (status == CLI_DONE) status = choose_processes(l);
    l->command.processes = l->processes;
    l->command.folder = "";
    l->command.arguments = arguments;
    l->command.argument_count = count;
    return status;
}

static int print_command(const struct launch *l) {
    struct word_list words = {0};
    int status = launch_write_command(&l->command, &words);
    if (status == CLI_DONE) word_list_print(&words);
    word_list_free(&words);
    return status;
}

static int start(struct launch *l) {
    if (l->task.asks_for_help) {
        cli_print_command_help(stdout, l->task.command);
        return CLI_DONE;
    }
    if (l->values->dry_run) return print_command(l);
    int status = launch_check(l->command.launcher);
    if (status != CLI_DONE) return status;
    launch_set_environment(l->command.launcher);
    warn_shared_cores(l);
    return run_to_end(l);
}

static int run(const void *values, int operand_count, char **operands) {
    struct launch l = {.values = values};
    int status = prepare(&l, operand_count, operands);
    if (status == CLI_DONE) status = start(&l);
    free(l.hosts.list);
    free(l.in_use.list);
    return status;
}

const struct cli_command cli_command_launch = {
    .name = "launch",
    .summary = "starts train or bench as several processes, also on several hosts",
    .usage = "[-n N] [OPTIONS] -- COMMAND [ARGUMENTS]",
    .description = "Starts COMMAND (train or bench) with its ARGUMENTS as N processes, through\n"
                   "mpirun (Open MPI) or, inside a Slurm job, through srun. Lines of other\n"
                   "processes than rank 0 begin with their rank: [1].\n"
                   "\n"
                   "If a training loses a process or a host, it is resumed from its last\n"
                   "checkpoint, on the hosts of --hosts that still answer. Ctrl-C or SIGTERM stop\n"
                   "a training so that it can be resumed; a second one kills it.",
    .options = options,
    .values_size = sizeof(struct launch_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = INT_MAX,
    .ends_at_operand = true,
    .run = run,
};
