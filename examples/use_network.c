/* Using what was trained: opens a run folder and says what it sees in pictures. No training code is needed for it, no
 * source of the network and no compiler: the folder has the graph.
 *
 *     use_network RUN PICTURE...
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

static int complain(void) {
    fprintf(stderr, "%s\n", tu_message());
    return 2;
}

/* The likeliest class of each picture. */
static int classify(const char *run, int count, char **pictures) {
    tu_predictor *predictor;
    const char *const *names;
    if (tu_predictor_new(run, &predictor) != TU_OK) return complain();
    int64_t classes = tu_predictor_classes(predictor, &names);
    float *probabilities = calloc((size_t)classes, sizeof *probabilities);
    int status = probabilities ? 0 : 1;
    for (int i = 0; i < count && status == 0; i++) {
        if (tu_predict(predictor, pictures[i], probabilities) != TU_OK) {
            status = complain();
            break;
        }
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            if (probabilities[k] > probabilities[best]) best = k;
        printf("%s: %s, %.0f%%\n", pictures[i], names[best], 100 * (double)probabilities[best]);
    }
    free(probabilities);
    tu_predictor_free(predictor);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s RUN PICTURE...\n", argv[0]);
        return 2;
    }
    return classify(argv[1], argc - 2, argv + 2);
}
