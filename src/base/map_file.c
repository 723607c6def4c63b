/* Mapping files into memory. See map_file.h.
 *
 * The signal handler looks the address up in a table with a fixed number of mappings, without a lock: a slot is taken by
 * a compare-and-swap of its address. With more mappings than slots, files are read into memory instead. */
#include "base/map_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/open_file.h"

/* ---- The handler ---- */

enum { SLOTS = 1024 };

static struct slot {
    atomic_uintptr_t begin; /* 0: free; 1: being filled */
    atomic_size_t bytes;
    atomic_bool truncated;
} slots[SLOTS];

static struct sigaction previous;
static size_t page_bytes;

/* Returns the slot with this address; NULL: it is in none. */
static struct slot *find_slot(uintptr_t address) {
    for (size_t i = 0; i < SLOTS; i++) {
        uintptr_t begin = atomic_load(&slots[i].begin);
        if (begin > 1 && address >= begin && address - begin < atomic_load(&slots[i].bytes)) return &slots[i];
    }
    return NULL;
}

/* Replaces the rest of the mapping, from the page with the address on, by zeros. */
static bool replace_rest(struct slot *slot, uintptr_t address) {
    uintptr_t begin = atomic_load(&slot->begin), end = begin + atomic_load(&slot->bytes);
    uintptr_t first = address & ~(uintptr_t)(page_bytes - 1);
    atomic_store(&slot->truncated, true);
    void *at = (void *)first; // NOLINT(performance-no-int-to-ptr): the address of the fault
    return mmap(at, end - first, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    int reason = errno;
    struct slot *slot = find_slot((uintptr_t)info->si_addr);
    if (slot && replace_rest(slot, (uintptr_t)info->si_addr)) {
        errno = reason;
        return;
    }
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(number, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(number);
    else
        sigaction(number, &previous, NULL); /* the access is repeated and ends the program */
}

static void install_handler(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, NULL, &previous);
    sigaction(SIGBUS, &action, NULL);
}

/* Enters a mapping into the table; returns -1 if it is full. */
static int take_slot(void *bytes, size_t size) {
    for (int i = 0; i < SLOTS; i++) {
        uintptr_t free_slot = 0;
        if (!atomic_compare_exchange_strong(&slots[i].begin, &free_slot, 1)) continue;
        atomic_store(&slots[i].truncated, false);
        atomic_store(&slots[i].bytes, size);
        atomic_store(&slots[i].begin, (uintptr_t)bytes);
        return i;
    }
    return -1;
}

/* ---- Mapping ---- */

static tu_status read_instead(int fd, const char *folder, const char *name, tu__mapped_file *file) {
    file->bytes = tu__alloc(file->size, "the contents of a file");
    if (!file->bytes) return TU_NO_MEMORY;
    for (size_t done = 0; done < file->size;) {
        ssize_t got = pread(fd, (char *)file->bytes + done, file->size - done, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            tu__free(file->bytes);
            return tu_fail(TU_IO, "cannot read '%s': %s", tu__file_path(folder, name).text,
                           got < 0 ? strerror(errno) : "it was truncated meanwhile");
        }
        done += (size_t)got;
    }
    return TU_OK;
}

static tu_status map(int fd, const char *folder, const char *name, tu__mapped_file *file) {
    file->bytes = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file->bytes == MAP_FAILED)
        return tu_fail(TU_IO, "cannot map '%s' into memory: %s", tu__file_path(folder, name).text,
                       strerror(errno));
    file->slot = take_slot(file->bytes, file->size);
    file->fd = fd;
    if (file->slot >= 0) return TU_OK;
    munmap(file->bytes, file->size);
    return read_instead(fd, folder, name, file);
}

tu_status tu__map_file_in(const char *folder, const char *name, tu__mapped_file *file) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int fd;
    struct stat info;
    *file = (tu__mapped_file){.slot = -1};
    TU_TRY(tu__open_file(folder, name, &fd, &info));
    pthread_once(&once, install_handler);
    tu__mapped_file mapped = {.size = (size_t)info.st_size, .info = info, .slot = -1};
    tu_status status = mapped.size ? map(fd, folder, name, &mapped) : TU_OK;
    if (status != TU_OK || mapped.slot < 0) close(fd);
    if (status == TU_OK) *file = mapped;
    return status;
}

tu_status tu__map_file(const char *path, tu__mapped_file *file) {
    return tu__map_file_in(NULL, path, file);
}

tu_status tu__check_mapping(const tu__mapped_file *file, const char *name) {
    struct stat info;
    if (!file->bytes || file->slot < 0) return TU_OK;
    /* The size, too: the rest of the file's new last page reads as zeros without a signal. */
    bool is_shorter = fstat(file->fd, &info) == 0 && (uintmax_t)info.st_size < file->size;
    if (!is_shorter && !atomic_load(&slots[file->slot].truncated)) return TU_OK;
    return tu_fail(TU_IO, "'%s' was truncated while it was in use: it had %zu bytes", name, file->size);
}

void tu__release_pages(const tu__mapped_file *file, size_t begin, size_t end) {
    if (!file->bytes || file->slot < 0) return; /* in the heap, madvise would replace the bytes by zeros */
    begin = begin / page_bytes * page_bytes;
    end = end / page_bytes * page_bytes;
    if (end > begin) (void)madvise((char *)file->bytes + begin, end - begin, MADV_DONTNEED);
}

void tu__unmap_file(tu__mapped_file *file) {
    if (file->bytes && file->slot >= 0) {
        atomic_store(&slots[file->slot].begin, 0); /* first: another thread may get the address at once */
        munmap(file->bytes, file->size);
        close(file->fd);
    } else {
        tu__free(file->bytes);
    }
    *file = (tu__mapped_file){.slot = -1};
}
