/* Data: sets of labelled images, and loaders that read them in a seeded order.
 *
 * A data set has two splits, train and test, of images of one size and type. It is opened by a name ("cifar10",
 * "mnist", "generated"), a folder with one folder of PNG or JPEG files per class, a pair of .npy files, or created
 * from functions of the program (tu_source). A loader reads a split in batches. The order of an epoch depends on the
 * seed and the epoch only, so the sample with ordinal epoch * count + position is always the same, at any start and
 * with any number of threads.
 *
 *     tu_dataset *set;
 *     tu_loader *loader;
 *     tu_batch batch = TU_SIZED(tu_batch);
 *     tu_dataset_open("cifar10", &set);
 *     tu_loader_new(set, &loader, .split = TU_TRAIN, .batch = 128, .shuffle = true, .seed = 1);
 *     while (tu_loader_next(loader, &batch) == TU_OK && batch.epoch < 10) …
 *     tu_loader_free(loader);
 *     tu_dataset_free(set);
 */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/graph.h>
#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_MAX_CHANNELS 4

typedef enum tu_split { TU_TRAIN, TU_TEST } tu_split;

typedef struct tu_dataset tu_dataset;

typedef struct tu_dataset_info {
    size_t struct_size;
    const char *name;   /* "cifar10" */
    const char *origin; /* where the bytes came from, human-readable */
    int64_t count[2];   /* images in each tu_split */
    int64_t height, width, channels;
    tu_dtype dtype; /* of a pixel: TU_U8 (0 … 255) or TU_F32 (any values) */
    int64_t classes;
    const char *const *class_names;    /* `classes` names */
    double mean[TU_MAX_CHANNELS];      /* of the training pixels, per channel; bytes are scaled to 0 … 1 */
    double deviation[TU_MAX_CHANNELS]; /* standard deviation of the same */
    const char *digest;                /* SHA-256, in hexadecimal, of all images and labels */
    int64_t validation; /* size of the set's validation split, the last training images; 0: none */
    int64_t skipped;    /* damaged image files that were skipped (skip_bad) */
    int64_t ignored;    /* images with the label ignore_label, which were not read */
    const char *notice; /* NULL, or a line for the user: a possible mistake in the set */
} tu_dataset_info;

/* Reports the progress of long work, from the thread that started it. `total` is 0 while it is unknown. */
typedef void (*tu_progress)(void *context, const char *what, int64_t done, int64_t total);

typedef struct tu_dataset_options {
    size_t struct_size;
    int64_t height, width; /* size that images of folders are fitted to; 0: 64 */
    /* Fraction of the images in the test split, at least one image, for arrays and for folders without train/ and
     * test/. 0: 0.1. */
    double test_share;
    uint64_t seed; /* selects the images of the test split */
    bool offline;  /* download nothing: fail if the set is not in the cache */
    tu_progress progress;
    void *context;
    bool validation; /* of a folder with train/, val/ and test/: read val/ as the set's validation split */
    bool skip_bad;   /* of a folder of images: skip damaged files instead of failing */
    const int64_t *ignore_label; /* of arrays: ignore images with this label; NULL: none */
} tu_dataset_options;

/* Opens a data set by its name or path. Downloads and converts it first if needed:
 *
 *     cifar10, mnist                downloaded once into the cache: $TUTTI_DATA, else the user's cache folder
 *     generated                     32x32 images of ten classes, generated when they are read; needs no files
 *     FOLDER                        FOLDER/CLASS/FILE.png, or FOLDER/train/CLASS/… and FOLDER/test/CLASS/…; then
 *                                   FOLDER/val/CLASS/… is the validation split, or the test split if there is no test/
 *     IMAGES.npy,LABELS.npy         [n,h,w] or [n,h,w,c], and [n]
 *     FILE.tutti                    a converted set
 */
TU_API tu_status tu_dataset_open_with(const char *spec, tu_dataset **set, const tu_dataset_options *options);
#define tu_dataset_open(spec, set, ...)                                                                      \
    tu_dataset_open_with(spec, set, TU_OPTIONS(tu_dataset_options, __VA_ARGS__))
TU_API void tu_dataset_free(tu_dataset *set);
/* Fills `info`. Its strings live as long as the set. */
TU_API tu_status tu_dataset_describe(const tu_dataset *set, tu_dataset_info *info);
/* Copies image `index` (height * width * channels pixels) and its label. Several threads may call this at once. */
TU_API tu_status tu_dataset_read(const tu_dataset *set, tu_split split, int64_t index, void *image,
                                 int32_t *label);

