/* Compiles kernels with NVRTC, caches them on disk, and loads the modules that the plans of a device share.
 *
 * One instance is compiled at a time: a kernel file (or a source generated for a plan) and one expression, such as
 * "max_pool<bf16, 3>". A compiled instance therefore serves every plan that needs it, and instances are compiled in
 * parallel. NVRTC needs 20 to 60 ms for one.
 *
 * On disk an instance is a file named by a digest of everything it depends on: the source, all files it includes, the
 * expression, NVRTC's version and options. The file contains a digest of the rest, the function's mangled name and
 * the machine code. An unreadable or damaged file is compiled again. If the folder cannot be written, the next start
 * compiles again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/save.h"
#include "base/sha256.h"
#include "base/text.h"
#include "device/cuda/runtime/cache_folder.h"
#include "device/cuda/runtime/capture_lock.h"
#include "device/cuda/runtime/cuda.h"

/* ---- An instance ---- */

typedef struct module {
    char key[TU__SHA256_HEX];
    CUmodule handle;
    CUfunction function;
    struct module *next;
} module;

struct cuda_modules {
    module *first;
};

typedef struct instance {
    cuda_device *device;
    const cuda_function *function;
    char key[TU__SHA256_HEX];
    char *name; /* the mangled name in the machine code */
    char *code;
    size_t bytes;
    tu_status status;
    char message[2048];
} instance;

static const char *source_of(const cuda_function *f, char file[64]) {
    if (f->source) return f->source;
    snprintf(file, 64, "%s.cu", f->unit);
    return cuda_kernel_source(file);
}

/* All kernel files. The headers among them are passed to NVRTC. Those that a source includes are part of its
 * digest. */
static const struct header {
    const char *file;
} headers[] = {
#define KERNEL_FILE(file, symbol) {file},
#include "device/cuda/runtime/kernel_files.def"
};
enum { HEADERS = sizeof headers / sizeof *headers };

static bool is_header(const char *file) {
    const char *dot = strrchr(file, '.');
    return dot && strcmp(dot, ".cu") != 0;
}

/* Adds a text and the headers it includes to the digest. */
static void digest_text(tu__sha256 *hash, const char *text, int depth) {
    tu__sha256_update(hash, text, strlen(text) + 1);
    for (const char *at = text; depth && (at = strstr(at, "#include \"")); at += 10) {
        char file[64];
        size_t length = strcspn(at + 10, "\"");
        snprintf(file, sizeof file, "%.*s", (int)length, at + 10);
        const char *included = cuda_kernel_source(file);
        if (included) digest_text(hash, included, depth - 1);
    }
}

/* Kernel files with instructions of one GPU generation, which NVRTC only accepts for that generation: sm_90a, not sm_90. */
static bool needs_exact_generation(const cuda_function *f) {
    static const char *const units[] = {"conv_wide"};
    for (size_t i = 0; f->unit && i < sizeof units / sizeof *units; i++)
        if (strcmp(f->unit, units[i]) == 0) return true;
    return false;
}

static void write_architecture(const cuda_device *device, const cuda_function *f, char architecture[40]) {
    snprintf(architecture, 40, "--gpu-architecture=sm_%d%s", device->capability,
             needs_exact_generation(f) ? "a" : "");
}

/* Generated fused kernels are compiled without fused multiply-add, so that they round after every operation as
 * separate kernels would: fusion does not change the bits. In handwritten kernels the compiler may contract, unless
 * they use explicit intrinsics. */
static const char *rounding_option(const cuda_function *f) {
    return f->source ? "--fmad=false" : "--fmad=true";
}

static void compute_key(const cuda_device *device, const cuda_function *f, const char *text,
                        char key[TU__SHA256_HEX]) {
    tu__sha256 hash;
    unsigned char digest[TU__SHA256_BYTES];
    char options[40], compiler[24];
    write_architecture(device, f, options);
    snprintf(compiler, sizeof compiler, "%s", cuda_library_version(CUDA_nvrtc));
    tu__sha256_init(&hash);
    tu__sha256_update(&hash, options, strlen(options) + 1);
    tu__sha256_update(&hash, compiler, strlen(compiler) + 1);
    tu__sha256_update(&hash, rounding_option(f), strlen(rounding_option(f)) + 1);
    tu__sha256_update(&hash, f->expression, strlen(f->expression) + 1);
    digest_text(&hash, text, 3);
    tu__sha256_final(&hash, digest);
    tu__sha256_hex(digest, key);
}

/* ---- The cache on disk ---- */

/* Parses a cache file: SHA-256 of the rest in hexadecimal, line feed, mangled name, line feed, machine code. */
static bool parse_cached(char *data, size_t size, instance *i) {
    enum { HEAD = TU__SHA256_HEX };
    if (size <= HEAD || data[HEAD - 1] != '\n') return false;
    unsigned char digest[TU__SHA256_BYTES];
    char hex[TU__SHA256_HEX];
    tu__sha256_of(data + HEAD, size - HEAD, digest);
    tu__sha256_hex(digest, hex);
    char *end = memchr(data + HEAD, '\n', size - HEAD);
    if (memcmp(hex, data, HEAD - 1) != 0 || !end) return false;
    size_t name = (size_t)(end - data) - HEAD;
    i->bytes = size - HEAD - name - 1;
    i->name = tu__alloc(name + 1, "a kernel");
    i->code = tu__alloc(i->bytes + 1, "a kernel");
    if (!i->name || !i->code) return false;
    memcpy(i->name, data + HEAD, name);
    memcpy(i->code, end + 1, i->bytes);
    return true;
}

