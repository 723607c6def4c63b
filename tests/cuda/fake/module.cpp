/* The fake driver: modules, functions and launches.
 *
 * The machine code of the fake NVRTC is a list of shared libraries, one per kernel (nvrtc.cpp). A module opens them.
 * A library stays open until the process ends: opening one takes longer than a small kernel, and plans need the same
 * ones again.
 *
 * With FAKE_CUDA_COMPILE_ONLY=1 a module is real machine code from the real NVRTC: functions are looked up in it, and
 * launches are checked but do nothing.
 */
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "grid.h"

enum { MAX_PARAMETERS_BYTES = 32764, DEFAULT_SHARED = 48 << 10 };

struct CUfunc_st {
    std::string name;
    CUcontext context;
    emulated_kernel kernel;
    std::vector<size_t> parameters; /* size of each */
    int max_dynamic_shared;
};
struct CUmod_st {
    CUcontext context;
    std::map<std::string, CUfunc_st> functions;
    const char *real; /* FAKE_CUDA_COMPILE_ONLY: the machine code */
};

static bool compiles_only() {
    return fake_setting("FAKE_CUDA_COMPILE_ONLY", 0) != 0;
}

/* ---- Kernel libraries ---- */

/* Kernels do not link libm (nvrtc.cpp), so it is loaded globally. */
static void load_mathematics() {
    static void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
    if (!library) fake_fail("cannot load libm.so.6: %s", dlerror());
}

static void *open_bytes(const char *bytes, size_t size) {
    char path[] = "/tmp/emulated-kernel-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) fake_fail("no temporary file for a kernel");
    bool ok = write(file, bytes, size) == (ssize_t)size;
    close(file);
    void *library = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) fprintf(stderr, "emulated GPU: %s\n", ok ? dlerror() : "a kernel could not be written");
    unlink(path);
    return library;
}

static void *open_library(const char *bytes, size_t size) {
    static auto *opened = new std::map<std::string, void *>;
    std::string content(bytes, size);
    auto found = opened->find(content);
    if (found != opened->end()) return found->second;
    load_mathematics();
    void *library = open_bytes(bytes, size);
    if (library) (*opened)[content] = library;
    return library;
}

static bool describe(void *library, CUfunc_st &f) {
    auto statics = (void (*)(char **, char **))dlsym(library, "emulated_statics");
    auto parameter = (size_t(*)(int))dlsym(library, "emulated_parameter");
    f.kernel.state = (emulated_state *)dlsym(library, "emulated");
    f.kernel.run = (void (*)(void **))dlsym(library, "emulated_run");
    if (!statics || !parameter || !f.kernel.state || !f.kernel.run) return false;
    statics(&f.kernel.statics, &f.kernel.statics_end);
    for (int i = 0; parameter(i); i++) f.parameters.push_back(parameter(i));
    return true;
}

/* Parses "EMULATED count\n", then for each kernel "name size\n" and the library. */
static bool load_emulated(CUmodule module, const char *code) {
    int count, used;
    if (sscanf(code, "EMULATED %d%n", &count, &used) != 1) return false;
    code += used + 1;
    while (count--) {
        char name[512];
        size_t size;
        if (sscanf(code, "%511s %zu%n", name, &size, &used) != 2) return false;
        code += used + 1;
        void *library = open_library(code, size);
        CUfunc_st &f = module->functions[name];
        f.name = name;
        f.max_dynamic_shared = DEFAULT_SHARED;
        if (!library || !describe(library, f)) return false;
        f.kernel.name = f.name.c_str();
        code += size;
    }
    return true;
}

/* ---- Real machine code ---- */

static bool is_machine_code(const char *code) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)code;
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_machine == 190; /* EM_CUDA */
}
static bool has_function(const char *code, const char *name) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)code;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(code + header->e_shoff);
    const char *names = code + sections[header->e_shstrndx].sh_offset;
    std::string wanted = std::string(".text.") + name;
    for (int i = 0; i < header->e_shnum; i++)
        if (wanted == names + sections[i].sh_name) return true;
    return false;
}

