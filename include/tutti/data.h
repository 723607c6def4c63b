/* Data: sets of samples, and loaders that read them in a seeded order.
 *
 * A data set has two splits, train and test, and named columns: every sample has one element per column, of a fixed
 * type and shape. Pictures have the columns "images" and "labels"; tables "numbers", "categories" and "target"; text
 * "tokens". A set is opened by a name ("cifar10", "mnist", "generated"), a folder with one folder of PNG or JPEG files
 * per class, a pair of .npy files, a CSV file, a token file, or created from functions of the program (tu_source). A
 * loader reads a split in batches. The order of an epoch depends on the seed and the epoch only, so the sample with
 * ordinal epoch * count + position is always the same, at any start and with any number of threads.
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
    const char *name;                /* "cifar10" */
    const char *origin;              /* where the bytes came from, human-readable */
    int64_t count[2];                /* samples in each tu_split */
    int64_t height, width, channels; /* of pictures; 0: the set has none */
    tu_dtype dtype;  /* of a pixel: TU_U8 (0 … 255) or TU_F32 (any values); of the first column */
    int64_t classes; /* of the labels or the target; 0: they are no classes */
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
    /* Of CSV files: names of columns, separated by commas; NULL: none. `target`: what is to be predicted; without it the
     * set has no column "target". `categories`: columns that are read as categories although they contain numbers. `drop`:
     * columns that are not read. */
    const char *target, *categories, *drop;
    int64_t window; /* of token files: input tokens of a sample; 0: 256 */
    const char *
        header; /* of CSV files: "yes", "no" (the columns are called "column 1", …) or NULL: the first line is the
                           header, which is reported if it has numbers, and must not consist of numbers alone */
} tu_dataset_options;

/* Opens a data set by its name or path. Downloads and converts it first if needed:
 *
 *     cifar10, mnist                downloaded once into the cache: $TUTTI_DATA, else the user's cache folder
 *     generated                     32x32 images of ten classes, generated when they are read; needs no files
 *     FOLDER                        FOLDER/CLASS/FILE.png, or FOLDER/train/CLASS/… and FOLDER/test/CLASS/…; then
 *                                   FOLDER/val/CLASS/… is the validation split, or the test split if there is no test/
 *     IMAGES.npy,LABELS.npy         [n,h,w] or [n,h,w,c], and [n]
 *     FILE.csv                      a table; docs/tables.md describes it
 *     FILE.tutti                    a converted set, or a file of tokens (see below)
 */
TU_API tu_status tu_dataset_open_with(const char *spec, tu_dataset **set, const tu_dataset_options *options);
#define tu_dataset_open(spec, set, ...)                                                                      \
    tu_dataset_open_with(spec, set, TU_OPTIONS(tu_dataset_options, __VA_ARGS__))
TU_API void tu_dataset_free(tu_dataset *set);
/* Fills `info`. Its strings live as long as the set. */
TU_API tu_status tu_dataset_describe(const tu_dataset *set, tu_dataset_info *info);
/* Copies image `index` (height * width * channels pixels) and its label. Several threads may call this at once. Fails
 * for sets without pictures. */
TU_API tu_status tu_dataset_read(const tu_dataset *set, tu_split split, int64_t index, void *image,
                                 int32_t *label);

/* ---- Columns --------------------------------------------------------------------------------------------------- */

enum { TU_MAX_COLUMNS = 16 };

typedef enum tu_column_kind {
    TU_COLUMN_ARRAY,      /* pictures, or elements of any meaning */
    TU_COLUMN_CLASS,      /* i32 []: a class, from 0 */
    TU_COLUMN_NUMBERS,    /* f32 [fields]: numbers of a table; NaN is a missing one */
    TU_COLUMN_CATEGORIES, /* i32 [fields]: categories of a table, indices of their names; -1 is a missing one */
    TU_COLUMN_TOKENS,     /* i32 [length]: a window of a text */
} tu_column_kind;

typedef struct tu_column {
    size_t struct_size;
    const char *name; /* also of the input of a step's graph */
    tu_column_kind kind;
    tu_type type;    /* of one sample */
    bool is_target;  /* what is to be predicted */
    int64_t fields;  /* number of fields of a table in it; 0: it has no named fields */
    int64_t classes; /* TU_COLUMN_CLASS: classes; TU_COLUMN_TOKENS: size of the vocabulary; else 0 */
} tu_column;

/* A field of a table: an element of a column. Counts are of the training samples. */
typedef struct tu_field {
    size_t struct_size;
    const char *name;
    double mean, deviation, min, max; /* of numbers that are not missing */
    int64_t missing;
    int64_t categories; /* number of different ones; 0: the field is a number */
    const char *const *category_names;
} tu_field;

