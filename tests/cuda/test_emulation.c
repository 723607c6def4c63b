/* Tests of the fake NVIDIA libraries themselves, on which all other tests depend. */
#include <cuda.h>
#include <math.h>
#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define CHECK_OK(call) assert_int_equal(call, 0)

static CUstream stream;

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 16);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static nvrtcResult try_compile(const char *source, const char *expression, nvrtcProgram *program) {
    char *prelude = read_text(PRELUDE);
    const char *texts[] = {prelude}, *names[] = {"prelude.cuh"}, *options[] = {"--gpu-architecture=sm_90"};
    CHECK_OK(nvrtcCreateProgram(program, source, "test.cu", 1, texts, names));
    free(prelude);
    CHECK_OK(nvrtcAddNameExpression(*program, expression));
    return nvrtcCompileProgram(*program, 1, options);
}

static CUfunction compile(const char *source, const char *expression, CUmodule *module) {
    nvrtcProgram program;
    CHECK_OK(try_compile(source, expression, &program));
    size_t size;
    CHECK_OK(nvrtcGetCUBINSize(program, &size));
    char *code = malloc(size);
    CHECK_OK(nvrtcGetCUBIN(program, code));
    const char *name;
    CHECK_OK(nvrtcGetLoweredName(program, expression, &name));
    CUfunction function;
    CHECK_OK(cuModuleLoadData(module, code));
    CHECK_OK(cuModuleGetFunction(&function, *module, name));
    free(code);
    CHECK_OK(nvrtcDestroyProgram(&program));
    return function;
}

typedef struct vectors {
    CUdeviceptr x, y;
    int n;
} vectors;

#define VECTORS "#include \"prelude.cuh\"\nstruct vectors { float *x, *y; int n; };\n"

/* Runs a kernel on x[i] = i (1024 floats each) and returns y. */
static void launch(const char *source, const char *expression, unsigned blocks, unsigned threads,
                   unsigned shared, int n, float *y) {
    float x[1024];
    for (int i = 0; i < 1024; i++) x[i] = (float)i;
    CUdeviceptr to, from;
    CUmodule module;
    CUfunction function = compile(source, expression, &module);
    CHECK_OK(cuMemAlloc(&from, sizeof x));
    CHECK_OK(cuMemAlloc(&to, sizeof x));
    CHECK_OK(cuMemcpyHtoD(from, x, sizeof x));
    vectors v = {from, to, n};
    void *parameters[] = {&v};
    CHECK_OK(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, parameters, NULL));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemcpyDtoH(y, to, sizeof x));
    CHECK_OK(cuMemFree(from));
    CHECK_OK(cuMemFree(to));
    CHECK_OK(cuModuleUnload(module));
}

static void threads_share_sums_over_a_block(void **state) {
    (void)state;
    float y[1024];
    launch(VECTORS "template <typename T> __global__ void sum(vectors v) {\n"
                   "    __shared__ T room[32];\n"
                   "    T s = block_reduce(v.x[threadIdx.x + blockDim.x * blockIdx.x], adding(), room);\n"
                   "    if (threadIdx.x == 0) v.y[blockIdx.x] = s;\n"
                   "}\n",
           "sum<float>", 3, 256, 0, 0, y);
    for (int b = 0; b < 3; b++) assert_true(y[b] == 256.0f * 255.0f / 2 + 65536.0f * (float)b);
    assert_true(isnan(y[3])); /* not written by the kernel */
}

static void blocks_have_dynamic_shared_memory(void **state) {
    (void)state;
    float y[1024];
    launch(VECTORS "__global__ void reverse(vectors v) {\n"
                   "    extern __shared__ float room[];\n"
                   "    room[threadIdx.x] = v.x[threadIdx.x];\n"
                   "    __syncthreads();\n"
                   "    v.y[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];\n"
                   "}\n",
           "reverse", 1, 100, 400, 0, y);
    for (int i = 0; i < 100; i++) assert_true(y[i] == (float)(99 - i));
}

