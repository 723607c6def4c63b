/* Tests that a program compiled with an earlier version, whose structures were shorter, works with this library: the
 * library neither reads nor writes past their ends. The structures below are those of such a version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { GUARD = 0x5a };

#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s; the message is: %s\n", __FILE__, __LINE__, #condition,               \
                    tu_message());                                                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* A shorter structure, followed by guard bytes that must not change. */
#define OLD_STRUCT(fields)                                                                                   \
    struct {                                                                                                 \
        struct {                                                                                             \
            size_t struct_size;                                                                              \
            fields                                                                                           \
        } s;                                                                                                 \
        unsigned char guard[64];                                                                             \
    }
#define INITIALIZE(old)                                                                                      \
    do {                                                                                                     \
        memset(&(old), GUARD, sizeof(old));                                                                  \
        (old).s.struct_size = sizeof(old).s;                                                                 \
    } while (0)
#define GUARD_INTACT(old) all_guard_bytes((old).guard, sizeof(old).guard)

static bool all_guard_bytes(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GUARD) return false;
    return true;
}

static void check_devices(void) {
    OLD_STRUCT(const char *name; const char *kind;) info;
    for (size_t i = 0; i < tu_device_count(); i++) {
        INITIALIZE(info);
        REQUIRE(tu_device(i, (tu_device_info *)&info) == TU_OK);
        REQUIRE(strncmp(info.s.name, info.s.kind, strlen(info.s.kind)) == 0);
        REQUIRE(GUARD_INTACT(info) && info.s.struct_size == sizeof info.s);
    }
}

static void check_graph_and_program(void) {
    tu_graph *g;
    tu_program *program;
    REQUIRE(tu_graph_new(&g) == TU_OK);
    OLD_STRUCT(tu_value images; tu_value labels;) net; /* without logits and loss */
    INITIALIZE(net);
    REQUIRE(tu_network_build(g, "mlp", (tu_network_graph *)&net, .batch = 4) == TU_OK);
    REQUIRE(tu_ok(net.s.images) && tu_ok(net.s.labels) && GUARD_INTACT(net));
    tu_value loss = tu_find_output(g, "loss");

    OLD_STRUCT(int64_t nodes;) totals;
    INITIALIZE(totals);
    REQUIRE(tu_graph_total(g, (tu_graph_totals *)&totals) == TU_OK);
    REQUIRE(totals.s.nodes > 10 && GUARD_INTACT(totals));

    OLD_STRUCT(tu_value rate;) values;
    INITIALIZE(values);
    REQUIRE(tu_add_optimizer(loss, (tu_optimizer_values *)&values, .constant_rate = 0.1) == TU_OK);
    REQUIRE(tu_ok(values.s.rate) && GUARD_INTACT(values));

    /* Options that end after .devices. */
    struct {
        size_t struct_size;
        const char *devices;
        unsigned char guard[256];
    } options = {.struct_size = 2 * sizeof(void *), .devices = "cpu:0"};
    memset(options.guard, 0xff, sizeof options.guard); /* reading these would give invalid options */
    REQUIRE(tu_compile_with(g, &program, (const tu_compile_options *)&options) == TU_OK);
    REQUIRE(tu_program_device_count(program) == 1);

    OLD_STRUCT(const char *device; const char *kernel; const char *node;) kernel;
    OLD_STRUCT(const char *device; uint64_t scratch_bytes;) memory;
    OLD_STRUCT(const char *node;) placement;
    INITIALIZE(kernel);
    INITIALIZE(memory);
    INITIALIZE(placement);
    REQUIRE(tu_program_memory(program, 0, (tu_memory_report *)&memory) == TU_OK && GUARD_INTACT(memory));
    REQUIRE(strcmp(memory.s.device, "cpu:0") == 0);
    tu_program_free(program);

    tu_value fetch[] = {loss};
    REQUIRE(tu_compile(g, &program, .devices = "cpu:0", .fetch = fetch, .fetch_count = 1, .updates = true) ==
            TU_OK);
    REQUIRE(tu_program_placement_count(program) > 0);
    REQUIRE(tu_program_placement(program, 0, (tu_placement *)&placement) == TU_OK && GUARD_INTACT(placement));
    REQUIRE(tu_program_kernel_count(program) > 0);
    REQUIRE(tu_program_kernel(program, 0, (tu_kernel_report *)&kernel) == TU_OK && GUARD_INTACT(kernel));
    REQUIRE(strcmp(kernel.s.device, "cpu:0") == 0 && *kernel.s.kernel);

    /* An array: the distance of its elements is struct_size of the first. */
    struct old_item {
        size_t struct_size;
        tu_memory_kind kind;
        const char *name;
    } items[3] = {{.struct_size = sizeof(struct old_item)}};
    size_t count;
    REQUIRE(tu_program_peak_count(program, 0) > 3);
    REQUIRE(tu_program_peak(program, 0, 2, (tu_memory_item *)items, &count) == TU_OK && count == 2);
    REQUIRE(items[0].name && items[1].name && !items[2].name && items[2].struct_size == 0);
    tu_program_free(program);
    tu_graph_free(g);
}

static void check_data(void) {
    tu_dataset *set;
    tu_loader *loader;
    REQUIRE(tu_dataset_open("generated", &set) == TU_OK);
    OLD_STRUCT(const char *name; const char *origin; int64_t count[2];) info;
    INITIALIZE(info);
    REQUIRE(tu_dataset_describe(set, (tu_dataset_info *)&info) == TU_OK);
    REQUIRE(strcmp(info.s.name, "generated") == 0 && info.s.count[TU_TRAIN] > 0 && GUARD_INTACT(info));
    REQUIRE(tu_loader_new(set, &loader, .batch = 4) == TU_OK);
    OLD_STRUCT(int64_t count;) batch;
    INITIALIZE(batch);
    REQUIRE(tu_loader_next(loader, (tu_batch *)&batch) == TU_OK && batch.s.count == 4 && GUARD_INTACT(batch));
    tu_loader_free(loader);
    tu_dataset_free(set);
}

/* Options that end before the first setting: all settings have the values of the recipe. */
static void check_training_plan(void) {
    struct {
        size_t struct_size;
        const char *recipe;
        unsigned char guard[1024];
    } options = {.struct_size = 2 * sizeof(void *), .recipe = "plain"};
    memset(options.guard, 0xff, sizeof options.guard);
    OLD_STRUCT(const tu_program *program; int64_t batch; int64_t accumulate; const char *precision;
               const tu_dataset *set; void *internal;)
    plan;
    INITIALIZE(plan);
    REQUIRE(tu_plan_training_with("mlp", "generated", (tu_train_plan *)&plan,
                                  (const tu_train_options *)&options) == TU_OK);
    REQUIRE(plan.s.batch == 128 && strcmp(plan.s.precision, "f32") == 0 && GUARD_INTACT(plan));
    tu_train_plan_free((tu_train_plan *)&plan);
    REQUIRE(!plan.s.program && GUARD_INTACT(plan));
}

int main(void) {
    check_devices();
    check_graph_and_program();
    check_data();
    check_training_plan();
    puts("a program of an earlier version works");
    return 0;
}
