/* Strategy central over processes with a GPU each, compared with one process: the bits of losses and variables. The processes
 * need a new list or other rings at different calls, which NCCL allows only if all of them capture again.
 *
 *     mpirun -n 2 build/release/tests/central_processes
 *
 * Uses the emulated GPU, whose NCCL fails if a transfer is captured by one process only, or by the two in different calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include <tutti/process_group.h>

#include "cuda/emulated.h"

enum {
    BATCH = 8,
    IN = 12,
    OUT = 40,
    ROWS = 70, /* of a matrix that cuSOLVER inverts */
    CALLS = 6,
    STEPS = 3,
    TEXT = 256,
};

static tu_process_group *group;
static tu_process_info self = TU_SIZED(tu_process_info);

static void must(tu_status status, const char *what) {
    if (status == TU_OK) return;
    fprintf(stderr, "central_processes: rank %u: %s: %s\n", self.rank, what, tu_message());
    if (group) tu_process_group_fail(group, TU_DEVICE, tu_message());
    exit(2);
}

static void check(bool is_right, const char *what) {
    if (!is_right) must(tu_fail(TU_INVALID, "expected something else"), what);
}

typedef struct trainer {
    tu_graph *graph;
    tu_value x;
    tu_program *step, *evaluation;
    tu_state *state;
    float losses[CALLS * STEPS], evaluated[CALLS];
    float w[IN * OUT], m[ROWS * ROWS];
} trainer;

static void build_graph(trainer *t, tu_value *loss) {
    must(tu_graph_new(&t->graph), "graph");
    t->x = tu_batch_input(t->graph, "x", TU_F32, TU_SHAPE(BATCH, IN));
    tu_value w =
        tu_variable(t->graph, "w", TU_F32, TU_SHAPE(IN, OUT), .init = {.kind = TU_INIT_CONSTANT, .a = 0.01});
    *loss = tu_mean(tu_square(tu_tanh(tu_matmul(t->x, w))));
}

/* An update that only rank 0 computes, and that cannot be captured. */
static void add_inverse(const trainer *t) {
    tu_init two = {.kind = TU_INIT_CONSTANT, .a = 2}, small = {.kind = TU_INIT_CONSTANT, .a = 0.001};
    tu_value diagonal = tu_variable(t->graph, "diagonal", TU_F32, TU_SHAPE(ROWS), .init = two);
    tu_value m = tu_variable(t->graph, "m", TU_F32, TU_SHAPE(ROWS, ROWS), .init = small);
    tu_assign(m, tu_inverse(tu_add(tu_diagonal_matrix(diagonal, 0), m)));
}

static void compile(trainer *t, tu_process_group *with, const char *devices, const char *central,
                    bool inverts) {
    tu_value loss;
    memset(t, 0, sizeof *t);
    build_graph(t, &loss);
    must(tu_compile(t->graph, &t->evaluation, .devices = devices, .strategy = "central", .central = central,
                    .threads = 1, .fetch = &loss, .fetch_count = 1, .group = with),
         "evaluation");
    must(tu_add_sgd(loss, 0.5, 0.9), "optimizer");
    if (inverts) add_inverse(t);
    must(tu_compile(t->graph, &t->step, .devices = devices, .strategy = "central", .central = central,
                    .threads = 1, .fetch = &loss, .fetch_count = 1, .updates = true, .group = with),
         "step");
    must(tu_state_new(t->graph, &t->state), "state");
}

static void free_trainer(trainer *t) {
    tu_program_free(t->step);
    tu_program_free(t->evaluation);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

/* Once, rank 1 wants no losses, so its rings change before and after that call. Later it gets another state, of which it uses
 * no variable: its list is bound again. Nothing changes for rank 0. */
static void train(trainer *t, bool in_group, bool inverts) {
    static float x[STEPS * BATCH * IN];
    for (int call = 0; call < CALLS; call++) {
        bool is_second = in_group && self.rank == 1;
        for (int i = 0; i < STEPS * BATCH * IN; i++) x[i] = (float)sin(i * 0.7 + call);
        void *fetch = is_second && call == 2 ? NULL : &t->losses[call * STEPS];
        must(tu_run_many(t->step, t->state, STEPS, 1, (tu_feed_many[]){{.input = t->x, .data = x}}, &fetch),
             "training");
        if (is_second && call == 3) {
            tu_state_free(t->state);
            must(tu_state_new(t->graph, &t->state), "another state");
        }
        must(tu_run_many(t->evaluation, t->state, 1, 1, (tu_feed_many[]){{.input = t->x, .data = x}},
                         (void *[]){&t->evaluated[call]}),
             "evaluation");
    }
    if (in_group && self.rank) return;
    must(tu_state_get(t->state, "w", t->w, sizeof t->w), "variable");
    if (inverts) must(tu_state_get(t->state, "m", t->m, sizeof t->m), "variable");
}

static void check_path(const tu_program *program) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    tu_device_report device = TU_SIZED(tu_device_report);
    must(tu_program_multi_step(program, &report), "report");
    must(tu_program_device(program, 0, &device), "report");
    if (device.notice) must(tu_fail(TU_INVALID, "%s", device.notice), "notice");
    if (!report.in_one_call) must(tu_fail(TU_INVALID, "%s", report.notice), "steps");
}

static void compare(bool inverts) {
    static trainer together, alone;
    char devices[64], central[64], all[TEXT] = "";
    snprintf(devices, sizeof devices, "gpu:0.%u/%u", self.rank, self.size);
    snprintf(central, sizeof central, "gpu:0.0/%u", self.size);
    for (uint32_t r = 0; r < self.size; r++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%sgpu:0.%u/%u", r ? "," : "", r, self.size);
    compile(&together, group, devices, central, inverts);
    check_path(together.step);
    check_path(together.evaluation);
    train(&together, true, inverts);
    compile(&alone, NULL, all, central, inverts);
    train(&alone, false, inverts);
    for (int i = 0; i < CALLS * STEPS; i++)
        check((self.rank == 1 && i / STEPS == 2) || together.losses[i] == alone.losses[i], "losses of steps");
    check(memcmp(together.evaluated, alone.evaluated, sizeof alone.evaluated) == 0, "losses of evaluations");
    check(self.rank || memcmp(together.w, alone.w, sizeof alone.w) == 0, "the variable w");
    check(self.rank || memcmp(together.m, alone.m, sizeof alone.m) == 0, "the variable m");
    free_trainer(&together);
    free_trainer(&alone);
}

int main(void) {
    use_emulated_gpu();
    setenv("TUTTI_NCCL", "share", 0);
    must(tu_process_group_open(&group, .timeout = 30), "process group");
    must(tu_process_group_describe(group, &self), "process group");
    compare(false);
    compare(true);
    tu_process_group_close(group);
    return 0;
}
