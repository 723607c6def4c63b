/* From what a user wrote to a set: names, paths, and what to say about neither. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_name.h"
#include "data/converted.h"
#include "data/get.h"
#include "graph/graph.h"
#include <tutti/command.h>

enum { NAMES = 3 };

const char *const tu__dataset_names[] = {"cifar10", "mnist", "generated", NULL};

static tu_status refuse(const char *spec) {
    if (tu__ends_with(spec, ".npy"))
        return tu_fail(TU_INVALID, "'%.400s' is one array: expected two, IMAGES.npy,LABELS.npy", spec);
    if (strchr(spec, '/'))
        return tu_fail(TU_NOT_FOUND,
                       "there is no '%.400s': expected a folder of class folders, or IMAGES.npy,LABELS.npy",
                       spec);
    const char *nearest = tu_nearest_name(spec, tu__dataset_names, NAMES);
    if (nearest) return tu_fail(TU_NOT_FOUND, "unknown data set '%s'; did you mean '%s'?", spec, nearest);
    return tu_fail(
        TU_NOT_FOUND,
        "unknown data set '%.400s': expected cifar10, mnist, generated, a folder of class folders, or "
        "IMAGES.npy,LABELS.npy",
        spec);
}

static tu_status open_pair(const char *spec, const char *comma, const tu_dataset_options *options,
                           tu_dataset **set) {
    char images[PATH_MAX];
    size_t length = (size_t)(comma - spec);
    if (length >= sizeof images) return tu_fail(TU_INVALID, "the path '%.60s...' is too long", spec);
    memcpy(images, spec, length);
    images[length] = '\0';
    return tu__open_arrays(images, comma + 1, options, set);
}

static tu_status check_options(const tu_dataset_options *o) {
    if (o->height < 0 || o->width < 0 || o->height > 16384 || o->width > 16384)
        return tu_fail(TU_INVALID, "images of %lld x %lld pixels: expected sides of 1 to 16384",
                       (long long)o->height, (long long)o->width);
    if (!(o->test_share >= 0 && o->test_share < 1))
        return tu_fail(TU_INVALID, "a test share of %g: expected a number from 0 to less than 1",
                       o->test_share);
    return TU_OK;
}

/* What was asked for and cannot be done is refused: the images would stay in the set unnoticed. */
static tu_status check_fit(const char *spec, const tu_dataset_options *o, bool folder, bool pair) {
    if (o->ignore_label && !pair)
        return tu_fail(TU_INVALID,
                       "--ignore-label %lld with '%.400s': expected a set of arrays, IMAGES.npy,LABELS.npy",
                       (long long)*o->ignore_label, spec);
    if (o->skip_bad && !folder)
        return tu_fail(TU_INVALID, "--skip-bad with '%.400s': expected a folder of pictures", spec);
    return TU_OK;
}

tu_status tu_dataset_open_with(const char *spec, tu_dataset **set, const tu_dataset_options *options) {
    TU__OPTIONS(tu_dataset_options, o, options);
    struct stat info;
    if (!spec || !*spec) return tu_fail(TU_INVALID, "a data set without a name: expected a name or a path");
    TU_TRY(check_options(&o));
    const char *comma = strchr(spec, ',');
    const tu__known_set *known = tu__find_known_set(spec);
    bool generated = strcmp(spec, "generated") == 0, named = generated || known;
    bool there = stat(spec, &info) == 0, folder = there && S_ISDIR(info.st_mode), pair = !there && comma;
    if (named || there || pair) TU_TRY(check_fit(spec, &o, folder && !named, pair && !named));
    if (generated) return tu__open_generated(set);
    if (known) return tu__open_known(known, &o, set);
    if (there) {
        if (folder) return tu__open_folder(spec, &o, set);
        if (tu__data_file_recognise(spec)) return tu__data_file_open(spec, set);
        if (!tu__ends_with(spec, ".npy"))
            return tu_fail(
                TU_INVALID,
                "'%.400s' is neither a folder nor a data file: expected a folder of class folders, or "
                "IMAGES.npy,LABELS.npy",
                spec);
    }
    return pair ? open_pair(spec, comma, &o, set) : refuse(spec);
}