static void free_code(instance *i) {
    tu__free(i->name);
    tu__free(i->code);
    i->name = i->code = NULL;
}

static bool read_cached(instance *i) {
    tu__text data = {0};
    bool valid = cuda_cache_read(i->key, &data) && parse_cached(data.data, data.length, i);
    if (!valid) free_code(i);
    tu__text_free(&data);
    return valid;
}

static void write_cached(const instance *i) {
    char path[PATH_MAX];
    if (!cuda_cache_path(i->key, path, sizeof path)) return;
    tu__text text = {0};
    tu__text_printf(&text, "%s\n", i->name);
    tu__text_append(&text, i->code, i->bytes);
    unsigned char digest[TU__SHA256_BYTES];
    char head[TU__SHA256_HEX + 1];
    tu__sha256_of(text.data, text.length, digest);
    tu__sha256_hex(digest, head);
    head[TU__SHA256_HEX - 1] = '\n';
    cuda_create_parent_folders(path);
    tu__save save;
    if (!text.failed && tu__save_begin(&save, path) == TU_OK) {
        tu__save_append(&save, head, TU__SHA256_HEX);
        tu__save_append(&save, text.data, text.length);
        tu__save_commit(&save); /* on failure the kernel is compiled again next time */
    }
    tu__text_free(&text);
}

/* ---- NVRTC ---- */

static tu_status fail_with_log(nvrtcProgram program, const instance *i) {
    size_t size = 0;
    char *log = NULL;
    if (cuda.nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS && size) log = calloc(1, size + 1);
    if (log) cuda.nvrtcGetProgramLog(program, log);
    tu_fail(TU_INTERNAL, "%s: cannot compile kernel %s of %s: %.1200s", i->device->name,
            i->function->expression, i->function->unit ? i->function->unit : "a fused cluster",
            log ? log : "no compiler log");
    free(log);
    return TU_INTERNAL;
}

static tu_status copy_cubin(nvrtcProgram program, instance *i) {
    const char *lowered = i->function->expression;
    if (!i->function->source) NVRTC_TRY(nvrtcGetLoweredName, program, i->function->expression, &lowered);
    NVRTC_TRY(nvrtcGetCUBINSize, program, &i->bytes);
    i->name = tu__alloc(strlen(lowered) + 1, "a kernel");
    i->code = tu__alloc(i->bytes + 1, "a kernel");
    if (!i->name || !i->code) return TU_NO_MEMORY;
    memcpy(i->name, lowered, strlen(lowered));
    NVRTC_TRY(nvrtcGetCUBIN, program, i->code);
    return TU_OK;
}

static tu_status compile_program(nvrtcProgram program, instance *i) {
    char architecture[40];
    write_architecture(i->device, i->function, architecture);
    const char *const options[] = {architecture, "--std=c++17", "--device-as-default-execution-space",
                                   rounding_option(i->function)};
    if (!i->function->source) NVRTC_TRY(nvrtcAddNameExpression, program, i->function->expression);
    nvrtcResult result = cuda_call_fails("nvrtcCompileProgram")
                             ? NVRTC_ERROR_INTERNAL_ERROR
                             : cuda.nvrtcCompileProgram(program, sizeof options / sizeof *options, options);
    if (result == NVRTC_ERROR_COMPILATION) return fail_with_log(program, i);
    TU_TRY(cuda_check_nvrtc(result, "nvrtcCompileProgram"));
    return copy_cubin(program, i);
}

static tu_status compile_text(const char *text, instance *i) {
    const char *names[HEADERS], *texts[HEADERS];
    int count = 0;
    for (int h = 0; h < HEADERS; h++)
        if (is_header(headers[h].file)) {
            names[count] = headers[h].file;
            texts[count++] = cuda_kernel_source(headers[h].file);
        }
    nvrtcProgram program;
    NVRTC_TRY(nvrtcCreateProgram, &program, text, i->function->unit ? i->function->unit : "fused.cu", count,
              texts, names);
    tu_status status = compile_program(program, i);
    cuda.nvrtcDestroyProgram(&program);
    return status;
}

static tu_status load_or_compile(instance *i) {
    if (read_cached(i)) return TU_OK;
    char file[64];
    TU_TRY(cuda_load_library(CUDA_nvrtc));
    TU_TRY(compile_text(source_of(i->function, file), i));
    write_cached(i);
    return TU_OK;
}

/* ---- Parallel compilation ---- */

typedef struct batch {
    instance *instances;
    uint32_t count, next;
    pthread_mutex_t lock;
} batch;

