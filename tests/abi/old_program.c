/* A program that was compiled with an earlier version, whose structures and options were shorter, works with this one: the
 * library fills and reads no byte behind them. The structures below are those that such a version would have had. */
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

/* A shorter structure between bytes that must stay as they are. */
#define OLD(fields)                                                                                          \
    struct {                                                                                                 \
        struct {                                                                                             \
            size_t struct_size;                                                                              \
            fields                                                                                           \
        } s;                                                                                                 \
        unsigned char behind[64];                                                                            \
    }
#define BEGIN(old)                                                                                           \
    do {                                                                                                     \
        memset(&(old), GUARD, sizeof(old));                                                                  \
        (old).s.struct_size = sizeof(old).s;                                                                 \
    } while (0)
#define KEPT(old) is_kept((old).behind, sizeof(old).behind)

static bool is_kept(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GUARD) return false;
    return true;
}

static void look_at_devices(void) {
    OLD(const char *name; const char *kind;) info;
    for (size_t i = 0; i < tu_device_count(); i++) {
        BEGIN(info);
        REQUIRE(tu_device(i, (tu_device_info *)&info) == TU_OK);
        REQUIRE(strncmp(info.s.name, info.s.kind, strlen(info.s.kind)) == 0);
        REQUIRE(KEPT(info) && info.s.struct_size == sizeof info.s);
    }
}

static void build_and_compile(void) {
    tu_graph *g;
    tu_program *program;
    REQUIRE(tu_graph_new(&g) == TU_OK);
    OLD(tu_value images; tu_value labels;) net; /* a network that had no logits and no loss yet */
    BEGIN(net);
    REQUIRE(tu_model_build(g, "mlp", (tu_model_graph *)&net, .batch = 4) == TU_OK);
    REQUIRE(tu_ok(net.s.images) && tu_ok(net.s.labels) && KEPT(net));
    tu_value loss = tu_find_output(g, "loss");

    OLD(int64_t nodes;) totals;
    BEGIN(totals);
    REQUIRE(tu_graph_total(g, (tu_graph_totals *)&totals) == TU_OK);
    REQUIRE(totals.s.nodes > 10 && KEPT(totals));

    OLD(tu_value rate;) values;
    BEGIN(values);
    REQUIRE(tu_add_optimizer(loss, (tu_optimizer_values *)&values, .constant_rate = 0.1) == TU_OK);
    REQUIRE(tu_ok(values.s.rate) && KEPT(values));

    /* Options that end before .no_updates, and so far ahead that nothing but the devices is in them. */
    struct {
        size_t struct_size;
        const char *devices;
        unsigned char behind[256];
    } options = {.struct_size = 2 * sizeof(void *), .devices = "cpu:0"};
    memset(options.behind, 0xff, sizeof options.behind); /* what would be read is a mistake */
    REQUIRE(tu_compile_with(g, &program, (const tu_compile_options *)&options) == TU_OK);
    REQUIRE(tu_program_device_count(program) == 1);

    OLD(const char *device; const char *kernel; const char *node;) kernel;
    OLD(const char *device; uint64_t scratch_bytes;) memory;
    OLD(const char *node;) placement;
    BEGIN(kernel);
    BEGIN(memory);
    BEGIN(placement);
    REQUIRE(tu_program_memory(program, 0, (tu_memory_report *)&memory) == TU_OK && KEPT(memory));
    REQUIRE(strcmp(memory.s.device, "cpu:0") == 0);
    tu_program_free(program);

    tu_value fetch[] = {loss};
    REQUIRE(tu_compile(g, &program, .devices = "cpu:0", .fetch = fetch, .fetch_count = 1, .updates = true) ==
            TU_OK);
    REQUIRE(tu_program_placement_count(program) > 0);
    REQUIRE(tu_program_placement(program, 0, (tu_placement *)&placement) == TU_OK && KEPT(placement));
    REQUIRE(tu_program_kernel_count(program) > 0);
    REQUIRE(tu_program_kernel(program, 0, (tu_kernel_report *)&kernel) == TU_OK && KEPT(kernel));
    REQUIRE(strcmp(kernel.s.device, "cpu:0") == 0 && *kernel.s.kernel);

    /* An array: its elements are as far apart as the first says. */
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

static void read_data(void) {
    tu_dataset *set;
    tu_loader *loader;
    REQUIRE(tu_dataset_open("generated", &set) == TU_OK);
    OLD(const char *name; const char *origin; int64_t count[2];) info;
    BEGIN(info);
    REQUIRE(tu_dataset_describe(set, (tu_dataset_info *)&info) == TU_OK);
    REQUIRE(strcmp(info.s.name, "generated") == 0 && info.s.count[TU_TRAIN] > 0 && KEPT(info));
    REQUIRE(tu_loader_new(set, &loader, .batch = 4) == TU_OK);
    OLD(int64_t count;) batch;
    BEGIN(batch);
    REQUIRE(tu_loader_next(loader, (tu_batch *)&batch) == TU_OK && batch.s.count == 4 && KEPT(batch));
    tu_loader_free(loader);
    tu_dataset_free(set);
}

/* Options that end before the first setting: all settings are the recipe's. */
static void plan_training(void) {
    struct {
        size_t struct_size;
        const char *recipe;
        unsigned char behind[1024];
    } options = {.struct_size = 2 * sizeof(void *), .recipe = "plain"};
    memset(options.behind, 0xff, sizeof options.behind);
    OLD(const tu_program *program; int64_t batch; int64_t accumulate; const char *precision;
        const tu_dataset *set; void *internal;)
    plan;
    BEGIN(plan);
    REQUIRE(tu_plan_training_with("mlp", "generated", (tu_train_plan *)&plan,
                                  (const tu_train_options *)&options) == TU_OK);
    REQUIRE(plan.s.batch == 128 && strcmp(plan.s.precision, "f32") == 0 && KEPT(plan));
    tu_train_plan_free((tu_train_plan *)&plan);
    REQUIRE(!plan.s.program && KEPT(plan));
}

int main(void) {
    look_at_devices();
    build_and_compile();
    read_data();
    plan_training();
    puts("a program of an earlier version works");
    return 0;
}
