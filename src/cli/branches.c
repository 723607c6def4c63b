/* `branches`: what several devices gain when the work divides by itself.
 *
 * Sixteen perceptrons of equal size read the same images; their logits are added up, as an ensemble's are. Branch i
 * belongs to the i-th device in turn, so 1, 2, 4, 8 or 16 devices have equal shares of the same work and the same
 * numbers come out; with more devices than that there is one branch a device. Only images, logits and the gradient of
 * the logits cross between devices: a few hundred KiB against 2.4 thousand million operations. No network is trained
 * like this by itself; it measures the engine, and so it lives here and not among the models. */
#include "cli/branches.h"

#include <stdio.h>

#include <tutti/layers.h>

enum { BRANCHES = 16, LAYERS = 3, WIDTH = 256, CLASSES = 10 };

/* images [n, WIDTH] -> logits [n, CLASSES] */
static tu_value branch(tu_value x) {
    for (int i = 1; i <= LAYERS; i++) {
        char name[24];
        snprintf(name, sizeof name, "hidden%d", i);
        x = tu_dense(x, .units = WIDTH, .act = TU_RELU, .name = name);
    }
    return tu_dense(x, .units = CLASSES, .name = "logits");
}

static tu_value place_branch(tu_value images, size_t number, const char *device) {
    tu_value logits = images;
    char name[32];
    snprintf(name, sizeof name, "branch%zu", number);
    tu_with_device(images.graph, device) tu_scope(images.graph, name) logits = branch(images);
    return logits;
}

static const char *device_name(const tu_program *list, size_t index) {
    tu_device_report report = TU_SIZED(tu_device_report);
    return tu_program_device(list, index, &report) == TU_OK ? report.device : NULL;
}

tu_status branches_build(tu_graph *graph, const tu_program *list, int64_t batch, tu_model_graph *net) {
    size_t devices = 1; /* every program has one */
    while (device_name(list, devices)) devices++;
    net->images = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(batch, WIDTH));
    net->labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(batch));
    size_t count = devices > BRANCHES ? devices : BRANCHES;
    for (size_t i = 0; i < count; i++) {
        tu_value logits = place_branch(net->images, i + 1, device_name(list, i % devices));
        net->logits = i == 0 ? logits : tu_add(net->logits, logits);
    }
    tu_output(net->logits, "logits");
    tu_scope(graph, "loss") net->loss = tu_mean(tu_cross_entropy(net->logits, net->labels));
    tu_output(net->loss, "loss");
    return tu_graph_status(graph);
}
