// Fault injection: the plug-in asks before each call whether it fails. NVIDIA's driver has no such function.
//
// The environment variable FAKE_CUDA_FAIL selects the call: "17" is the 17th call of all, "cuMemAlloc:2" the second call
// of cuMemAlloc. A new value restarts the count.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

static std::mutex lock;
static std::string last_spec;
static uint64_t count;

extern "C" bool fake_call_fails(const char *function) {
    const char *spec = getenv("FAKE_CUDA_FAIL");
    if (!spec) return false;
    std::lock_guard<std::mutex> guard(lock);
    if (last_spec != spec) {
        last_spec = spec;
        count = 0;
    }
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : 0;
    if (colon && (strncmp(function, spec, length) != 0 || (function[length] && function[length] != '_')))
        return false; // "cuMemAlloc" also matches cuMemAlloc_v2
    return ++count == strtoull(colon ? colon + 1 : spec, nullptr, 10);
}