static void lanes_exchange_values_as_on_a_gpu(void **state) {
    (void)state;
    float y[1024];
    launch(VECTORS
           "__global__ void lanes(vectors v) {\n"
           "    float x = v.x[threadIdx.x];\n"
           "    v.y[threadIdx.x] = __shfl_down_sync(0xffffffffu, x, 5);\n"
           "    v.y[threadIdx.x + 64] = __shfl_xor_sync(0xffffffffu, x, 3, 8);\n"
           "    v.y[threadIdx.x + 128] = __shfl_sync(0xffffffffu, x, 2, 16);\n"
           "    v.y[threadIdx.x + 192] = (float)__popc(__ballot_sync(0xffffffffu, threadIdx.x % 5 == 0));\n"
           "    if (threadIdx.x % 32 < 8) v.y[threadIdx.x + 256] = __shfl_up_sync(0xffu, x, 1);\n"
           "}\n",
           "lanes", 1, 64, 0, 0, y);
    for (int i = 0; i < 64; i++) {
        int lane = i % 32;
        assert_true(y[i] == (float)(lane + 5 < 32 ? i + 5 : i));
        assert_true(y[i + 64] == (float)(i ^ 3));
        assert_true(y[i + 128] == (float)(i - i % 16 + 2));
        assert_true(y[i + 192] == (i < 32 ? 7 : 6));
        if (lane < 8) assert_true(y[i + 256] == (float)(lane ? i - 1 : i));
    }
}

static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    float y[1024];
    launch(
        VECTORS
        "__global__ void halves(vectors v) {\n"
        "    int i = threadIdx.x;\n"
        "    const float x[] = {1.0f, 1.00048828125f, 1.00146484375f, 65504.0f, 65519.9f, 65520.0f, 0x1p-24f,\n"
        "                       0x1p-25f, 0x1.8p-24f, -2.5f, 6.1e-5f};\n"
        "    v.y[i] = widen(narrow<f16>(x[i]));\n"
        "}\n",
        "halves", 1, 11, 0, 0, y);
    const float expected[] = {1.0f,     1.0f, 1.001953125f, 65504.0f, 65504.0f,    INFINITY,
                              0x1p-24f, 0.0f, 0x1p-23f,     -2.5f,    0x1.ff8p-15f};
    for (int i = 0; i < 11; i++) assert_true(y[i] == expected[i]);
}

static void graphs_replay_what_was_captured(void **state) {
    (void)state;
    CUdeviceptr a, b;
    CUgraph graph;
    CUgraphExec executable;
    CHECK_OK(cuMemAlloc(&a, 64));
    CHECK_OK(cuMemAlloc(&b, 64));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_OK(cuMemcpyDtoDAsync(b, a, 64, stream));
    CHECK_OK(cuStreamEndCapture(stream, &graph));
    CHECK_OK(cuGraphInstantiate(&executable, graph, 0));
    for (unsigned char step = 1; step < 4; step++) {
        unsigned char got[64];
        CHECK_OK(cuMemsetD8Async(a, step, 64, stream));
        CHECK_OK(cuGraphLaunch(executable, stream));
        CHECK_OK(cuStreamSynchronize(stream));
        CHECK_OK(cuMemcpyDtoH(got, b, 64));
        assert_int_equal(got[63], step);
    }
    CHECK_OK(cuGraphExecDestroy(executable));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_OK(cuMemFree(a));
    CHECK_OK(cuMemFree(b));
}

