/* Checks graph files with every operation: the graph of each case, with gradients, is written, read and written
 * again. Both files must be identical, and both graphs must have the same digest. Also runs the printers on each
 * graph.
 *
 *     test_case_files                  checks all cases
 *     test_case_files FOLDER           also writes one small graph file per case to FOLDER: seeds for the fuzzer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/driver.h"

static bool seen[TU__OP_COUNT];

static int report_failure(const case_run *c, const char *what) {
    printf("FAIL %s, instance %d: %s: %s\n", c->entry->name, c->instance, what, tu_message());
    return 1;
}

static void name_outputs(case_run *c) {
    for (int i = 0; i < c->output_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        tu_output(c->outputs[i], name);
    }
}

/* Reads the graph from `bytes` and writes it again; returns 0 if bytes and digest are the same. */
static int check_round_trip(const case_run *c, const void *bytes, size_t size) {
    tu_graph *copy;
    void *again = NULL;
    size_t again_size;
    char digest[TU_DIGEST_TEXT], copy_digest[TU_DIGEST_TEXT];
    if (tu_graph_read(bytes, size, &copy) != TU_OK) return report_failure(c, "cannot be read");
    int failed = 0;
    if (tu_graph_write(copy, &again, &again_size) != TU_OK)
        failed = report_failure(c, "cannot be written again");
    else if (again_size != size || memcmp(again, bytes, size) != 0)
        failed = report_failure(c, "the second file differs");
    else if (tu_graph_digest(c->graph, digest) != TU_OK || tu_graph_digest(copy, copy_digest) != TU_OK ||
             strcmp(digest, copy_digest) != 0)
        failed = report_failure(c, "the digest differs");
    tu_bytes_free(again);
    tu_graph_free(copy);
    return failed;
}

static int check_prints(const case_run *c, FILE *sink) {
    for (int format = TU_GRAPH_TEXT; format <= TU_GRAPH_JSON; format++)
        if (tu_graph_print(c->graph, (tu_graph_format)format, sink) != TU_OK)
            return report_failure(c, "cannot be printed");
    if (tu_graph_summary(c->graph, sink) != TU_OK) return report_failure(c, "cannot be summarised");
    return 0;
}

static int check_graph(const case_run *c, FILE *sink) {
    void *bytes;
    size_t size;
    if (tu_graph_write(c->graph, &bytes, &size) != TU_OK) return report_failure(c, "cannot be written");
    int failed = check_round_trip(c, bytes, size) || check_prints(c, sink);
    tu_bytes_free(bytes);
    for (uint32_t i = 0; i < c->graph->node_count; i++) seen[c->graph->nodes[i]->op->code] = true;
    return failed;
}

static int write_seed(const case_run *c, const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, c->entry->name);
    return tu_graph_save(c->graph, path) == TU_OK ? 0 : report_failure(c, "cannot be saved");
}

int main(int argc, char **argv) {
    FILE *sink = fopen("/dev/null", "w");
    if (!sink) return 1;
    int cases = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next, cases++) {
        case_run *c = case_begin(e, TU_F32, 1);
        for (int broken = 0; !broken && case_next_instance(c); failed += broken) {
            name_outputs(c);
            if (argc > 1 && c->instance == 1) broken = write_seed(c, argv[1]);
            case_add_gradients(c);
            broken |= check_graph(c, sink);
        }
        case_end(c);
    }
    fclose(sink);
    for (int i = 0; i < TU__OP_COUNT; i++) {
        if (seen[i]) continue;
        printf("FAIL operation %s is in no case\n", tu__op_get((tu__opcode)i)->name);
        failed++;
    }
    printf("%d cases\n", cases);
    return failed || !cases;
}
