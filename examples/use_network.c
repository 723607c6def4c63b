/* Opens a run folder and classifies images with its network. This needs neither training code nor the source of the network
 * nor a compiler, because the folder contains the graph.
 *
 *     use_network RUN IMAGE...
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

static int print_error(void) {
    fprintf(stderr, "%s\n", tu_message());
    return 2;
}

/* Prints the most probable class of each image. */
static int classify(const char *run, int count, char **files) {
    tu_predictor *predictor;
    const char *const *names;
    if (tu_predictor_new(run, &predictor) != TU_OK) return print_error();
    int64_t classes = tu_predictor_classes(predictor, &names);
    float *probabilities = calloc((size_t)classes, sizeof *probabilities);
    int status = probabilities ? 0 : 1;
    for (int i = 0; i < count && status == 0; i++) {
        if (tu_predict(predictor, files[i], probabilities) != TU_OK) {
            status = print_error();
            break;
        }
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            if (probabilities[k] > probabilities[best]) best = k;
        printf("%s: %s, %.0f%%\n", files[i], names[best], 100 * (double)probabilities[best]);
    }
    free(probabilities);
    tu_predictor_free(predictor);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s RUN IMAGE...\n", argv[0]);
        return 2;
    }
    return classify(argv[1], argc - 2, argv + 2);
}
