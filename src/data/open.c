/* tu_dataset_open: opens a data set by name or path. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_name.h"
#include "data/converted.h"
#include "data/csv.h"
#include "data/open_downloadable.h"
#include "graph/graph.h"
#include <tutti/command.h>

enum { DATASET_NAME_COUNT = 3 };

const char *const tu__dataset_names[] = {"cifar10", "mnist", "generated", NULL};

static tu_status fail_unknown(const char *spec) {
    if (tu__ends_with(spec, ".npy"))
        return tu_fail(TU_INVALID, "'%.400s' is a single array: expected two, as in IMAGES.npy,LABELS.npy",
                       spec);
    if (strchr(spec, '/'))
        return tu_fail(
            TU_NOT_FOUND,
            "'%.400s' does not exist: expected a folder with one subfolder per class, a .csv file, a .tutti data file, or IMAGES.npy,LABELS.npy",
            spec);
    const char *nearest = tu_nearest_name(spec, tu__dataset_names, DATASET_NAME_COUNT);
    if (nearest) return tu_fail(TU_NOT_FOUND, "unknown data set '%s'; did you mean '%s'?", spec, nearest);
    return tu_fail(
        TU_NOT_FOUND,
        "unknown data set '%.400s': expected cifar10, mnist, generated, a folder with one subfolder per class, a .csv file, a .tutti data file, or IMAGES.npy,LABELS.npy",
        spec);
}

static tu_status open_pair(const char *spec, const char *comma, const tu_dataset_options *options,
                           tu_dataset **dataset) {
    char images[PATH_MAX];
    size_t length = (size_t)(comma - spec);
    if (length >= sizeof images) return tu_fail(TU_INVALID, "the path '%.60s...' is too long", spec);
    memcpy(images, spec, length);
    images[length] = '\0';
    return tu__open_arrays(images, comma + 1, options, dataset);
}

static tu_status check_options(const tu_dataset_options *o) {
    if (o->height < 0 || o->width < 0 || o->height > 16384 || o->width > 16384)
        return tu_fail(TU_INVALID, "image size %lld x %lld: expected sides of 1 to 16384",
                       (long long)o->height, (long long)o->width);
    if (!(o->test_share >= 0 && o->test_share < 1))
        return tu_fail(TU_INVALID, "--test-share %g: expected a fraction of at least 0 and less than 1",
                       o->test_share);
    return TU_OK;
}

/* Fails for --skip-bad and --ignore-label if they do not apply to this kind of data set: if they were ignored, the
 * data set would contain images that the user wants to skip. */
static tu_status check_applicable(const char *spec, const tu_dataset_options *o, bool is_folder,
                                  bool is_pair) {
    if (o->ignore_label && !is_pair)
        return tu_fail(
            TU_INVALID,
            "--ignore-label %lld cannot be used with '%.400s': expected two arrays, as in IMAGES.npy,LABELS.npy",
            (long long)*o->ignore_label, spec);
    if (o->skip_bad && !is_folder)
        return tu_fail(TU_INVALID, "--skip-bad cannot be used with '%.400s': expected a folder of images",
                       spec);
    return TU_OK;
}

static bool is_set(const char *text) {
    return text && *text;
}

static tu_status check_table_options(const char *spec, const tu_dataset_options *o, bool is_csv) {
    if (is_csv || tu__data_file_recognise(spec) ||
        !(is_set(o->target) || is_set(o->categories) || is_set(o->drop) || is_set(o->header)))
        return TU_OK;
    return tu_fail(TU_INVALID, "--%s cannot be used with '%.400s': expected a CSV file (.csv, .tsv)",
                   is_set(o->target)       ? "target"
                   : is_set(o->categories) ? "categories"
                   : is_set(o->drop)       ? "drop"
                                           : "header",
                   spec);
}

/* A data file has its target already. It may be named again, as by `tutti eval --data` of a run that was trained on the table. */
static tu_status check_same_target(const char *spec, const char *target, const tu_dataset *dataset) {
    const tu__column *c = tu__columns_target(&dataset->columns);
    bool is_table = c && c->field_count > 0;
    if (!is_set(target) || (is_table && (c->field_count > 1 || strcmp(c->fields[0].name, target) == 0)))
        return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--target %.60s cannot be used with '%.400s', a data file with %s%.60s: expected a CSV file", target,
        spec, is_table ? "the target " : "no table", is_table ? c->fields[0].name : "");
}

static tu_status open_data_file(const char *spec, const tu_dataset_options *o, tu_dataset **dataset) {
    TU_TRY(tu__data_file_open_window(spec, o->window, dataset));
    tu_status status = check_same_target(spec, o->target, *dataset);
    if (status == TU_OK) return TU_OK;
    tu_dataset_free(*dataset);
    *dataset = NULL;
    return status;
}

tu_status tu_dataset_open_with(const char *spec, tu_dataset **dataset, const tu_dataset_options *options) {
    TU__OPTIONS(tu_dataset_options, o, options);
    struct stat info;
    if (!spec || !*spec) return tu_fail(TU_INVALID, "no data set given: expected a name or a path");
    TU_TRY(check_options(&o));
    const char *comma = strchr(spec, ',');
    const tu__downloadable_dataset *downloadable = tu__find_downloadable(spec);
    bool generated = strcmp(spec, "generated") == 0, is_builtin = generated || downloadable;
    bool exists = stat(spec, &info) == 0, is_folder = exists && S_ISDIR(info.st_mode),
         is_pair = !exists && comma;
    bool is_csv = exists && !is_folder && (tu__ends_with(spec, ".csv") || tu__ends_with(spec, ".tsv"));
    if (is_builtin || exists || is_pair) {
        TU_TRY(check_table_options(spec, &o, is_csv));
        TU_TRY(check_applicable(spec, &o, is_folder && !is_builtin, is_pair && !is_builtin));
    }
    if (generated) return tu__open_generated(dataset);
    if (downloadable) return tu__open_downloadable(downloadable, &o, dataset);
    if (exists) {
        if (is_folder) return tu__open_folder(spec, &o, dataset);
        if (tu__data_file_recognise(spec)) return open_data_file(spec, &o, dataset);
        if (is_csv) return tu__open_csv(spec, &o, dataset);
        if (!tu__ends_with(spec, ".npy"))
            return tu_fail(
                TU_INVALID,
                "'%.400s' is neither a folder nor a data file: expected a folder with one subfolder per class, a .csv file, a .tutti data file, or IMAGES.npy,LABELS.npy",
                spec);
    }
    return is_pair ? open_pair(spec, comma, &o, dataset) : fail_unknown(spec);
}
