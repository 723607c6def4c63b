/* The common part of all data sets.
 *
 * A data set is a description, its columns, and a function that copies one sample. The functions that open data sets
 * (generated.c, data_file_read.c, table_file.c, source.c) fill a tu_dataset_info; tu__dataset_new validates it once, so
 * that loaders and readers can rely on its numbers. Only data sets of pictures have a height, width and channels, and
 * a function that reads an image and its label; everything else handles columns. */
#ifndef TU__DATA_DATASET_H
#define TU__DATA_DATASET_H

#include <tutti/data.h>

#include "base/arena.h"
#include "data/columns.h"

typedef tu_status (*tu__read_image)(void *context, tu_split split, int64_t index, void *image,
                                    int32_t *label);
/* Copies the elements of sample `index`; those whose address is NULL are not wanted. */
typedef tu_status (*tu__read_sample)(void *context, tu_split split, int64_t index, void *const *elements);

/* A set of windows of tokens: the samples of a split are windows of `length` + 1 consecutive tokens, and the index of a
 * sample is that of its first token. The training split is followed by the validation tokens. length 0: no windows. */
typedef struct tu__windows {
    int64_t length;
    int64_t tokens[3]; /* per tu_token_part */
} tu__windows;

struct tu_dataset {
    tu_dataset_info info; /* strings live in `arena` */
    tu__columns columns;
    tu__windows windows;
    size_t image_bytes; /* of the first column */
    void *context;
    tu__read_image read; /* of pictures; NULL: use read_sample */
    tu__read_sample read_sample;
    void (*close)(void *context);            /* NULL: nothing to free */
    tu_status (*check)(const void *context); /* NULL: always intact; see tu__dataset_intact */
    /* For data sets in contiguous memory: address of each column of each split while the data set is open; else NULL. */
    const void *data[2][TU_MAX_COLUMNS];
    bool sampled; /* the digest covers only a sample of the images: see source.c */
    tu_status (*hash)(const tu_dataset *dataset, char digest[65]); /* NULL: that of pictures */
    tu__arena arena;
};

enum { TU__MAX_CLASSES = 1 << 20, TU__MAX_SIDE = 1 << 20 };

/* Creates a data set of pictures with this description, which is copied. class_names NULL means "0", "1", …; a NULL
 * digest means "". On failure the context still belongs to the caller. */
tu_status tu__dataset_new(const tu_dataset_info *info, tu__read_image read, void (*close)(void *context),
                          void *context, tu_dataset **dataset);
/* The same with any columns, which are copied. `windows` may be NULL. */
tu_status tu__dataset_new_columns(const tu_dataset_info *info, const tu__columns *columns,
                                  const tu__windows *windows, tu__read_sample read,
                                  void (*close)(void *context), void *context, tu_dataset **dataset);

/* Validates counts, sizes, channels, type and classes of a description of pictures. `image_bytes` may be NULL. */
tu_status tu__dataset_check(const tu_dataset_info *info, size_t *image_bytes);

/* True if the columns are pictures and labels. */
static inline bool tu__has_pictures(const tu_dataset_info *info) {
    return info->height > 0;
}

/* Returns the number of indices of a split that can be read: its samples, or the tokens at which a window starts. */
int64_t tu__dataset_indices(const tu_dataset *dataset, tu_split split);

/* Adds the path of the file that a data set was converted to to `info->origin`, which is shown to users. */
tu_status tu__dataset_set_origin(tu__arena *arena, const char *path, tu_dataset_info *info);

/* Sets the notice of a data set (tu_dataset_info.notice) to a copy; "" does nothing. */
tu_status tu__dataset_notice(tu_dataset *dataset, const char *notice);

/* Fails if the file of the data set was truncated while it was read, so that images were zeros. */
tu_status tu__dataset_intact(const tu_dataset *dataset);
/* True if all columns of the split are in memory. */
bool tu__dataset_in_memory(const tu_dataset *dataset, tu_split split);
/* Returns the bytes of a sample. */
size_t tu__sample_bytes(const tu__columns *columns);
/* Advises the kernel that a whole split in memory will be read soon. */
void tu__dataset_prefetch(const tu_dataset *dataset, tu_split split);

/* The built-in data sets, ended by NULL: "cifar10", "mnist", "generated". */
extern const char *const tu__dataset_names[];

/* Opens the generated data set. */
tu_status tu__open_generated(tu_dataset **dataset);

#endif
