/* Counts the source files that a training step on the CPU goes through, from the command `train` to a kernel: whoever
 * follows a step with a debugger opens these files, and no more than 12.
 *
 * A device that works like the CPU takes a stack trace in its third launch. addr2line (binutils, which
 * a compiler needs too) names the files. */
#include "test.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "device/device.h"

enum { MAX_FRAMES = 128, MAX_FILES = 64, TRACED_LAUNCH = 3, ALLOWED_FILES = 12 };

static void *frames[MAX_FRAMES];
static int frame_count, launches;
static tu_device_api probe_api;

static tu_status launch_probe(tu_device_instance *device, tu_executable *executable, uint32_t first,
                              uint32_t count) {
    if (++launches < TRACED_LAUNCH) return tu__cpu_api.launch(device, executable, first, count);
    if (!frame_count) frame_count = backtrace(frames, MAX_FRAMES);
    return tu_fail(TU_DEVICE, "the stack was traced"); /* the rest of the run is not needed */
}

static void register_probe(void) {
    probe_api = tu__cpu_api;
    probe_api.kind = "probe";
    probe_api.launch = launch_probe;
    assert_int_equal(tu__device_kind_add(&probe_api), TU_OK);
}

static int run_train(char **arguments, int count) {
    const struct cli_command *command = cli_find_command("train");
    void *values = calloc(1, command->values_size);
    assert_non_null(values);
    if (command->defaults) memcpy(values, command->defaults, command->values_size);
    int operands = cli_parse(command->name, command->options, count, arguments, values);
    assert_int_equal(operands, 1);
    int status = command->run(values, operands, arguments);
    free(values);
    return status;
}

/* Adds the file of a line of addr2line, "/…/src/run/run.c:12", if it is one of the engine and not known yet. */
static void add_file(char files[][256], int *count, char *line) {
    char *source = strstr(line, "/src/"), *colon = source ? strchr(source, ':') : NULL;
    if (!colon) return;
    *colon = 0;
    for (int i = 0; i < *count; i++)
        if (strcmp(files[i], source) == 0) return;
    assert_true(*count < MAX_FILES);
    snprintf(files[(*count)++], sizeof files[0], "%s", source);
}

/* Names the files of the frames, those of inlined functions too, from the innermost to the command. */
static int name_files(char files[][256]) {
    char command[128 + MAX_FRAMES * 20], line[1024];
    int used = snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe", (int)getpid()), count = 0;
    for (int i = 1; i < frame_count; i++) { /* the first one is the probe's */
        Dl_info info;
        if (!dladdr(frames[i], &info)) continue;
        used += snprintf(command + used, sizeof command - (size_t)used, " %#zx",
                         (size_t)((char *)frames[i] - (char *)info.dli_fbase) - 1);
    }
    FILE *output = popen(command, "r"); // NOLINT(cert-env33-c): a fixed command
    assert_non_null(output);
    while (fgets(line, sizeof line, output)) add_file(files, &count, line);
    assert_int_equal(pclose(output), 0);
    return count;
}

static void a_training_step_goes_through_few_files(void **unused) {
    (void)unused;
    static char files[MAX_FILES][256];
    char folder[] = "/tmp/tutti_step_files_XXXXXX", out[64], remove_folder[96];
    assert_non_null(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/run", folder);
    char *arguments[] = {"mlp",     "--data", "generated", "--devices", "probe", "--threads", "1",
                         "--steps", "4",      "--batch",   "4",         "--out", out,         "--quiet"};
    register_probe();
    assert_int_not_equal(run_train(arguments, sizeof arguments / sizeof *arguments), 0);
    int count = name_files(files);
    snprintf(remove_folder, sizeof remove_folder, "rm -rf %s", folder);
    assert_int_equal(system(remove_folder), 0); // NOLINT(cert-env33-c)
    snprintf(files[count++], sizeof files[0], "/src/device/cpu/cpu.c and the kernel's file");
    for (int i = 0; i < count; i++) print_message("%s\n", files[i] + strlen("/src/"));
    assert_true(count >= 5); /* the stack was unwound */
    assert_in_range(count + 1, 1, ALLOWED_FILES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_training_step_goes_through_few_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