/* Reads all images and labels and compares their digest with the set's. Fails with TU_CORRUPT if they differ, and
 * with TU_UNSUPPORTED for sets made with tu_dataset_from, which have no digest of all images. CIFAR-10 takes about
 * a second. */
TU_API tu_status tu_dataset_verify(const tu_dataset *set);

/* Writes one image as a PNG file. f32 pixels are rescaled: the smallest becomes black, the largest white. */
TU_API tu_status tu_dataset_save_image(const tu_dataset *set, tu_split split, int64_t index,
                                       const char *path);

/* A data set implemented by functions. Several threads of a loader call `read` at once. */
typedef struct tu_source {
    size_t struct_size;
    const char *name;
    int64_t count[2], height, width, channels;
    tu_dtype dtype;
    int64_t classes;
    const char *const *class_names; /* NULL: "0", "1", … */
    void *context;
    tu_status (*read)(void *context, tu_split split, int64_t index, void *image, int32_t *label);
    void (*close)(void *context); /* optional */
    int64_t validation;           /* number of training images, the last ones, for validation; 0: none */
} tu_source;
/* Creates a data set. Copies the structure. Computes means, standard deviations and the digest of at most 10,000
 * training images. */
TU_API tu_status tu_dataset_from(const tu_source *source, tu_dataset **set);

/* Downloads "cifar10" or "mnist" into the cache, unless it is there. Writes the path of its file to `path`. */
TU_API tu_status tu_data_get_with(const char *name, char path[4096], const tu_dataset_options *options);
#define tu_data_get(name, path, ...) tu_data_get_with(name, path, TU_OPTIONS(tu_dataset_options, __VA_ARGS__))

/* ---- Loaders ------------------------------------------------------------------------------------------------- */

typedef struct tu_loader tu_loader;

typedef struct tu_loader_options {
    size_t struct_size;
    tu_split split;
    int64_t batch; /* 0: 128. The last batch of an epoch may be shorter */
    uint64_t seed;
    bool shuffle;
    int64_t start;     /* ordinal of the first sample, for a resumed run */
    int threads;       /* threads that read ahead; 0: 1; TU_ZERO: none, tu_loader_next reads */
    int depth;         /* batches read ahead; 0: 4, or one more than there are threads */
    bool indices_only; /* read nothing: batches have indices, but neither images nor labels */
    bool bootstrap;    /* read a random sample of the set with replacement, of the same size */
    /* For TU_TRAIN: size of the validation split, whose images are not read; 0: none. It is the set's validation split
     * if that has this size, else a random choice that is the same for every seed. With `validation_only` only the images
     * of the validation split
     * are read. */
    int64_t validation;
    bool validation_only;
    /* True if row `row` of a batch of `count` is used. Other rows are not read: their images are undefined, their labels
     * 0. Several processes that share a batch read their own rows. NULL: all are used. Called by the loader's threads. */
    bool (*is_used)(void *context, int64_t count, int64_t row);
    void *context; /* passed to is_used */
} tu_loader_options;

typedef struct tu_batch {
    size_t struct_size;
    int64_t count;           /* number of samples */
    int64_t epoch;           /* of all samples in the batch */
    int64_t first;           /* ordinal of the first sample; the others follow */
    const void *images;      /* [count, height, width, channels] of the set's type, 64-byte aligned */
    const int32_t *labels;   /* [count]; images and labels are NULL with indices_only */
    const int64_t *ordinals; /* [count]: first, first + 1, … */
    const int64_t *indices;  /* [count]: indices of the images in the split */
} tu_batch;

/* Creates a loader. The set must outlive it. */
TU_API tu_status tu_loader_new_with(const tu_dataset *set, tu_loader **loader,
                                    const tu_loader_options *options);
#define tu_loader_new(set, loader, ...)                                                                      \
    tu_loader_new_with(set, loader, TU_OPTIONS(tu_loader_options, __VA_ARGS__))
TU_API void tu_loader_free(tu_loader *loader);
/* Gets the next batch, valid until the next call. Epochs follow each other without end. */
TU_API tu_status tu_loader_next(tu_loader *loader, tu_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
