/* Error messages for a GPU that cannot be used say what to do: driver missing or too old, GPU too old, library
 * missing, memory full. Each case runs in its own process, since libraries are loaded once per process. */
#include "test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "cuda/emulated.h"

static char folder[] = "/tmp/tutti-cuda-libraries-XXXXXX";
static const char *const libraries[] = {"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13",
                                        "libcudnn.so.9", "libcusolver.so.12"};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

/* Links all fake libraries but one into `folder`. */
static void link_all_but(const char *missing) {
    char to[256], from[1024];
    for (size_t i = 0; i < LIBRARIES; i++) {
        snprintf(to, sizeof to, "%s/%s", folder, libraries[i]);
        snprintf(from, sizeof from, FAKE_CUDA "/%s", libraries[i]);
        unlink(to);
        if (strcmp(libraries[i], missing) != 0) assert_int_equal(symlink(from, to), 0);
    }
    setenv("TUTTI_CUDA_LIBRARIES", folder, 1);
}

/* In tf32, with enough channels for tensor cores, so that cuDNN is used. */
static tu_status convolve(int64_t side) {
    enum { CHANNELS = 16 };
    tu_graph *graph = NULL;
    tu_program *program = NULL;
    tu_state *state = NULL;
    TU_TRY(tu_graph_new(&graph));
    tu_value x = tu_input(graph, "x", TU_F32, TU_SHAPE(1, side, side, CHANNELS));
    tu_value y = tu_sum(tu_conv2d(x, .filters = CHANNELS, .size = 3));
    void *data = calloc((size_t)(side * side * CHANNELS), sizeof(float));
    float sum;
    tu_status status =
        tu_compile(graph, &program, .devices = "gpu", .precision = "tf32", .fetch = &y, .fetch_count = 1);
    if (status == TU_OK) status = tu_state_new(graph, &state);
    if (status == TU_OK) status = tu_run(program, state, 1, &(tu_feed){x, data}, (void *[]){&sum});
    free(data);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(graph);
    return status;
}

static tu_status convolve_small(void) {
    return convolve(8);
}
static tu_status convolve_large(void) {
    return convolve(512);
}
static tu_status list_devices(void) {
    tu_device_info info = TU_SIZED(tu_device_info);
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        if (strcmp(info.kind, "gpu") == 0 && info.unusable)
            return tu_fail(TU_UNSUPPORTED, "%s", info.unusable);
    return TU_OK;
}

/* Runs `what` in a child process and returns its message. */
static void run_in_child(tu_status (*what)(void), char *message, size_t capacity) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *text = what() == TU_OK ? "no failure" : tu_message();
        _exit(write(pipes[1], text, strlen(text)) < 0);
    }
    close(pipes[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(pipes[0], message + length, capacity - 1 - length)) > 0;)
        length += (size_t)got;
    message[length] = '\0';
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

typedef struct error_case {
    const char *missing;         /* a library; "": none */
    const char *variable, *text; /* a setting of the fake libraries */
    tu_status (*what)(void);
    const char *substrings[3]; /* what the message must contain */
} error_case;

static void expect_error(const error_case *r) {
    char message[2048];
    link_all_but(r->missing);
    if (r->variable) setenv(r->variable, r->text, 1);
    run_in_child(r->what, message, sizeof message);
    if (r->variable) unsetenv(r->variable);
    for (int i = 0; i < 3 && r->substrings[i]; i++)
        if (!strstr(message, r->substrings[i])) fail_msg("expected '%s' in '%s'", r->substrings[i], message);
}

static void a_missing_driver_is_named(void **unused) {
    (void)unused;
    expect_error(&(error_case){
        .missing = "libcuda.so.1", .what = list_devices, .substrings = {"libcuda.so.1", "install", "580"}});
    expect_error(&(error_case){
        .missing = "libcuda.so.1", .what = convolve_small, .substrings = {"'gpu'", "libcuda.so.1"}});
}
static void an_old_driver_fails_with_its_version(void **unused) {
    (void)unused;
    expect_error(&(error_case){
        "", "FAKE_CUDA_DRIVER_VERSION", "12080", list_devices, {"12.8", "13.0", "install driver"}});
}
static void an_old_gpu_fails_with_its_capability(void **unused) {
    (void)unused;
    expect_error(&(error_case){"", "FAKE_CUDA_CAPABILITY", "70", list_devices, {"7.0", "7.5"}});
    expect_error(&(error_case){"", "FAKE_CUDA_CAPABILITY", "70", convolve_small, {"'gpu'", "7.0"}});
}
static void a_driver_without_gpus_is_reported(void **unused) {
    (void)unused;
    expect_error(&(error_case){"", "FAKE_CUDA_COUNT", "0", list_devices, {"cuInit", "CUDA_ERROR_NO_DEVICE"}});
}
static void missing_libraries_are_named(void **unused) {
    (void)unused;
    expect_error(&(error_case){
        .missing = "libnvrtc.so.13", .what = list_devices, .substrings = {"libnvrtc.so.13", "install"}});
    expect_error(&(error_case){.missing = "libcublasLt.so.13",
                               .what = list_devices,
                               .substrings = {"libcublasLt.so.13", "install"}});
}
static void cudnn_is_needed_only_by_programs_that_use_it(void **unused) {
    (void)unused;
    expect_error(
        &(error_case){.missing = "libcudnn.so.9", .what = list_devices, .substrings = {"no failure"}});
    expect_error(&(error_case){.missing = "libcudnn.so.9",
                               .what = convolve_small,
                               .substrings = {"libcudnn.so.9", "install cuDNN 9"}});
    expect_error(
        &(error_case){.missing = "libcusolver.so.12", .what = convolve_small, .substrings = {"no failure"}});
}
static void programs_too_large_for_memory_fail_before_running(void **unused) {
    (void)unused;
    expect_error(&(error_case){"", "FAKE_CUDA_MEMORY", "3000000", convolve_large, {"gpu:0", "MiB"}});
    expect_error(&(error_case){"", "FAKE_CUDA_MEMORY", "3000000", convolve_small, {"no failure"}});
}

static int create_folder(void **unused) {
    (void)unused;
    return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **unused) {
    (void)unused;
    link_all_but("");
    for (size_t i = 0; i < LIBRARIES; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, libraries[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void) {
    use_emulated_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_driver_is_named),
        cmocka_unit_test(an_old_driver_fails_with_its_version),
        cmocka_unit_test(an_old_gpu_fails_with_its_capability),
        cmocka_unit_test(a_driver_without_gpus_is_reported),
        cmocka_unit_test(missing_libraries_are_named),
        cmocka_unit_test(cudnn_is_needed_only_by_programs_that_use_it),
        cmocka_unit_test(programs_too_large_for_memory_fail_before_running),
    };
    return cmocka_run_group_tests(tests, create_folder, remove_folder);
}
