/* A fake NVRTC: compiles kernels for the host, with the host's C++ compiler.
 *
 * Each expression of a program becomes a separate shared library: emulated_device.cuh, the source with its includes
 * expanded, and a function that calls the kernel. Libraries are cached in a folder (FAKE_CUDA_CACHE, or one in the
 * build folder) by a digest of their text, so that a test run compiles only what changed. The returned machine code
 * is the list of these libraries, which the fake driver opens (module.cpp).
 *
 * Index and alignment checks are compiled in: a wrong access is an illegal instruction, which grid.cpp reports.
 * FAKE_CUDA_FLAGS adds flags, for example "-g -O0". libm is not linked, which would take as long as compiling: the
 * fake driver loads it once for all.
 */
#include <nvrtc.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "driver.h"

extern char **environ;

struct machine_code {
    std::string code;
    std::map<std::string, std::string> lowered; /* mangled names of kernels */
};
struct _nvrtcProgram {
    std::string source, name, log;
    std::map<std::string, std::string> headers;
    std::vector<std::string> expressions;
    machine_code result;
};

/* ---- Text ---- */

static std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

/* Rewrites `extern __shared__ T name[];`, whose size is set by the launch. */
static std::string rewrite_shared(const std::string &text) {
    static const std::regex declaration(
        R"(extern\s+__shared__\s+(?:(?:alignas|__align__)\s*\([^)]*\)\s*)?([\w:<>, ]+?)\s+(\w+)\s*\[\s*\]\s*;)");
    return std::regex_replace(text, declaration, "$1 *$2 = ($1 *)emulated.shared;");
}

static std::string expand(const std::string &text, const std::string &name,
                          const std::map<std::string, std::string> &headers) {
    std::stringstream lines(text);
    std::string line, result = "#line 1 \"" + name + "\"\n";
    for (int number = 1; std::getline(lines, line); number++) {
        std::smatch match;
        static const std::regex include("^\\s*#\\s*include\\s*\"([^\"]+)\".*");
        auto header = std::regex_match(line, match, include) ? headers.find(match[1]) : headers.end();
        if (header == headers.end())
            result += line + "\n";
        else
            result += expand(header->second, header->first, headers) + "#line " + std::to_string(number + 1) +
                      " \"" + name + "\"\n";
    }
    return result;
}

/* Hashes eight bytes at a time: kernel texts are long and hashed often. */
static std::string digest(const std::string &text) {
    uint64_t a = 0xcbf29ce484222325ull ^ text.size(), b = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < text.size(); i += 8) {
        uint64_t word = 0;
        memcpy(&word, text.data() + i, text.size() - i < 8 ? text.size() - i : 8);
        a = (a ^ word) * 0x9fb21c651e98df25ull;
        a ^= a >> 32;
        b = (b + word) * 0xd6e8feb86659fd93ull;
        b ^= b >> 29;
    }
    char hex[40];
    snprintf(hex, sizeof hex, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
    return hex;
}

/* Returns a linker name: "max_pool<bf16, 3>" becomes "max_pool_bf16__3_". */
static std::string lower(const std::string &expression) {
    std::string name = expression;
    for (char &c : name)
        if (!isalnum((unsigned char)c)) c = '_';
    return name;
}

/* ---- Compiling ---- */

static std::vector<std::string> compiler_flags() {
    std::vector<std::string> flags = {"-std=c++17",
                                      "-O1",
                                      "-shared",
                                      "-fPIC",
                                      "-nostartfiles",
                                      "-nodefaultlibs",
                                      "-w",
                                      "-fvisibility=hidden",
                                      "-fno-gnu-unique",
                                      "-fno-exceptions",
                                      "-fno-rtti",
                                      "-fno-asynchronous-unwind-tables",
                                      "-fno-strict-aliasing",
                                      "-ffp-contract=off",
                                      "-fno-math-errno",
                                      "-U_FORTIFY_SOURCE",
                                      "-fno-stack-protector",
                                      "-fsanitize=alignment,bounds",
                                      "-fsanitize-undefined-trap-on-error",
                                      "-DTU_EMULATED"};
    std::stringstream more(getenv("FAKE_CUDA_FLAGS") ? getenv("FAKE_CUDA_FLAGS") : "");
    for (std::string flag; more >> flag;) flags.push_back(flag);
    return flags;
}

static const char libraries[] = "-lgcc"; /* functions for instructions that not every CPU has */

static bool run(const std::vector<std::string> &words, const std::string &log) {
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ), status = 1;
    posix_spawn_file_actions_destroy(&actions);
    return !failed && waitpid(child, &status, 0) == child && status == 0;
}

static std::string cache_folder() {
    const char *unique_path = getenv("FAKE_CUDA_CACHE");
    std::string folder = unique_path && *unique_path ? unique_path : FAKE_CACHE;
    mkdir(folder.c_str(), 0777);
    return folder;
}

