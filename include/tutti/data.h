/* Data: sets of labelled images, and loaders that read them in a seeded order.
 *
 * A set has two splits, train and test, of images of one size and type. It comes from a name ("cifar10", "mnist",
 * "generated"), a folder with a folder of PNG or JPEG files a class, a pair of .npy files, or functions of your own.
 * A loader walks a split: the order of an epoch is a function of seed and epoch, so the sample with ordinal
 * epoch * count + position is always the same one, wherever a run began and however many threads read.
 *
 *     tu_dataset *set;
 *     tu_loader *loader;
 *     tu_batch batch;
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
    const char *origin; /* for people: where its bytes came from */
    int64_t count[2];   /* images of each tu_split */
    int64_t height, width, channels;
    tu_dtype dtype; /* of a pixel: TU_U8 (0 … 255) or TU_F32 (as it is) */
    int64_t classes;
    const char *const *class_names;    /* classes of them */
    double mean[TU_MAX_CHANNELS];      /* of the training pixels, a channel each; bytes counted as 0 … 1 */
    double deviation[TU_MAX_CHANNELS]; /* likewise */
    const char *digest;                /* SHA-256, in hexadecimal, of all images and labels */
    int64_t validation; /* the set's own validation part: so many training images, the last ones; 0: none */
    int64_t skipped;    /* pictures that could not be read and were left out (skip_bad) */
    int64_t ignored;    /* images that were left out because of their label (ignore_label) */
    const char *notice; /* a line for the user: something about the set may not be as meant; NULL: nothing */
} tu_dataset_info;

/* How far a long piece of work is: `total` 0 while it is not known. Called from the thread that asked for the work. */
typedef void (*tu_progress)(void *context, const char *what, int64_t done, int64_t total);

typedef struct tu_dataset_options {
    size_t struct_size;
    int64_t height, width; /* images of folders are fitted to this size; 0: 64 */
    double test_share;     /* of a folder without train/ and test/, or a pair of arrays, held out; 0: 0.1 */
    uint64_t seed;         /* of that choice */
    bool offline;          /* do not fetch: refuse what is not in the cache */
    tu_progress progress;
    void *context;
    bool
        validation; /* of a folder with train/, val/ and test/: read val/ too, as the set's validation part */
    bool skip_bad;  /* of a folder: leave out damaged pictures, instead of refusing the set */
    const int64_t *ignore_label; /* of arrays: leave out the images of this label; NULL: none */
} tu_dataset_options;

/* Opens a set by its name or path, fetching and converting it first if needed:
 *
 *     cifar10, mnist                fetched once into the cache: $TUTTI_DATA, else the user's cache folder
 *     generated                     32x32 pictures of ten classes, drawn as they are read; needs nothing
 *     FOLDER                        FOLDER/CLASS/FILE.png, or FOLDER/train/CLASS/… and FOLDER/test/CLASS/…, beside which
 *                                   FOLDER/val/CLASS/… is the validation part; without test/, val/ is the test split
 *     IMAGES.npy,LABELS.npy         [n,h,w] or [n,h,w,c], and [n]
 *     FILE.tutti                    what the others were converted to
 */
TU_API tu_status tu_dataset_open_with(const char *spec, tu_dataset **set, const tu_dataset_options *options);
#define tu_dataset_open(spec, set, ...)                                                                      \
    tu_dataset_open_with(spec, set, TU_OPTIONS(tu_dataset_options, __VA_ARGS__))
TU_API void tu_dataset_free(tu_dataset *set);
/* The strings live as long as the set. */
TU_API tu_status tu_dataset_describe(const tu_dataset *set, tu_dataset_info *info);
/* Copies image `index` (height * width * channels pixels) and its label; many threads may. */
TU_API tu_status tu_dataset_read(const tu_dataset *set, tu_split split, int64_t index, void *image,
                                 int32_t *label);

/* Reads all images and labels and compares their digest with the set's: TU_CORRUPT when something was changed. Takes a
 * second for CIFAR-10. TU_UNSUPPORTED for a set of your own, which has no digest of all. */
TU_API tu_status tu_dataset_verify(const tu_dataset *set);

/* Writes one image as a PNG file; f32 pixels from black, the smallest, to white, the largest. */
TU_API tu_status tu_dataset_save_image(const tu_dataset *set, tu_split split, int64_t index,
                                       const char *path);

/* A set of your own. `read` is called by the loader's threads, several at a time. */
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
    int64_t validation; /* the last so many training images are the set's validation part; 0: none */
} tu_source;
/* The structure is copied; means, deviations and the digest are taken over at most 10,000 training images. */
TU_API tu_status tu_dataset_from(const tu_source *source, tu_dataset **set);

/* Fetches "cifar10" or "mnist" into the cache unless it is there, and gives the path of its file. */
TU_API tu_status tu_data_get_with(const char *name, char path[4096], const tu_dataset_options *options);
#define tu_data_get(name, path, ...) tu_data_get_with(name, path, TU_OPTIONS(tu_dataset_options, __VA_ARGS__))

/* ---- Loaders ------------------------------------------------------------------------------------------------- */

typedef struct tu_loader tu_loader;

typedef struct tu_loader_options {
    size_t struct_size;
    tu_split split;
    int64_t batch; /* 0: 128. The last batch of an epoch is short when the split does not divide */
    uint64_t seed;
    bool shuffle;
    int64_t start;     /* the ordinal of the first sample: where a resumed run goes on */
    int threads;       /* that read ahead; 0: 1. Negative: none, tu_loader_next reads itself */
    int depth;         /* batches read ahead; 0: 4, or one more than there are threads */
    bool indices_only; /* nothing is read: batches have neither images nor labels, and threads none to do */
    bool
        bootstrap; /* the set is a sample of itself, drawn by the seed with replacement; epochs go over that */
    /* TU_TRAIN: so many images are the validation part (the set's own where it has as many, else chosen the same way for
     * every seed) and kept out. `validating`: walk these instead of the others. 0: all images are walked. */
    int64_t validation;
    bool validating;
} tu_loader_options;

typedef struct tu_batch {
    size_t struct_size;
    int64_t count;      /* samples */
    int64_t epoch;      /* all of one epoch */
    int64_t first;      /* ordinal of the first; the others follow */
    const void *images; /* [count, height, width, channels] of the set's type, 64-byte aligned; or NULL … */
    const int32_t *labels;   /* [count]; … with indices_only */
    const int64_t *ordinals; /* [count]: first, first + 1, … */
    const int64_t *indices;  /* [count] in the split */
} tu_batch;

/* The set must outlive the loader. */
TU_API tu_status tu_loader_new_with(const tu_dataset *set, tu_loader **loader,
                                    const tu_loader_options *options);
#define tu_loader_new(set, loader, ...)                                                                      \
    tu_loader_new_with(set, loader, TU_OPTIONS(tu_loader_options, __VA_ARGS__))
TU_API void tu_loader_free(tu_loader *loader);
/* The next batch, valid until the next call; epochs follow each other without end. */
TU_API tu_status tu_loader_next(tu_loader *loader, tu_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