static void captures_reject_forbidden_calls(void **state) {
    (void)state;
    CUdeviceptr a;
    CUgraph graph;
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(cuMemAlloc(&a, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

typedef struct other_thread {
    CUcontext context;
    CUresult (*call)(void);
    CUresult result;
} other_thread;

static void *call_in_thread(void *argument) {
    other_thread *t = argument;
    t->result = cuCtxSetCurrent(t->context);
    if (t->result == CUDA_SUCCESS) t->result = t->call();
    return NULL;
}

/* Returns the result of a capture during which another thread makes a call. */
static CUresult capture_during(CUresult (*call)(void)) {
    other_thread other = {.call = call};
    pthread_t thread;
    CUgraph graph = NULL;
    CHECK_OK(cuCtxGetCurrent(&other.context));
    CHECK_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(pthread_create(&thread, NULL, call_in_thread, &other), 0);
    pthread_join(thread, NULL);
    CHECK_OK(other.result);
    CUresult result = cuStreamEndCapture(stream, &graph);
    if (graph) CHECK_OK(cuGraphDestroy(graph));
    return result;
}

static CUresult create_a_stream(void) {
    CUstream created;
    CUresult result = cuStreamCreate(&created, CU_STREAM_NON_BLOCKING);
    return result == CUDA_SUCCESS ? cuStreamDestroy(created) : result;
}

static CUdeviceptr block;
static CUresult allocate_block(void) {
    return cuMemAlloc(&block, 64);
}
static CUresult free_block(void) {
    return cuMemFree(block);
}

static void calls_that_synchronise_invalidate_captures_of_other_threads(void **state) {
    (void)state;
    assert_int_equal(capture_during(create_a_stream), CUDA_SUCCESS);
    assert_int_equal(capture_during(allocate_block), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(capture_during(free_block), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(capture_during(create_a_stream), CUDA_SUCCESS);
}

static void work_runs_as_late_as_possible(void **state) {
    (void)state;
    CUdeviceptr a;
    unsigned char *pinned;
    CHECK_OK(cuMemAlloc(&a, 64));
    CHECK_OK(cuMemHostAlloc((void **)&pinned, 64, 0));
    memset(pinned, 1, 64);
    CHECK_OK(cuMemsetD8Async(a, 2, 64, stream));
    CHECK_OK(cuMemcpyDtoHAsync(pinned, a, 64, stream));
    assert_int_equal(pinned[0], 1);
    CHECK_OK(cuStreamSynchronize(stream));
    assert_int_equal(pinned[0], 2);
    CHECK_OK(cuMemFree(a));
    CHECK_OK(cuMemFreeHost(pinned));
}

static void compile_errors_return_a_log(void **state) {
    (void)state;
    nvrtcProgram program;
    assert_int_equal(try_compile("__global__ void broken(int n) { n = nowhere; }\n", "broken", &program),
                     NVRTC_ERROR_COMPILATION);
    size_t size;
    CHECK_OK(nvrtcGetProgramLogSize(program, &size));
    char *log = malloc(size);
    CHECK_OK(nvrtcGetProgramLog(program, log));
    assert_non_null(strstr(log, "nowhere"));
    assert_non_null(strstr(log, "test.cu:1"));
    free(log);
    CHECK_OK(nvrtcDestroyProgram(&program));
}

/* Runs a kernel in a child process and returns its exit status: 98 after a fault. */
static int status_of(const char *source, const char *expression, unsigned threads, unsigned shared) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        float y[1024];
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        launch(source, expression, 2, threads, shared, 0, y);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void kernel_faults_are_detected(void **state) {
    (void)state;
    static const struct fault {
        const char *name, *source;
        unsigned threads, shared;
    } faults[] = {
        {"misaligned", "*(pack<float, 4> *)v.y = *(pack<float, 4> *)(v.x + 1);", 1, 0},
        {"outside", "__shared__ float room[32]; room[threadIdx.x] = 1; v.y[0] = room[0];", 33, 0},
        {"beyond", "extern __shared__ float room[]; room[threadIdx.x] = 1; v.y[0] = room[0];", 33, 128},
        {"apart", "if (threadIdx.x) __syncthreads();\n else __syncthreads();", 32, 0},
        {"alone", "if (threadIdx.x) v.y[0] = __shfl_sync(0xffffffffu, 1.0f, 0);\n else __syncthreads();", 32,
         0},
        {"overrun", "v.y[1024 + threadIdx.x] = 1;", 1, 0},
        {"nowhere", "*(float *)16 = 1;", 1, 0},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char source[1024];
        snprintf(source, sizeof source, VECTORS "__global__ void %s(vectors v) { %s }\n", faults[i].name,
                 faults[i].source);
        assert_int_equal(status_of(source, faults[i].name, faults[i].threads, faults[i].shared), 98);
    }
}

/* ---- Two GPUs ---- */

typedef struct two_gpus {
    CUcontext context[2];
    CUdeviceptr memory[2]; /* 1024 floats on each */
} two_gpus;

static void open_two_gpus(two_gpus *c) {
    setenv("FAKE_CUDA_COUNT", "2", 1);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(cuDevicePrimaryCtxRetain(&c->context[i], i));
        CHECK_OK(cuCtxSetCurrent(c->context[i]));
        CHECK_OK(cuMemAlloc(&c->memory[i], 4096));
    }
    CHECK_OK(cuCtxSetCurrent(c->context[0]));
}

static void close_two_gpus(two_gpus *c) {
    for (int i = 2; i-- > 0;) {
        CHECK_OK(cuCtxSetCurrent(c->context[i]));
        CHECK_OK(cuMemFree(c->memory[i]));
        CHECK_OK(cuDevicePrimaryCtxRelease(i));
    }
    unsetenv("FAKE_CUDA_COUNT");
}

/* Returns the exit status of a child process in which a kernel of GPU 0 reads memory of GPU 1. */
static int status_of_reading(const two_gpus *c) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        CUmodule module;
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        CUfunction function =
            compile(VECTORS "__global__ void fetch(vectors v) { v.y[0] = v.x[0]; }\n", "fetch", &module);
        vectors v = {c->memory[1], c->memory[0], 1};
        CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&v}, NULL));
        _exit(cuStreamSynchronize(stream));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void kernels_need_peer_access_to_other_gpus(void **state) {
    (void)state;
    two_gpus c;
    int can;
    open_two_gpus(&c);
    CHECK_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    assert_int_equal(status_of_reading(&c), 98);
    CHECK_OK(cuCtxEnablePeerAccess(c.context[1], 0));
    assert_int_equal(status_of_reading(&c), 0);
    assert_int_equal(cuCtxEnablePeerAccess(c.context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    close_two_gpus(&c);
    open_two_gpus(&c); /* the other GPU's context was destroyed, and with it peer access */
    assert_int_equal(status_of_reading(&c), 98);
    setenv("FAKE_CUDA_PEERS", "0", 1);
    CHECK_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 0);
    assert_int_equal(cuCtxEnablePeerAccess(c.context[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    unsetenv("FAKE_CUDA_PEERS");
    close_two_gpus(&c);
}

static void objects_of_one_gpu_are_rejected_on_another(void **state) {
    (void)state;
    two_gpus c;
    CUevent event;
    CUstream other;
    open_two_gpus(&c);
    CHECK_OK(cuCtxSetCurrent(c.context[1]));
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    assert_int_equal(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuEventRecord(event, other));
    CHECK_OK(cuStreamWaitEvent(stream, event, 0));
    assert_int_equal(cuMemFree(c.memory[0]), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_OK(cuStreamDestroy(other));
    CHECK_OK(cuEventDestroy(event));
    close_two_gpus(&c);
}

/* Threads pass a value to a neighbour without a barrier: the race shows in only one of the two orders of threads. */
static void missing_barriers_change_results(void **state) {
    (void)state;
    float once[1024], again[1024];
    const char *source = VECTORS "__global__ void racy(vectors v) {\n"
                                 "    __shared__ float room[64];\n"
                                 "    room[threadIdx.x] = v.x[threadIdx.x];\n"
                                 "    v.y[threadIdx.x] = room[(threadIdx.x + 63) % 64];\n"
                                 "}\n";
    launch(source, "racy", 1, 64, 0, 0, once);
    launch(source, "racy", 1, 64, 0, 0, again);
    assert_true(memcmp(once, again, 64 * sizeof *once) != 0);
}

static int open_device(void **state) {
    (void)state;
    CUdevice device;
    CUcontext context;
    return cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
           cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}
static int close_device(void **state) {
    (void)state;
    return cuStreamDestroy(stream) || cuDevicePrimaryCtxRelease(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_sums_over_a_block),
        cmocka_unit_test(blocks_have_dynamic_shared_memory),
        cmocka_unit_test(lanes_exchange_values_as_on_a_gpu),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(graphs_replay_what_was_captured),
        cmocka_unit_test(captures_reject_forbidden_calls),
        cmocka_unit_test(calls_that_synchronise_invalidate_captures_of_other_threads),
        cmocka_unit_test(work_runs_as_late_as_possible),
        cmocka_unit_test(compile_errors_return_a_log),
        cmocka_unit_test(kernel_faults_are_detected),
        cmocka_unit_test(missing_barriers_change_results),
        cmocka_unit_test(kernels_need_peer_access_to_other_gpus),
        cmocka_unit_test(objects_of_one_gpu_are_rejected_on_another),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
