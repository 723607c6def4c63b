/* The CPU device: cores, memory and launching kernels. select.c decides what becomes a kernel.
 *
 * "cpu:0" has the process's cores, those of its affinity mask. Logical device p of "cpu:0/n" has the p-th of n
 * contiguous groups of them. The engine pins its host thread to the group before that starts any parallel loop, so that
 * the loop's threads, which inherit the mask, stay there too. With more logical devices than cores, devices share cores:
 * that works but is slow, and describe() returns a notice about it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/contention.h"
#include "device/cpu/dnnl.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/pointwise.h"
#include "device/cpu/sample_groups.h"
#include "device/host_memory.h"
#include "device/kit/norm_fusion.h"

/* More than a machine has cores. A higher number is a mistake, and OpenMP aborts the process if it runs out of
 * threads. */
enum { MAX_THREADS = 1024 };

struct tu_device_instance {
    cpu_device device;
    int cores;        /* of the logical device */
    char notice[160]; /* "": none */
};

struct tu_executable {
    tu__bound_kernels bound;
};

/* ---- Description ---- */

static int cores_of_process(cpu_set_t *mask) {
    CPU_ZERO(mask);
    if (sched_getaffinity(0, sizeof *mask, mask) == 0 && CPU_COUNT(mask) > 0) return CPU_COUNT(mask);
    CPU_SET(0, mask);
    return 1;
}