static void *compile_worker(void *argument) {
    batch *b = argument;
    for (;;) {
        pthread_mutex_lock(&b->lock);
        uint32_t index = b->next++;
        pthread_mutex_unlock(&b->lock);
        if (index >= b->count) return NULL;
        instance *i = &b->instances[index];
        i->status = load_or_compile(i);
        if (i->status != TU_OK) snprintf(i->message, sizeof i->message, "%s", tu_message());
    }
}

enum { MAX_COMPILERS = 16 };

static void compile_all(batch *b) {
    pthread_t threads[MAX_COMPILERS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t started = 0;
    while (started + 1 < b->count && started < MAX_COMPILERS && started + 1 < (uint32_t)cores &&
           pthread_create(&threads[started], NULL, compile_worker, b) == 0)
        started++;
    compile_worker(b);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* ---- Modules ---- */

static module *find_module(const cuda_device *device, const char *key) {
    for (module *m = device->modules ? device->modules->first : NULL; m; m = m->next)
        if (strcmp(m->key, key) == 0) return m;
    return NULL;
}

/* The driver may load the function only when it is looked up. */
static tu_status load_function(module *m, const instance *i) {
    CUDA_TRY(cuModuleLoadData, &m->handle, i->code);
    tu_status status = CUDA_CALL(cuModuleGetFunction, &m->function, m->handle, i->name);
    if (status != TU_OK) cuda.cuModuleUnload(m->handle);
    return status;
}

static tu_status load_module(cuda_device *device, const instance *i) {
    module *m = tu__alloc(sizeof *m, "a kernel");
    if (!m) return TU_NO_MEMORY;
    memcpy(m->key, i->key, sizeof m->key);
    cuda_sync_lock();
    tu_status status = load_function(m, i);
    cuda_sync_unlock();
    if (status != TU_OK) {
        tu__free(m);
        return tu_fail(status, "%s: cannot load kernel %s: %s", device->name, i->function->expression,
                       tu_message());
    }
    m->next = device->modules->first;
    device->modules->first = m;
    return TU_OK;
}

void cuda_modules_free(cuda_device *device) {
    while (device->modules && device->modules->first) {
        module *m = device->modules->first;
        device->modules->first = m->next;
        cuda_sync_lock();
        cuda.cuModuleUnload(m->handle);
        cuda_sync_unlock();
        tu__free(m);
    }
    tu__free(device->modules);
    device->modules = NULL;
}

static bool is_listed(const batch *b, const char *key) {
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->instances[i].key, key) == 0) return true;
    return false;
}

/* Lists the instances that the device has no module for, each once. */
static tu_status list_missing(cuda_device *device, const cuda_function *functions, batch *b) {
    for (const cuda_function *f = functions; f; f = f->next) {
        instance *i = &b->instances[b->count];
        char file[64];
        const char *text = source_of(f, file);
        if (!text) return tu_fail(TU_INTERNAL, "there is no kernel file '%s.cu'", f->unit);
        compute_key(device, f, text, i->key);
        if (find_module(device, i->key) || is_listed(b, i->key)) continue;
        i->device = device;
        i->function = f;
        b->count++;
    }
    return TU_OK;
}

static tu_status load_all(cuda_device *device, const batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        const instance *compiled = &b->instances[i];
        if (compiled->status != TU_OK) return tu_fail(compiled->status, "%s", compiled->message);
        TU_TRY(load_module(device, compiled));
    }
    return TU_OK;
}

static void set_handles(const cuda_device *device, cuda_function *functions) {
    for (cuda_function *f = functions; f; f = f->next) {
        char file[64], key[TU__SHA256_HEX];
        compute_key(device, f, source_of(f, file), key);
        f->handle = find_module(device, key)->function;
    }
}

static tu_status compile_missing(cuda_device *device, const cuda_function *functions, batch *b) {
    TU_TRY(list_missing(device, functions, b));
    compile_all(b);
    return load_all(device, b);
}

static uint32_t count_functions(const cuda_function *functions) {
    uint32_t count = 0;
    for (; functions; functions = functions->next) count++;
    return count;
}

static tu_status compile_locked(cuda_device *device, cuda_function *functions) {
    batch b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    if (!device->modules) device->modules = tu__alloc(sizeof *device->modules, "a device's kernels");
    b.instances = tu__alloc_array(count_functions(functions) + 1, sizeof *b.instances, "a plan's kernels");
    if (!device->modules || !b.instances) {
        tu__free(b.instances);
        return TU_NO_MEMORY;
    }
    tu_status status = compile_missing(device, functions, &b);
    for (uint32_t i = 0; i < b.count; i++) free_code(&b.instances[i]);
    tu__free(b.instances);
    if (status == TU_OK) set_handles(device, functions);
    return status;
}

tu_status cuda_compile(cuda_device *device, cuda_function *functions) {
    TU_TRY(cuda_load_library(CUDA_nvrtc)); /* NVRTC's version is part of every key */
    pthread_mutex_lock(&device->lock);
    tu_status status = compile_locked(device, functions);
    pthread_mutex_unlock(&device->lock);
    return status;
}