/* Returns the library's bytes; empty, with the compiler's messages in `log`, if it does not compile. */
static std::string compile(const std::string &text, const std::vector<std::string> &options,
                           std::string &log) {
    std::vector<std::string> words = compiler_flags();
    words.insert(words.begin(), FAKE_CXX);
    words.insert(words.end(), options.begin(), options.end());
    std::string all = text + libraries;
    for (const std::string &word : words) all += "\n" + word;
    std::string path = cache_folder() + "/" + digest(all) + ".so", code = read_file(path);
    if (!code.empty()) return code;

    static std::atomic<unsigned> serial;
    std::string unique_path = path + "." + std::to_string(getpid()) + "." + std::to_string(serial++);
    std::ofstream(unique_path + ".cpp", std::ios::binary) << text;
    words.insert(words.end(), {"-o", unique_path, unique_path + ".cpp", libraries});
    bool ok = run(words, unique_path + ".log");
    log = read_file(unique_path + ".log");
    unlink((unique_path + ".cpp").c_str());
    unlink((unique_path + ".log").c_str());
    if (!ok && log.empty()) log = "the compiler " FAKE_CXX " could not be run";
    if (!ok) return "";
    code = read_file(unique_path);
    rename(unique_path.c_str(), path.c_str());
    return code;
}

/* ---- Programs ---- */

static const std::string &emulation() {
    static const std::string text =
        read_file(FAKE_SOURCES "/half.h") + read_file(FAKE_SOURCES "/emulated_device.cuh");
    return text;
}

/* Without expressions, a program's kernels are its extern "C" functions. */
static std::vector<std::string> kernels_by_name(const std::string &source) {
    static const std::regex kernel(
        R"re(extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\()re");
    std::vector<std::string> names;
    for (std::sregex_iterator i(source.begin(), source.end(), kernel), end; i != end; ++i)
        names.push_back((*i)[1]);
    return names;
}

/* Translates NVRTC's options: definitions, and the architecture as __CUDA_ARCH__. */
static std::vector<std::string> translate(int count, const char *const *options) {
    std::vector<std::string> result;
    for (int i = 0; i < count; i++) {
        std::string option = options[i];
        std::smatch match;
        static const std::regex architecture("(?:--gpu-architecture|-arch)=(?:sm|compute)_(\\d+)[a-z]?"),
            definition("(?:-D|--define-macro=)(.+)");
        if (std::regex_match(option, match, architecture))
            result.push_back("-D__CUDA_ARCH__=" + match[1].str() + "0");
        else if (std::regex_match(option, match, definition))
            result.push_back("-D" + match[1].str());
    }
    return result;
}

/* The minor version depends on emulated_device.cuh, so that kernels cached on disk by version are never stale. */
nvrtcResult nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 1000 + (int)(strtoul(digest(emulation()).substr(0, 6).c_str(), nullptr, 16));
    return NVRTC_SUCCESS;
}
const char *nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: return "NVRTC_ERROR";
    }
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *names) {
    NEED(program && source && header_count >= 0, NVRTC_ERROR_INVALID_INPUT);
    nvrtcProgram p = new _nvrtcProgram;
    p->source = source;
    p->name = name ? name : "default_program";
    for (int i = 0; i < header_count; i++) p->headers[names[i]] = headers[i];
    fake_add_object("NVRTC program", p);
    *program = p;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    NEED(program && fake_remove_object("NVRTC program", *program), NVRTC_ERROR_INVALID_PROGRAM);
    delete *program;
    *program = nullptr;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram p, const char *expression) {
    p->expressions.push_back(expression);
    return NVRTC_SUCCESS;
}
static nvrtcResult compile_program(nvrtcProgram p, const std::vector<std::string> &options) {
    std::string text = rewrite_shared(expand(p->source, p->name, p->headers));
    std::vector<std::string> kernels = p->expressions.empty() ? kernels_by_name(text) : p->expressions;
    std::string code;
    for (const std::string &kernel : kernels) {
        std::string full_text =
            emulation() + text + "\n#line 1 \"" + kernel + "\"\nEMULATED_KERNEL(" + kernel + ")\n";
        std::string library = compile(full_text, options, p->log);
        if (library.empty()) return NVRTC_ERROR_COMPILATION;
        p->result.lowered[kernel] = lower(kernel);
        code += lower(kernel) + " " + std::to_string(library.size()) + "\n" + library;
    }
    p->result.code = "EMULATED " + std::to_string(kernels.size()) + "\n" + code;
    return NVRTC_SUCCESS;
}

/* Compiled programs of this process by digest: every tutti program requests its kernels again. */
static std::map<std::string, machine_code> compiled;

static std::string digest_of_program(const _nvrtcProgram &p, const std::vector<std::string> &options) {
    std::string all = p.name + '\0' + p.source;
    for (const auto &header : p.headers) all += '\0' + header.first + '\0' + header.second;
    for (const std::string &expression : p.expressions) all += '\0' + expression;
    for (const std::string &option : options) all += '\0' + option;
    return digest(all);
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int count, const char *const *options) {
    std::vector<std::string> translated = translate(count, options);
    std::string key = digest_of_program(*p, translated);
    {
        fake_guard guard(fake_lock());
        auto found = compiled.find(key);
        if (found != compiled.end()) {
            p->result = found->second;
            return NVRTC_SUCCESS;
        }
    }
    nvrtcResult result = compile_program(p, translated);
    if (result != NVRTC_SUCCESS) return result;
    fake_guard guard(fake_lock());
    compiled[key] = p->result;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram p, const char *expression, const char **lowered) {
    auto found = p->result.lowered.find(expression);
    NEED(found != p->result.lowered.end(), NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID);
    *lowered = found->second.c_str();
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size) {
    *size = p->result.code.size();
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *code) {
    memcpy(code, p->result.code.data(), p->result.code.size());
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size) {
    *size = p->log.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log) {
    memcpy(log, p->log.c_str(), p->log.size() + 1);
    return NVRTC_SUCCESS;
}
