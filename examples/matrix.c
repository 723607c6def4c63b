/* Builds a graph with a matrix inverse and a product, compiles it and runs it. */
#include <stdio.h>

#include <tutti/tutti.h>

int main(void) {
    tu_graph *g;
    tu_program *program = NULL;
    tu_state *state = NULL;
    if (tu_graph_new(&g) != TU_OK) return 1;

    tu_value a = tu_input(g, "a", TU_F64, TU_SHAPE(3, 3));
    tu_value inverse = tu_inverse(a);
    tu_value product = tu_matmul(a, inverse); /* the identity, up to rounding */

    double matrix[9] = {4, 1, 0, 1, 3, 1, 0, 1, 2}, result[2][9];
    tu_value fetch[] = {inverse, product};
    if (tu_compile(g, &program, .fetch = fetch, .fetch_count = 2) != TU_OK ||
        tu_state_new(g, &state) != TU_OK ||
        tu_run(program, state, 1, (tu_feed[]){{a, matrix}}, (void *[]){result[0], result[1]}) != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        return 2;
    }
    for (int k = 0; k < 2; k++) {
        printf("%s\n", k == 0 ? "inverse of a" : "a times its inverse");
        for (int i = 0; i < 3; i++)
            printf("  %8.5f %8.5f %8.5f\n", result[k][3 * i], result[k][3 * i + 1], result[k][3 * i + 2]);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return 0;
}
