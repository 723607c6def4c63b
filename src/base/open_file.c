/* Opens files of folders that come from others. See open_file.h.
 *
 * A name is walked one component at a time with descriptors (O_NOFOLLOW), so no link is followed even if somebody
 * exchanges a folder for a link meanwhile. */
#include "base/open_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <tutti/command.h>

#include "base/alloc.h"
#include "base/disk.h"

tu__path tu__file_path(const char *folder, const char *name) {
    tu__path path;
    if (!folder)
        snprintf(path.text, sizeof path.text, "%s", name);
    else if (*name)
        snprintf(path.text, sizeof path.text, "%s/%s", folder, name);
    else
        snprintf(path.text, sizeof path.text, "%s", folder);
    return path;
}

const char *tu__file_reason(int reason) {
    return reason == ELOOP ? "it is or leads through a symbolic link, which is not followed here"
                           : strerror(reason);
}

static void close_keeping_errno(int fd) {
    int reason = errno;
    close(fd);
    errno = reason;
}

/* ---- Walking ---- */

/* Opens a folder within `folder`, but no link. Closes `folder`. */
static int descend(int folder, const char *name) {
    int inner = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    if (inner < 0 && errno == ENOTDIR && fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
        errno = S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
    close_keeping_errno(folder);
    return inner;
}

static bool is_component(const char *text, size_t length) {
    bool is_dots = (length == 1 && text[0] == '.') || (length == 2 && text[0] == '.' && text[1] == '.');
    return length > 0 && length <= NAME_MAX && !is_dots;
}

static int open_parent_beneath(const char *folder, const char *name, const char **last) {
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (const char *slash; fd >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        char component[NAME_MAX + 1];
        size_t length = (size_t)(slash - name);
        if (!is_component(name, length)) break;
        memcpy(component, name, length);
        component[length] = '\0';
        fd = descend(fd, component);
    }
    *last = name;
    if (fd < 0 || is_component(name, strcspn(name, "/"))) return fd;
    close(fd);
    errno = strlen(name) > NAME_MAX ? ENAMETOOLONG : EINVAL;
    return -1;
}

/* A path that the user named: the system follows the links of its folders. */
static int open_parent_of_path(const char *path, const char **last) {
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX] = ".";
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    if (length >= sizeof parent) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (slash) {
        memcpy(parent, path, length);
        parent[length] = '\0';
    }
    *last = slash ? slash + 1 : path;
    return open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int tu__open_parent(const char *folder, const char *name, const char **last) {
    return folder ? open_parent_beneath(folder, name, last) : open_parent_of_path(name, last);
}

/* ---- Reading ---- */

static int open_to_read(const char *folder, const char *name) {
    enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
    if (!folder) return open(name, FLAGS);
    const char *last;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return -1;
    int fd = openat(parent, last, FLAGS | O_NOFOLLOW);
    close_keeping_errno(parent);
    return fd;
}

static tu_status fail_open(const char *folder, const char *name, int reason) {
    tu_status status = reason == ENOENT || reason == ENOTDIR                    ? TU_NOT_FOUND
                       : reason == ELOOP || reason == EISDIR || reason == ENXIO ? TU_INVALID
                                                                                : TU_IO;
    return tu_fail(status, "cannot read '%s': %s", tu__file_path(folder, name).text,
                   reason == ENXIO ? "it is not a regular file" : tu__file_reason(reason)); /* a socket */
}

tu_status tu__open_file(const char *folder, const char *name, int *fd, struct stat *info) {
    struct stat own;
    if (!info) info = &own;
    *fd = open_to_read(folder, name);
    if (*fd < 0) return fail_open(folder, name, errno);
    tu_status status = TU_OK;
    if (fstat(*fd, info) != 0)
        status = fail_open(folder, name, errno);
    else if (!S_ISREG(info->st_mode))
        status = tu_fail(TU_INVALID, "cannot read '%s': it is not a regular file",
                         tu__file_path(folder, name).text);
    if (status == TU_OK) return TU_OK;
    close(*fd);
    *fd = -1;
    return status;
}

static tu_status read_all(int fd, size_t size, const char *folder, const char *name, tu__text *text) {
    text->data = tu__alloc(size + 1, "the contents of a file");
    if (!text->data) return TU_NO_MEMORY;
    text->capacity = size + 1;
    while (text->length < size) {
        ssize_t got = read(fd, text->data + text->length, size - text->length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_open(folder, name, errno);
        if (got == 0)
            return tu_fail(TU_IO, "cannot read '%s': it was truncated meanwhile",
                           tu__file_path(folder, name).text);
        text->length += (size_t)got;
    }
    text->data[size] = '\0';
    return TU_OK;
}

/* True for a large file with a part that is not stored. It would need much more memory than disk. */
static bool is_sparse(int fd, const struct stat *info) {
    const off_t large = 16 << 20;
    if (info->st_size <= large) return false;
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    lseek(fd, 0, SEEK_SET);
    return hole >= 0 && hole < info->st_size;
}

tu_status tu__read_file(const char *folder, const char *name, size_t max_bytes, tu__text *text) {
    struct stat info = {0};
    int fd;
    *text = (tu__text){0};
    TU_TRY(tu__open_file(folder, name, &fd, &info));
    tu_status status;
    if ((uintmax_t)info.st_size > max_bytes)
        status = tu_fail(TU_CORRUPT, "cannot read '%s': it has %lld bytes, expected at most %zu",
                         tu__file_path(folder, name).text, (long long)info.st_size, max_bytes);
    else if (is_sparse(fd, &info))
        status = tu_fail(TU_CORRUPT, "cannot read '%s': it is sparse: parts of its %lld bytes are not stored",
                         tu__file_path(folder, name).text, (long long)info.st_size);
    else
        status = read_all(fd, (size_t)info.st_size, folder, name, text);
    close(fd);
    return status;
}

/* ---- Files that the user named for one option ---- */

/* Reads to the end. A pipe to which nobody writes ends at once. */
static tu_status read_pipe(int fd, const char *path, size_t max_bytes, tu__text *text) {
    char chunk[4096];
    ssize_t got;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    while ((got = read(fd, chunk, sizeof chunk)) > 0 || (got < 0 && errno == EINTR)) {
        if (got > 0) tu__text_append(text, chunk, (size_t)got);
        if (text->failed) return TU_NO_MEMORY;
        if (text->length > max_bytes)
            return tu_fail(TU_CORRUPT, "cannot read '%s': it has more than %zu bytes", path, max_bytes);
    }
    if (got < 0) return fail_open(NULL, path, errno);
    tu__text_append(text, "", 0);
    return text->failed ? TU_NO_MEMORY : TU_OK;
}

/* True for what may have no end, such as /dev/zero: a device that is neither a terminal nor /dev/null. */
static bool is_endless(int fd, const struct stat *info) {
    return S_ISCHR(info->st_mode) && info->st_rdev != makedev(1, 3) && !isatty(fd);
}

static tu_status read_any(const char *path, size_t max_bytes, tu__text *text) {
    struct stat info;
    *text = (tu__text){0};
    int fd = open_to_read(NULL, path);
    if (fd < 0 || fstat(fd, &info) != 0) return fail_open(NULL, path, errno);
    tu_status status =
        S_ISDIR(info.st_mode) ? fail_open(NULL, path, EISDIR)
        : is_endless(fd, &info)
            ? tu_fail(TU_INVALID, "cannot read '%s': it is a device: expected a file or a pipe", path)
        : S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) ? read_pipe(fd, path, max_bytes, text)
                                                          : tu__read_file(NULL, path, max_bytes, text);
    close(fd);
    return status;
}

tu_status tu_file_read(const char *path, size_t max_bytes, void **bytes, size_t *size) {
    tu__text text;
    *bytes = NULL;
    *size = 0;
    if (!path || !*path) return tu_fail(TU_INVALID, "cannot read a file: the path is NULL or empty");
    tu_status status = read_any(path, max_bytes, &text);
    if (status != TU_OK) {
        tu__text_free(&text);
        return status;
    }
    *bytes = text.data;
    *size = text.length;
    return TU_OK;
}

DIR *tu__list_folder(const char *folder, const char *name) {
    const char *last = name;
    int parent =
        *name ? tu__open_parent(folder, name, &last) : open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return NULL;
    if (*name && folder) {
        parent = descend(parent, last);
        last = "";
    }
    int fd = parent < 0 ? -1 : openat(parent, *last ? last : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent >= 0) close_keeping_errno(parent);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !list) close_keeping_errno(fd);
    return list;
}

