/* A network that declares parameters of its own, for searches:
 *
 *     tutti tune examples/tuned_net.c --data generated --try 'depth=1:3,width=16|32|64,dropout=0:0.5,rate=log:1e-3:0.3' \
 *         --trials 8 --steps 60 --evaluate-every 20
 *
 * which takes less than a minute on two cores. `tutti train examples/tuned_net.c --network depth=3,width=64` trains it with
 * values of one's choice. The build function reads them with tu_network_number. */
#include <stdio.h>

#include <tutti/tutti.h>

static tu_value build(tu_value x, const tu_network_options *o) {
    int64_t depth = (int64_t)tu_network_number(o, "depth"), width = (int64_t)tu_network_number(o, "width");
    x = tu_flatten(x);
    for (int64_t i = 0; i < depth; i++) {
        char name[32];
        snprintf(name, sizeof name, "hidden%d", (int)i + 1);
        x = tu_dropout(tu_dense(x, .units = width, .act = TU_RELU, .name = name),
                       tu_network_number(o, "dropout"));
    }
    return tu_dense(x, .units = o->classes, .name = "logits");
}

static const tu_network_parameter parameters[] = {
    {.name = "depth", .value = 2, .minimum = 1, .maximum = 8, .whole = true, .help = "hidden layers"},
    {.name = "width",
     .value = 32,
     .minimum = 1,
     .maximum = 4096,
     .whole = true,
     .help = "units of a hidden layer"},
    {.name = "dropout", .value = 0.1, .minimum = 0, .maximum = 0.9, .help = "dropped share of hidden units"},
};

TU_NETWORK(.name = "tuned_net", .summary = "a perceptron with a choice of depth, width and dropout",
           .defaults = TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10,
                                  .base = 1),
           .build = build, .parameters = parameters,
           .parameter_count = sizeof parameters / sizeof *parameters);