/* ---- Modules ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    std::unique_ptr<CUmod_st> m(new CUmod_st());
    const char *code = (const char *)image;
    if (compiles_only()) {
        NEED(is_machine_code(code), CUDA_ERROR_INVALID_IMAGE);
        m->real = code;
    } else {
        NEED(load_emulated(m.get(), code), CUDA_ERROR_INVALID_IMAGE);
    }
    m->context = current_context();
    *module = m.release();
    fake_add_object("module", *module);
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    NEED(fake_is_object("module", module), CUDA_ERROR_INVALID_HANDLE);
    finish_everything();
    fake_remove_object("module", module);
    delete module;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    fake_guard guard(fake_lock());
    NEED(fake_is_object("module", module), CUDA_ERROR_INVALID_HANDLE);
    if (module->real && has_function(module->real, name))
        module->functions[name].max_dynamic_shared = DEFAULT_SHARED;
    auto found = module->functions.find(name);
    NEED(found != module->functions.end(), CUDA_ERROR_NOT_FOUND);
    found->second.context = module->context;
    *function = &found->second;
    return CUDA_SUCCESS;
}

static int max_shared_bytes() {
    int maximum = 0;
    cuDeviceGetAttribute(&maximum, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0);
    return maximum;
}
static int static_shared(CUfunction function) {
    return (int)(function->kernel.statics_end - function->kernel.statics);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    NEED(value >= 0 && value + static_shared(function) <= max_shared_bytes(), CUDA_ERROR_INVALID_VALUE);
    function->max_dynamic_shared = value;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_shared(function); break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->max_dynamic_shared; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int threads, size_t) {
    NEED(threads > 0, CUDA_ERROR_INVALID_VALUE);
    *blocks = 2048 / threads;
    return CUDA_SUCCESS;
}

/* ---- Launches ---- */

/* A copy of the parameters: the caller's may be gone when the kernel runs. */
struct copied_parameters {
    std::vector<std::vector<char>> bytes;
    std::vector<void *> addresses;
};

static std::shared_ptr<copied_parameters> copy_parameters(const CUfunc_st *f, void **given, void **extra) {
    auto copied = std::make_shared<copied_parameters>();
    const char *buffer = nullptr;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2)
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = (const char *)extra[i + 1];
    for (size_t i = 0; i < f->parameters.size(); i++) {
        const char *from = buffer ? buffer : (const char *)given[i];
        copied->bytes.emplace_back(from, from + f->parameters[i]);
    }
    for (auto &bytes : copied->bytes) copied->addresses.push_back(bytes.data());
    return copied;
}

static CUresult check_launch(const CUfunc_st *f, point blocks, point threads, unsigned shared) {
    NEED(blocks.x && blocks.y && blocks.z && threads.x && threads.y && threads.z, CUDA_ERROR_INVALID_VALUE);
    NEED(blocks.x <= 0x7fffffffu && blocks.y <= 65535 && blocks.z <= 65535, CUDA_ERROR_INVALID_VALUE);
    NEED((uint64_t)threads.x * threads.y * threads.z <= 1024 && threads.z <= 64, CUDA_ERROR_INVALID_VALUE);
    NEED((int)shared <= f->max_dynamic_shared, CUDA_ERROR_INVALID_VALUE);
    size_t bytes = 0;
    for (size_t size : f->parameters) bytes += size;
    NEED(bytes <= MAX_PARAMETERS_BYTES, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty,
                        unsigned tz, unsigned shared, CUstream stream, void **parameters, void **extra) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(f, CUDA_ERROR_INVALID_HANDLE);
    NEED(f->context == current_context() && f->context == context_of(stream), CUDA_ERROR_INVALID_HANDLE);
    point blocks = {bx, by, bz}, threads = {tx, ty, tz};
    CUresult result = check_launch(f, blocks, threads, shared);
    if (result != CUDA_SUCCESS) return result;
    if (compiles_only()) return fake_enqueue(stream, "cuLaunchKernel", [] {});
    NEED(f->parameters.size() <= 1 || !extra, CUDA_ERROR_NOT_SUPPORTED);
    auto copied = copy_parameters(f, parameters, extra);
    return fake_enqueue(stream, f->kernel.name, [=] {
        without_foreign_memory protection(working_gpu());
        run_grid(f->kernel, blocks, threads, shared, copied->addresses.data());
    });
}

/* Kernels that may start early run after those before, too. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
    NEED(c && (c->attrs || !c->numAttrs), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < c->numAttrs; i++)
        NEED(c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CUDA_ERROR_NOT_SUPPORTED);
    return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, parameters, extra);
}