bool tu__file_exists(const char *folder, const char *name) {
    const char *last;
    struct stat info;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return false;
    bool exists =
        fstatat(parent, last, &info, folder ? AT_SYMLINK_NOFOLLOW : 0) == 0 && S_ISREG(info.st_mode);
    close_keeping_errno(parent);
    return exists;
}

/* ---- Changing folders ---- */

int tu__open_to_write(const char *folder, const char *name, int flags) {
    const char *last;
    struct stat info;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return -1;
    int fd =
        tu__disk_in_use()->open(parent, last, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    close_keeping_errno(parent);
    if (fd < 0 || (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
    tu__disk_in_use()->close(fd);
    errno = EINVAL;
    return -1;
}

int tu__remove_file(const char *folder, const char *name) {
    const char *last;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return -1;
    int result = tu__disk_in_use()->unlink(parent, last);
    close_keeping_errno(parent);
    return result;
}

int tu__rename_file(const char *folder, const char *name, const char *to) {
    const char *last;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return -1;
    int result = tu__disk_in_use()->rename(parent, last, to);
    close_keeping_errno(parent);
    return result;
}

int tu__make_folder(const char *folder, const char *name) {
    const char *last;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return -1;
    int result = tu__disk_in_use()->mkdir(parent, last, 0777);
    close_keeping_errno(parent);
    return result;
}

void tu__remove_files(const char *folder, const char *name, const char *prefix) {
    DIR *list = tu__list_folder(folder, name);
    if (!list) return;
    for (const struct dirent *entry; (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            tu__disk_in_use()->unlink(dirfd(list), entry->d_name);
    closedir(list);
}

void tu__remove_folder(const char *folder, const char *name) {
    const char *last;
    struct stat info;
    int parent = tu__open_parent(folder, name, &last);
    if (parent < 0) return;
    if (fstatat(parent, last, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) {
        tu__remove_files(folder ? folder : name, folder ? name : "", "");
        tu__disk_in_use()->rmdir(parent, last);
    } else {
        tu__disk_in_use()->unlink(parent, last);
    }
    close(parent);
}
