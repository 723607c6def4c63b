/* Downloads with libcurl. See fetch.h.
 *
 * A partial file is only appended to and is trusted only if its digest matches, so a download may be interrupted
 * anywhere. If a continued download has the wrong digest, it is deleted and downloaded once more, in case the partial
 * file belonged to another version of the file. */
#include "data/fetch.h"

#ifdef TU_HAVE_CURL

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/disk.h"
#include "base/open_file.h"
#include "base/sha256.h"
#include "data/progress.h"

enum { CONNECT_SECONDS = 20, STALLED_SECONDS = 60, CHUNK_BYTES = 1 << 16 };
#define MAX_BYTES (1LL << 30) /* of a file, several times the largest: a server may send without end */

typedef struct transfer {
    const char *url, *part;
    char what[256]; /* progress text */
    const tu_dataset_options *options;
    int fd;
    int reason;     /* errno of a failed write */
    int64_t before; /* size of the partial file */
    int64_t received;
} transfer;

static void initialise_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int64_t file_size(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

/* ---- The digest ---- */

static tu_status hash_file(const char *path, char hex[TU__SHA256_HEX]) {
    unsigned char chunk[CHUNK_BYTES], digest[TU__SHA256_BYTES];
    tu__sha256 hash;
    tu__sha256_init(&hash);
    int fd;
    TU_TRY(tu__open_file(NULL, path, &fd, NULL));
    ssize_t got;
    while ((got = read(fd, chunk, sizeof chunk)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0) tu__sha256_update(&hash, chunk, (size_t)got);
    int reason = errno;
    close(fd);
    if (got < 0) return tu_fail(TU_IO, "cannot read '%s': %s", path, strerror(reason));
    tu__sha256_final(&hash, digest);
    tu__sha256_hex(digest, hex);
    return TU_OK;
}

static tu_status check_digest(const char *url, const char *path, const char *expected) {
    char found[TU__SHA256_HEX];
    TU_TRY(hash_file(path, found));
    if (strcmp(found, expected) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT, "the file from %s has SHA-256 %s: expected %s", url, found, expected);
}

/* ---- One transfer ---- */

static size_t write_bytes(char *bytes, size_t size, size_t count, void *context) {
    transfer *t = context;
    size_t left = size * count;
    if (__builtin_add_overflow(t->received, (int64_t)left, &t->received) ||
        t->received > MAX_BYTES - t->before) {
        t->reason = EFBIG;
        return 0;
    }
    while (left > 0) {
        ssize_t written = tu__disk_in_use()->write(t->fd, bytes, left);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            t->reason = errno;
            return 0; /* makes libcurl abort the transfer */
        }
        bytes += written;
        left -= (size_t)written;
    }
    return size * count;
}

static int show_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total,
                         curl_off_t up_now) {
    const transfer *t = context;
    (void)up_total;
    (void)up_now;
    if (now > 0) tu__report_progress(t->options, t->what, t->before + now, total > 0 ? t->before + total : 0);
    return 0;
}

static CURLcode perform(CURL *curl, transfer *t, char error[CURL_ERROR_SIZE]) {
    error[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_URL, t->url);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,file");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTPS | CURLPROTO_FILE);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTPS);
#endif
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALLED_SECONDS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tutti/" TU_VERSION);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->before);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, write_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, show_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    return curl_easy_perform(curl);
}

/* True if the server cannot continue the partial file. */
static bool cannot_continue(CURL *curl, CURLcode code) {
    long code_http = 0;
    if (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME ||
        code == CURLE_FILE_COULDNT_READ_FILE)
        return true;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code_http);
    return code == CURLE_HTTP_RETURNED_ERROR && code_http == 416;
}

static tu_status receive(transfer *t) {
    char error[CURL_ERROR_SIZE];
    CURL *curl = curl_easy_init();
    if (!curl) return tu_fail(TU_NO_MEMORY, "out of memory: cannot initialise libcurl");
    CURLcode code = perform(curl, t, error);
    bool restart = t->before > 0 && cannot_continue(curl, code);
    curl_easy_cleanup(curl);
    if (code == CURLE_OK || restart) return TU_OK; /* the digest decides */
    if (t->reason) return tu_fail(TU_IO, "cannot write '%s': %s", t->part, strerror(t->reason));
    return tu_fail(TU_IO, "%s: %s", t->url, *error ? error : curl_easy_strerror(code));
}

static tu_status download(const char *url, const char *part, const tu_dataset_options *options) {
    transfer t = {.url = url, .part = part, .options = options, .before = file_size(part)};
    t.fd = tu__open_to_write(NULL, part, O_WRONLY | O_CREAT | O_APPEND);
    if (t.fd < 0) return tu_fail(TU_IO, "cannot write '%s': %s", part, tu__file_reason(errno));
    snprintf(t.what, sizeof t.what, "downloading %s", url);
    tu__report_progress(options, t.what, t.before, 0);
    tu_status status = receive(&t);
    if (tu__disk_in_use()->close(t.fd) != 0 && status == TU_OK)
        status = tu_fail(TU_IO, "cannot write '%s': %s", part, strerror(errno));
    if (file_size(part) == 0) tu__remove_file(NULL, part); /* nothing to continue from */
    return status;
}

tu_status tu__fetch(const char *url, const char *sha256, const char *part, const char *path,
                    const tu_dataset_options *options) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_curl);
    tu_status status = TU_CORRUPT;
    for (int attempt = 0; attempt < 2 && status == TU_CORRUPT; attempt++) {
        bool resumed = file_size(part) > 0;
        if (resumed && check_digest(url, part, sha256) == TU_OK) break; /* complete, but not renamed yet */
        TU_TRY(download(url, part, options));
        status = check_digest(url, part, sha256);
        if (status == TU_CORRUPT) tu__remove_file(NULL, part);
        if (status == TU_CORRUPT && !resumed) return status;
    }
    if (tu__disk_in_use()->rename(AT_FDCWD, part, path) != 0)
        return tu_fail(TU_IO, "cannot rename '%s' to '%s': %s", part, path, strerror(errno));
    return TU_OK;
}

#else

tu_status tu__fetch(const char *url, const char *sha256, const char *part, const char *path,
                    const tu_dataset_options *options) {
    (void)sha256;
    (void)part;
    (void)path;
    (void)options;
    return tu_fail(
        TU_UNSUPPORTED,
        "%s: this build cannot download; install libcurl4-openssl-dev and rebuild, or download it by hand",
        url);
}

#endif