TU_API size_t tu_dataset_columns(const tu_dataset *set);
/* Describes column `index`, or a field of it. Strings live as long as the set. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_dataset_column(const tu_dataset *set, size_t index, tu_column *column);
TU_API tu_status tu_dataset_field(const tu_dataset *set, size_t column, size_t index, tu_field *field);
/* Copies sample `index`: elements[i] gets column i (NULL: it is not read). Several threads may call this at once. */
TU_API tu_status tu_dataset_read_columns(const tu_dataset *set, tu_split split, int64_t index,
                                         void *const *elements);

/* ---- Token files ------------------------------------------------------------------------------------------------- */

typedef struct tu_token_file tu_token_file;

typedef struct tu_token_file_options {
    size_t struct_size;
    const char *name, *origin; /* of the data set; NULL: from the path */
    int64_t vocabulary;        /* tokens are 0 … vocabulary - 1 */
    const char *tokenizer; /* a text that describes the tokenizer, such as JSON; stored as it is. NULL: "" */
} tu_token_file_options;

typedef enum tu_token_part { TU_TOKENS_TRAIN, TU_TOKENS_VALIDATION, TU_TOKENS_TEST } tu_token_part;

/* Writes a token file: tokens of the three parts, in this order, in any number of calls.
 *
 *     tu_token_file *file;
 *     tu_token_file_new("shakespeare.tutti", &file, .vocabulary = 256);
 *     tu_token_file_add(file, TU_TOKENS_TRAIN, tokens, count);
 *     tu_token_file_finish(file);   // also frees it
 *
 * The file appears under its name when it is finished. tu_dataset_open opens it. */
TU_API tu_status tu_token_file_new_with(const char *path, tu_token_file **file,
                                        const tu_token_file_options *options);
#define tu_token_file_new(path, file, ...)                                                                   \
    tu_token_file_new_with(path, file, TU_OPTIONS(tu_token_file_options, __VA_ARGS__))
TU_API tu_status tu_token_file_add(tu_token_file *file, tu_token_part part, const int32_t *tokens,
                                   int64_t count);
TU_API tu_status tu_token_file_finish(tu_token_file *file);
/* Frees a file that is not to be finished. */
TU_API void tu_token_file_abandon(tu_token_file *file);
/* Returns the text tu_token_file_options.tokenizer of a token file; "" for other sets. It lives as long as the set. */
TU_API const char *tu_dataset_tokenizer(const tu_dataset *set);

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
    /* Instead of pictures and labels (height … classes and `read`): columns of any kind, without fields, and a function
     * that reads them. */
    const tu_column *columns;
    size_t column_count;
    tu_status (*read_columns)(void *context, tu_split split, int64_t index, void *const *elements);
} tu_source;
/* Creates a data set. Copies the structure. Computes means, standard deviations and the digest of at most 10,000
 * training images. */
TU_API tu_status tu_dataset_from(const tu_source *source, tu_dataset **set);

/* Downloads "cifar10", "mnist" or the merges of the tokenizer "gpt2" (text.h) into the cache, unless they are there. Writes
 * the path of the file to `path`. */
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
    bool
        balanced; /* with `shuffle`, of a set with classes: every class is equally frequent. Samples of smaller classes
                      repeat within an epoch */
} tu_loader_options;

typedef struct tu_batch {
    size_t struct_size;
    int64_t count;           /* number of samples */
    int64_t epoch;           /* of all samples in the batch */
    int64_t first;           /* ordinal of the first sample; the others follow */
    const void *images;      /* [count, height, width, channels] of the set's type, 64-byte aligned */
    const int32_t *labels;   /* [count]; images and labels are NULL with indices_only */
    const int64_t *ordinals; /* [count]: first, first + 1, … */
    const int64_t *indices;  /* [count]: indices of the samples in the split; of tokens: of the first token */
    const void *const *columns; /* per column of the set: [count, ...]. Pictures: images and labels */
} tu_batch;

/* Creates a loader. The set must outlive it. */
TU_API tu_status tu_loader_new_with(const tu_dataset *set, tu_loader **loader,
                                    const tu_loader_options *options);
#define tu_loader_new(set, loader, ...)                                                                      \
    tu_loader_new_with(set, loader, TU_OPTIONS(tu_loader_options, __VA_ARGS__))
TU_API void tu_loader_free(tu_loader *loader);
/* Gets the next batch, valid until the next call. Epochs follow each other without end. */
TU_API tu_status tu_loader_next(tu_loader *loader, tu_batch *batch);

/* ---- Arrays in .npy files ------------------------------------------------------------------------------------- */

/* Reads a file of NumPy: elements u1, i1, i4, i8, f4 or f8, little-endian, in C order. Free `*data` with tu_bytes_free. */
TU_API tu_status tu_npy_load(const char *path, tu_type *type, void **data);
/* Writes one, atomically. bf16, which NumPy does not have, is written as f4. */
TU_API tu_status tu_npy_save(const char *path, tu_type type, const void *data);

#ifdef __cplusplus
}
#endif
#endif
