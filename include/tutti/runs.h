/* Lists of run folders: what was trained, how far, with which settings and how well.
 *
 *     tu_runs *runs;
 *     tu_run_info info = TU_SIZED(tu_run_info);
 *     tu_runs_open((const char *[]){"runs"}, 1, &runs);
 *     for (size_t i = 0; i < tu_runs_count(runs); i++)
 *         if (tu_runs_describe(runs, i, &info) == TU_OK) printf("%s %g\n", info.folder, info.best_metric);
 *     tu_runs_draw(runs, NULL, 0, "curves.svg");
 *     tu_runs_free(runs);
 *
 * Only files are read; nothing in a run folder is changed, and runs may be training meanwhile. */
#ifndef TUTTI_RUNS_H
#define TUTTI_RUNS_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_runs tu_runs;

typedef enum tu_run_state {
    TU_RUN_FINISHED, /* all steps are done, or the run was stopped early */
    TU_RUN_STOPPED,  /* can be resumed */
    TU_RUN_TRAINING, /* a process is training it now */
} tu_run_state;

typedef struct tu_run_info {
    size_t struct_size;
    const char *folder, *model, *data, *task;
    tu_run_state state;
    int64_t step, steps, parameters;
    int64_t members;    /* of an ensemble, of which nothing below is known; 0: a run */
    double seconds;     /* of training */
    const char *metric; /* name of the task's first metric, which selects the best state */
    bool lower_is_better;
    /* NaN if there was no such evaluation. */
    double loss, validation_loss, best_metric, validation_metric, test_metric;
} tu_run_info;

/* Finds the run folders in each folder of the list: it, or those up to three levels below it. Folders that contain none are no
 * error, but a path that does not exist is. Damaged runs are left out; tu_runs_problem lists them. Runs are sorted by path. */
TU_API tu_status tu_runs_open(const char *const *paths, size_t count, tu_runs **runs);
TU_API void tu_runs_free(tu_runs *runs);
TU_API size_t tu_runs_count(const tu_runs *runs);
TU_API tu_status tu_runs_describe(const tu_runs *runs, size_t index, tu_run_info *info);
/* Returns what is wrong with damaged run `index`; NULL from their number on. */
TU_API const char *tu_runs_problem(const tu_runs *runs, size_t index);

/* Returns the number of settings, the name of one as an option ("rate"), and its value in a run as text. */
TU_API size_t tu_runs_settings(void);
TU_API const char *tu_runs_setting_name(size_t setting);
TU_API tu_status tu_runs_setting(const tu_runs *runs, size_t index, size_t setting, char *text, size_t bytes);

/* Draws the curves of some runs (`indices`; NULL: the first `count`, 0: all) into one SVG file: loss, and the first metric.
 * Of a run with validation its curve is drawn, else that of training. */
TU_API tu_status tu_runs_draw(const tu_runs *runs, const size_t *indices, size_t count, const char *path);

#ifdef __cplusplus
}
#endif
#endif
