/* Which data files were verified. See verified.h.
 *
 * A record is the file CACHE/verified/KEY, where KEY is a digest of the data file's path. Without a cache folder that can be
 * written, every opening verifies. */
#include "data/verified.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/open_file.h"
#include "base/save.h"
#include "base/sha256.h"
#include "data/cache.h"
#include "data/dataset.h"

enum { MAX_RECORD = 512 };

/* Returns the record's name in the cache: "verified/…". */
static tu_status name_record(const char *path, char name[64]) {
    char resolved[PATH_MAX], hex[TU__SHA256_HEX];
    unsigned char digest[TU__SHA256_BYTES];
    if (!realpath(path, resolved)) return tu_fail(TU_IO, "cannot resolve '%s': %s", path, strerror(errno));
    tu__sha256_of(resolved, strlen(resolved), digest);
    tu__sha256_hex(digest, hex);
    snprintf(name, 64, "verified/%.32s", hex);
    return TU_OK;
}

/* What a verified file was: everything that changes with it. */
static void describe_file(const struct stat *info, const char *digest, char record[MAX_RECORD]) {
    snprintf(record, MAX_RECORD,
             "%" PRIuMAX ":%" PRIuMAX " %" PRIdMAX " %" PRIdMAX ".%09ld %" PRIdMAX ".%09ld %s\n",
             (uintmax_t)info->st_dev, (uintmax_t)info->st_ino, (intmax_t)info->st_size,
             (intmax_t)info->st_mtim.tv_sec, info->st_mtim.tv_nsec, (intmax_t)info->st_ctim.tv_sec,
             info->st_ctim.tv_nsec, digest);
}

static bool is_recorded(const char *cache, const char *name, const char *record) {
    tu__text text;
    bool same = tu__read_file(cache, name, MAX_RECORD, &text) == TU_OK && strcmp(text.data, record) == 0;
    tu__text_free(&text);
    return same;
}

/* Failures only cost the time of the next opening. */
static void store_record(const char *cache, const char *name, const char *record) {
    if (tu__make_folders(cache) != TU_OK) return;
    if (tu__make_folder(cache, "verified") != 0 && errno != EEXIST) return;
    (void)tu__file_save_in(cache, name, record, strlen(record));
}

tu_status tu__verify_data_file(const char *path, const struct stat *info, const tu_dataset *dataset) {
    tu__path cache;
    char name[64], record[MAX_RECORD];
    describe_file(info, dataset->info.digest, record);
    bool has_cache = tu__cache_folder(&cache) == TU_OK && name_record(path, name) == TU_OK;
    if (has_cache && is_recorded(cache.text, name, record)) return TU_OK;
    tu_status status = tu_dataset_verify(dataset);
    if (status == TU_CORRUPT) return tu_fail(status, "%s; delete the file to create it again", tu_message());
    TU_TRY(status);
    if (has_cache) store_record(cache.text, name, record);
    return TU_OK;
}
