/* Lists a folder with one subfolder per class. See listing.h. */
#include "data/listing.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "data/cache.h"
#include "data/dataset.h"
#include "data/permutation.h"

typedef struct names {
    size_t count;
    char **name; /* sorted */
} names;

static void free_names(names *list) {
    for (size_t i = 0; i < list->count; i++) tu__free(list->name[i]);
    tu__free(list->name);
    *list = (names){0};
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool has_image_name(const char *name) {
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".gif", ".webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

/* ---- Names in one folder ---- */

static tu_status add_name(names *list, size_t *capacity, const char *name) {
    if (list->count == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 64;
        char **grown = tu__realloc(list->name, more * sizeof *grown, "the names in a folder");
        if (!grown) return TU_NO_MEMORY;
        list->name = grown;
        *capacity = more;
    }
    char *copy = tu__alloc(strlen(name) + 1, "a name in a folder");
    if (!copy) return TU_NO_MEMORY;
    memcpy(copy, name, strlen(name) + 1);
    list->name[list->count++] = copy;
    return TU_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Reads the names of a folder's subfolders, or of its images. */
static tu_status read_names(const char *path, bool folders, names *list) {
    DIR *folder = opendir(path);
    if (!folder) return tu_fail(TU_IO, "cannot read the folder '%s': %s", path, strerror(errno));
    size_t capacity = 0;
    const struct dirent *entry;
    tu_status status = TU_OK;
    *list = (names){0};
    while (status == TU_OK && (entry = readdir(folder))) {
        tu__path inner;
        if (entry->d_name[0] == '.') continue;
        status = tu__join_path(path, entry->d_name, &inner);
        if (status != TU_OK) break;
        if (folders ? is_folder(inner.text) : has_image_name(entry->d_name) && !is_folder(inner.text))
            status = add_name(list, &capacity, entry->d_name);
    }
    closedir(folder);
    if (status != TU_OK) free_names(list);
    if (list->count) qsort(list->name, list->count, sizeof *list->name, by_name);
    return status;
}

/* ---- Images ---- */

static tu_status add_image(tu__listing *listing, const char *path, int32_t label, tu_split split,
                           bool validation) {
    if (listing->image_count == listing->image_capacity) {
        size_t capacity = listing->image_capacity ? 2 * listing->image_capacity : 256;
        tu__listed_image *grown = tu__realloc(listing->images, capacity * sizeof *grown, "a list of images");
        if (!grown) return TU_NO_MEMORY;
        listing->images = grown;
        listing->image_capacity = capacity;
    }
    const char *copy = tu__arena_string(&listing->arena, path);
    if (!copy) return TU_NO_MEMORY;
    listing->images[listing->image_count++] =
        (tu__listed_image){.path = copy, .label = label, .split = split, .validation = validation};
    listing->count[split]++;
    listing->validation += validation;
    return TU_OK;
}

/* How the images of a class are assigned to splits. */
typedef struct split_rule {
    bool fixed; /* all images go to `split` */
    tu_split split;
    bool validation; /* all images go to the validation split */
    double test_share;
    uint64_t seed;
} split_rule;

static tu_status list_class(tu__listing *listing, const char *folder, const char *inner, int32_t label,
                            const split_rule *d) {
    tu__path path;
    names files = {0};
    TU_TRY(tu__join_path(folder, inner, &path));
    TU_TRY(read_names(path.text, false, &files));
    if (files.count == 0)
        return tu_fail(
            TU_INVALID,
            "class folder '%s' contains no images: expected .png, .jpg, .gif or .webp files; add some, or remove the folder",
            path.text);
    int64_t count = (int64_t)files.count, test_count = (int64_t)((double)count * d->test_share + 0.5);
    if (test_count == 0 && count > 1) test_count = 1;
    if (test_count == count) test_count--;
    tu__permutation order = tu__permutation_of(d->seed, (uint64_t)label, count);
    tu_status status = TU_OK;
    for (int64_t i = 0; i < count && status == TU_OK; i++) {
        tu__path file;
        tu_split split = tu__permute(&order, i) < test_count ? TU_TEST : TU_TRAIN;
        status = tu__join_path(inner, files.name[i], &file);
        if (status == TU_OK)
            status = add_image(listing, file.text, label, d->fixed ? d->split : split, d->validation);
    }
    free_names(&files);
    return status;
}

static tu_status add_classes(tu__listing *listing, const char *folder, const names *list) {
    if (list->count < 2)
        return tu_fail(TU_INVALID,
                       "folder '%s' contains %zu subfolders: expected at least two, one per class", folder,
                       list->count);
    if (list->count > TU__MAX_CLASSES)
        return tu_fail(TU_INVALID, "folder '%s' contains %zu subfolders: expected at most %d", folder,
                       list->count, TU__MAX_CLASSES);
    listing->classes = tu__arena_alloc(&listing->arena, list->count * sizeof *listing->classes);
    if (!listing->classes) return TU_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        listing->classes[i] = tu__arena_string(&listing->arena, list->name[i]);
        if (!listing->classes[i]) return TU_NO_MEMORY;
    }
    listing->class_count = list->count;
    return TU_OK;
}

/* Lists the images of all classes. `inner` is the folder that contains the class folders: "", "train", "val" or
 * "test". */
static tu_status list_classes(tu__listing *listing, const char *folder, const char *inner,
                              const split_rule *d) {
    for (size_t i = 0; i < listing->class_count; i++) {
        tu__path below;
        if (*inner)
            TU_TRY(tu__join_path(inner, listing->classes[i], &below));
        else
            snprintf(below.text, sizeof below.text, "%s", listing->classes[i]);
        TU_TRY(list_class(listing, folder, below.text, (int32_t)i, d));
    }
    return TU_OK;
}

static tu_status find_classes(tu__listing *listing, const char *folder) {
    names list = {0};
    TU_TRY(read_names(folder, true, &list));
    tu_status status = add_classes(listing, folder, &list);
    free_names(&list);
    return status;
}

/* Fails unless a split has the same classes as train/: otherwise labels would be ambiguous. */
static tu_status compare_classes(const tu__listing *listing, const char *folder) {
    names list = {0};
    TU_TRY(read_names(folder, true, &list));
    tu_status status = TU_OK;
    for (size_t i = 0; i < list.count || i < listing->class_count; i++) {
        const char *own = i < list.count ? list.name[i] : NULL;
        const char *other = i < listing->class_count ? listing->classes[i] : NULL;
        if (own && other && strcmp(own, other) == 0) continue;
        status =
            tu_fail(TU_INVALID, "'%s' has other class folders than train/: it has '%s', and train/ has '%s'",
                    folder, own ? own : "none", other ? other : "none");
        break;
    }
    free_names(&list);
    return status;
}

/* ---- Listing ---- */

/* Computes the digest of the listing. A changed file has another size or time, so that the cached conversion is not
 * used. */
static tu_status digest_files(tu__listing *listing, const char *folder) {
    unsigned char digest[TU__SHA256_BYTES];
    tu__sha256 hash;
    tu__sha256_init(&hash);
    for (size_t i = 0; i < listing->image_count; i++) {
        const tu__listed_image *image = &listing->images[i];
        tu__path path;
        struct stat info;
        TU_TRY(tu__join_path(folder, image->path, &path));
        if (stat(path.text, &info) != 0)
            return tu_fail(TU_IO, "cannot stat '%s': %s", path.text, strerror(errno));
        int64_t numbers[5] = {image->label, image->split, info.st_size, info.st_mtim.tv_sec,
                              info.st_mtim.tv_nsec};
        tu__sha256_update(&hash, image->path, strlen(image->path) + 1);
        tu__sha256_update(&hash, numbers, sizeof numbers);
    }
    tu__sha256_final(&hash, digest);
    tu__sha256_hex(digest, listing->digest);
    return TU_OK;
}

/* Lists val/ next to train/ and test/. If its layout is invalid, the message says how to train without it. */
static tu_status list_validation(tu__listing *listing, const char *folder) {
    tu__path path;
    TU_TRY(tu__join_path(folder, "val", &path));
    if (!is_folder(path.text)) return TU_OK;
    tu_status status = compare_classes(listing, path.text);
    if (status == TU_OK)
        status = list_classes(listing, folder, "val",
                              &(split_rule){.fixed = true, .split = TU_TRAIN, .validation = true});
    if (status != TU_INVALID) return status;
    return tu_fail(TU_INVALID, "%s; to train without val/, use --validation FRACTION, for example 0.1",
                   tu_message());
}

static tu_status list_split_folders(tu__listing *listing, const char *folder, const char *test,
                                    bool validation) {
    tu__path train_path, test_path;
    TU_TRY(tu__join_path(folder, "train", &train_path));
    TU_TRY(tu__join_path(folder, test, &test_path));
    TU_TRY(find_classes(listing, train_path.text));
    TU_TRY(compare_classes(listing, test_path.text));
    TU_TRY(list_classes(listing, folder, "train", &(split_rule){.fixed = true, .split = TU_TRAIN}));
    if (validation && strcmp(test, "val") != 0) TU_TRY(list_validation(listing, folder));
    return list_classes(listing, folder, test, &(split_rule){.fixed = true, .split = TU_TEST});
}

static tu_status list_folder(tu__listing *listing, const char *folder, double test_share, uint64_t seed,
                             bool validation) {
    static const char *const tests[] = {"test", "val"};
    tu__path train, test;
    TU_TRY(tu__join_path(folder, "train", &train));
    for (int i = 0; i < 2 && is_folder(train.text); i++) {
        TU_TRY(tu__join_path(folder, tests[i], &test));
        if (is_folder(test.text)) return list_split_folders(listing, folder, tests[i], validation);
    }
    TU_TRY(find_classes(listing, folder));
    return list_classes(listing, folder, "", &(split_rule){.test_share = test_share, .seed = seed});
}

tu_status tu__list_images(const char *folder, double test_share, uint64_t seed, bool validation,
                          tu__listing *listing) {
    *listing = (tu__listing){.arena = {.purpose = "a list of images"}};
    tu_status status = list_folder(listing, folder, test_share, seed, validation);
    if (status == TU_OK) status = digest_files(listing, folder);
    if (status != TU_OK) tu__listing_free(listing);
    return status;
}

void tu__listing_free(tu__listing *listing) {
    tu__free(listing->images);
    tu__arena_free(&listing->arena);
    *listing = (tu__listing){0};
}
