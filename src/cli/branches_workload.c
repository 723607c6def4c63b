/* `branches`: a workload for measuring how well independent work scales over devices.
 *
 * Sixteen MLPs of equal size read the same images; their logits are summed. The branches are assigned to the devices
 * round-robin, so 1, 2, 4, 8 or 16 devices have equal work and compute the same result. With more than sixteen
 * devices there is one branch per device. Only images, logits and the gradients of the logits are copied between
 * devices: a few hundred KiB, compared with 2.4 billion floating-point operations. It is useful only as a benchmark,
 * so it is not one of the built-in networks. */
#include "cli/branches_workload.h"

#include <stdio.h>

#include <tutti/layers.h>

enum { BRANCHES = 16, LAYERS = 3, WIDTH = 256, CLASSES = 10 };

/* images [n, WIDTH] -> logits [n, CLASSES] */
static tu_value build_branch(tu_value x) {
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
    tu_with_device(images.graph, device) tu_scope(images.graph, name) logits = build_branch(images);
    return logits;
}

static const char *device_name(const tu_program *device_list, size_t index) {
    tu_device_report report = TU_SIZED(tu_device_report);
    return tu_program_device(device_list, index, &report) == TU_OK ? report.device : NULL;
}

tu_status branches_workload_build(tu_graph *graph, const tu_program *device_list, int64_t batch,
                                  tu_network_graph *net) {
    size_t devices = 1; /* every program has at least one */
    while (device_name(device_list, devices)) devices++;
    net->images = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(batch, WIDTH));
    net->labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(batch));
    size_t count = devices > BRANCHES ? devices : BRANCHES;
    for (size_t i = 0; i < count; i++) {
        tu_value logits = place_branch(net->images, i + 1, device_name(device_list, i % devices));
        net->logits = i == 0 ? logits : tu_add(net->logits, logits);
    }
    tu_output(net->logits, "logits");
    tu_scope(graph, "loss") net->loss = tu_mean(tu_cross_entropy(net->logits, net->labels));
    tu_output(net->loss, "loss");
    return tu_graph_status(graph);
}
