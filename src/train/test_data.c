/* Opens the data set on which a trained network is evaluated. See test_data.h. */
#include "train/test_data.h"

#include <inttypes.h>
#include <string.h>

#include "data/dataset.h"
#include "train/table_settings.h"

static tu_status open_dataset(const tu__run_config *config, const tu_trained_options *o,
                              tu__test_data *result) {
    const tu_dataset_info *trained = &config->dataset;
    const char *data = o->data ? o->data : config->data;
    result->set = o->set;
    if (result->set && !o->skip_bad && !o->ignore_label) return TU_OK;
    if (result->set)
        return tu_fail(
            TU_INVALID,
            "%s has no effect on an open data set (.set): pass the option to tu_dataset_open, or name the data set with .data",
            o->skip_bad ? "--skip-bad" : "--ignore-label");
    if (!*data)
        return tu_fail(TU_INVALID,
                       "the run was trained on a data set passed by a program: name a data set with --data");
    bool ignores, same = !o->data || strcmp(data, config->data) == 0;
    const char *ignored = o->ignore_label ? o->ignore_label : same ? config->settings.ignore_label : NULL;
    int64_t label;
    TU_TRY(tu__read_ignore_label(ignored, &ignores, &label));
    TU_TRY(tu_dataset_open(data, &result->opened, .height = trained->height, .width = trained->width,
                           .offline = o->offline, .validation = trained->validation > 0,
                           .skip_bad = o->skip_bad || (same && config->settings.skip_bad),
                           .ignore_label = ignores ? &label : NULL, .target = config->settings.target,
                           .categories = tu__categories_of(&config->settings), .drop = config->settings.drop,
                           .header = config->settings.header, .window = tu__window_of(&config->columns)));
    result->set = result->opened;
    return TU_OK;
}

/* Checks that the data set has the image type and the classes that the network was trained on. */
static tu_status check_dataset(const tu__run_config *config, const tu_dataset *set,
                               const tu_dataset_info *dataset) {
    const tu_dataset_info *trained = &config->dataset;
    if (!tu__has_pictures(trained)) return tu__check_columns(config, set);
    if (dataset->height != trained->height || dataset->width != trained->width ||
        dataset->channels != trained->channels || dataset->dtype != trained->dtype)
        return tu_fail(TU_INVALID,
                       "data set '%s' has images %s [%" PRId64 ",%" PRId64 ",%" PRId64
                       "]: expected %s [%" PRId64 ",%" PRId64 ",%" PRId64 "], on which the run was trained",
                       dataset->name, tu_dtype_name(dataset->dtype), dataset->height, dataset->width,
                       dataset->channels, tu_dtype_name(trained->dtype), trained->height, trained->width,
                       trained->channels);
    bool same = dataset->classes == trained->classes;
    for (int64_t i = 0; same && i < trained->classes; i++)
        same = strcmp(dataset->class_names[i], trained->class_names[i]) == 0;
    if (!same)
        return tu_fail(TU_INVALID,
                       "data set '%s' has other classes than '%s', on which the run was trained%s%s",
                       dataset->name, trained->name, dataset->notice ? "; " : "",
                       dataset->notice ? dataset->notice : "");
    if (dataset->count[TU_TEST] == 0)
        return tu_fail(TU_INVALID, "data set '%s' has no test images", dataset->name);
    return TU_OK;
}

tu_status tu__test_data_open(const tu__run_config *config, const tu_trained_options *options,
                             tu__test_data *data) {
    *data = (tu__test_data){0};
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(open_dataset(config, options, data));
    TU_TRY(tu_dataset_describe(data->set, &info));
    return check_dataset(config, data->set, &info);
}

void tu__test_data_close(tu__test_data *data) {
    tu_dataset_free(data->opened);
    *data = (tu__test_data){0};
}