/* Reads "AMD EPYC 9654" from /proc/cpuinfo, or returns "processor" if that has no model name. */
static void read_model_name(char *name, size_t capacity) {
    snprintf(name, capacity, "processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(name, capacity, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    fclose(file);
}

static uint64_t memory_of_machine(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static tu_status describe_machine(int index, tu_device_info *info) {
    if (index > 0)
        return tu_fail(TU_NOT_FOUND, "there is one CPU device, cpu:0; cpu:0/2 splits its cores in two");
    static _Thread_local char description[512], arithmetic[128];
    char model[128];
    cpu_set_t mask;
    read_model_name(model, sizeof model);
    const char *dnnl = cpu_dnnl_version();
    snprintf(arithmetic, sizeof arithmetic, "%s, %s%s", cpu_isa_name(cpu_isa_in_use()),
             dnnl ? "oneDNN " : "without oneDNN", dnnl ? dnnl : "");
    int length = snprintf(description, sizeof description, "%s, %s", model, arithmetic);
    for (cpu_isa isa = CPU_BASELINE; isa < CPU_ISA_COUNT && (size_t)length < sizeof description; isa++)
        if (cpu_isa_of_machine()->unusable_reason[isa])
            length += snprintf(description + length, sizeof description - (size_t)length, "; no %s: %s",
                               cpu_isa_name(isa), cpu_isa_of_machine()->unusable_reason[isa]);
    *info = (tu_device_info){.name = "cpu:0",
                             .kind = "cpu",
                             .description = description,
                             .memory_bytes = memory_of_machine(),
                             .cores = cores_of_process(&mask),
                             .arithmetic = arithmetic};
    return TU_OK;
}

/* ---- Opening ---- */

/* Returns the number of cores of logical device `logical_index` of `logical_count`. `*first` is the first one's index
 * among the cores of the process. */
static int split_cores(int logical_index, int logical_count, int *first) {
    cpu_set_t mask;
    int count = cores_of_process(&mask);
    if (logical_count > count) {
        *first = logical_index % count;
        return 1;
    }
    *first = (int)((int64_t)count * logical_index / logical_count);
    return (int)((int64_t)count * (logical_index + 1) / logical_count) - *first;
}

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

/* Writes a notice if cores are shared, which is allowed but rarely intended. All logical devices write the same. */
static void write_notice(tu_device_instance *device, int own_cores) {
    const cpu_device *d = &device->device;
    cpu_set_t mask;
    int cores = cores_of_process(&mask);
    char name[24];
    snprintf(name, sizeof name, d->logical_count > 1 ? "cpu:%d/%d" : "cpu:%d", d->index, d->logical_count);
    if (d->logical_count > cores)
        snprintf(device->notice, sizeof device->notice,
                 "%s: %d devices share %d core%s; at most %d could have a core each", name, d->logical_count,
                 cores, plural(cores), cores);
    else if (d->threads > own_cores && d->logical_count == 1)
        snprintf(device->notice, sizeof device->notice, "%s: %d threads share %d core%s", name, d->threads,
                 own_cores, plural(own_cores));
    else if (d->threads > (cores + d->logical_count - 1) / d->logical_count)
        snprintf(device->notice, sizeof device->notice, "%s: each device has %d threads but only %d core%s",
                 name, d->threads, cores / d->logical_count, plural(cores / d->logical_count));
    else if (cpu_dnnl_version() && !cpu_dnnl_usable())
        snprintf(device->notice, sizeof device->notice,
                 "%s: oneDNN is disabled: the process initialised it before it could be limited to %s", name,
                 cpu_isa_name(cpu_isa_in_use()));
}

static tu_status check_options(const tu_open_options *options, int logical_count) {
    if (options->index != 0)
        return tu_fail(TU_NOT_FOUND, "there is no device cpu:%d: expected cpu:0", options->index);
    if (options->logical_index < 0 || options->logical_index >= logical_count)
        return tu_fail(TU_INVALID, "logical device %d of cpu:0/%d: expected 0 to %d", options->logical_index,
                       logical_count, logical_count - 1);
    if (options->threads < 0 || options->threads > MAX_THREADS)
        return tu_fail(TU_INVALID, "threads = %d: expected 1 to %d, or 0 (one per core)", options->threads,
                       MAX_THREADS);
    return TU_OK;
}

static tu_status open_device(const tu_open_options *options, tu_device_instance **device) {
    int logical_count = options->logical_count > 0 ? options->logical_count : 1;
    TU_TRY(check_options(options, logical_count));
    TU_TRY(cpu_isa_check_limit());
    tu_device_instance *d = tu__alloc(sizeof *d, "a device");
    if (!d) return TU_NO_MEMORY;
    d->cores = split_cores(options->logical_index, logical_count, &d->device.first_core);
    d->device.index = options->index;
    d->device.logical_index = options->logical_index;
    d->device.logical_count = logical_count;
    d->device.threads = options->threads ? options->threads : d->cores;
    d->device.memory_limit = options->memory_limit;
    d->device.loops = cpu_loops_for_this_machine();
    write_notice(d, d->cores);
    *device = d;
    return TU_OK;
}

static tu_status describe(tu_device_instance *device, int index, tu_device_info *info) {
    TU_TRY(describe_machine(index, info));
    if (!device) return TU_OK;
    info->cores = device->cores;
    info->first_core = device->device.first_core;
    info->threads = device->device.threads;
    info->notice = *device->notice ? device->notice : NULL;
    return TU_OK;
}

static void close_device(tu_device_instance *device) {
    tu__free(device);
}

/* ---- Programs ---- */

int cpu_sum_threads(const tu__selection *s) {
    int threads = cpu_of(s)->threads, most = s->graph->sum_threads;
    return most && most < threads ? most : threads;
}

static const tu__lowering_rule rules[TU__OP_COUNT] = {
#define LOWERING_RULE(op, rule) [TU__OP_##op] = rule,
#include "device/cpu/lowering.def"
};

static const tu__selector selector = {
    .rules = rules,
    .fallback = cpu_lower_reference,
    .make_copy = cpu_lower_copy,
    .input_after_fusion = tu__norm_input_after_fusion,
    .subkernel_bytes = sizeof(cpu_subkernel),
    .run_pointwise = cpu_run_pointwise,
    .make_subkernel = cpu_make_subkernel,
    .finish_subkernels = cpu_pointwise_finish,
    .sum_kind_of = cpu_sum_kind_of,
    .finish = cpu_group_samples,
};

static tu_status lower(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    return tu__select(&device->device, &selector, partition, plan);
}

static void plan_free(tu_device_instance *device, tu_plan *plan) {
    (void)device;
    tu__kernel_plan_free((tu__kernel_plan *)plan);
}

static tu_status build(tu_device_instance *device, tu_queue *queue, tu_plan *plan, const tu_binding *binding,
                       tu_executable **executable) {
    (void)device;
    tu_executable *e = tu__alloc(sizeof *e, "an executable");
    if (!e) return TU_NO_MEMORY;
    tu_status status = tu__kernels_bind((const tu__kernel_plan *)plan, binding, queue, &e->bound);
    if (status != TU_OK) {
        tu__free(e);
        return status;
    }
    *executable = e;
    return TU_OK;
}

static void executable_free(tu_device_instance *device, tu_executable *executable) {
    (void)device;
    tu__kernels_unbind(&executable->bound);
    tu__free(executable);
}

/* Reads the clock once per kernel: the end of a kernel is the start of the next. */
static tu_status run_kernels(const tu__bound_kernels *bound, uint32_t first, uint32_t count) {
    double start = tu__now();
    for (uint32_t i = first; i < first + count; i++) {
        TU_TRY(bound->kernels[i].run(&bound->kernels[i]));
        double end = tu__now();
        bound->times[i] = (tu__kernel_time){start, end - start};
        if (!tu__parallel_uses_pool()) tu__contention_check(end);
        start = end;
    }
    return TU_OK;
}

/* The calling thread may be the user's, so its OpenMP settings are restored. */
static tu_status launch(tu_device_instance *device, tu_executable *executable, uint32_t first,
                        uint32_t count) {
    tu__parallel_setting before = tu__parallel_begin(device->device.threads);
    tu_status status = run_kernels(&executable->bound, first, count);
    tu__parallel_end(before);
    return status;
}

static tu_status times(tu_device_instance *device, tu_executable *executable, uint32_t position,
                       double *start, double *seconds) {
    (void)device;
    if (position >= executable->bound.count)
        return tu_fail(TU_INVALID, "there is no kernel %u: the plan has %u", position,
                       executable->bound.count);
    *start = executable->bound.times[position].start;
    *seconds = executable->bound.times[position].seconds;
    return TU_OK;
}

extern const tu_device_api tu__cpu_api;
const tu_device_api tu__cpu_api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof(tu_device_api),
    .kind = "cpu",
    .host_memory = true,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .allocate = tu__host_allocate,
    .release = tu__host_release,
    .copy = tu__host_copy,
    .lower = lower,
    .plan_free = plan_free,
    .build = build,
    .executable_free = executable_free,
    .launch = launch,
    .times = times,
};
