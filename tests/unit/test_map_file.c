/* Mapped files: a file that is truncated while it is mapped is an error, not the end of the process. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "base/map_file.h"
#include "base/start_thread.h"

enum { BYTES = 50000 };

static char path[64];

static int make_file(void **state) {
    (void)state;
    strcpy(path, "/tmp/tutti-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    char bytes[BYTES];
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    close(fd);
    return 0;
}

/* Runs a test in a process without cmocka's handlers of signals. */
static void in_a_process(void (*test)(void)) {
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGBUS, SIG_DFL);
        test();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define require(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, #condition), _exit(1);                  \
    } while (0)

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static long sum(const tu__mapped_file *file) {
    const volatile char *bytes = file->bytes;
    long total = 0;
    for (size_t i = 0; i < file->size; i++) total += bytes[i];
    return total;
}

static void a_file_is_mapped(void **state) {
    (void)state;
    tu__mapped_file file;
    assert_int_equal(tu__map_file(path, &file), TU_OK);
    assert_int_equal(sum(&file), 7 * BYTES);
    assert_int_equal(tu__check_mapping(&file, path), TU_OK);
    tu__unmap_file(&file);
    tu__unmap_file(&file);
}

static void released_pages_can_be_read_again(void **state) {
    (void)state;
    tu__mapped_file file;
    assert_int_equal(tu__map_file(path, &file), TU_OK);
    tu__release_pages(&file, 100, file.size);
    assert_int_equal(sum(&file), 7 * BYTES);
    tu__unmap_file(&file);
    tu__release_pages(&file, 0, 0);
}

/* A file that was read into the heap has no pages to release: dropping them would leave zeros. */
static void bytes_in_the_heap_are_not_released(void **state) {
    (void)state;
    long page = sysconf(_SC_PAGESIZE);
    tu__mapped_file file = {.size = (size_t)(4 * page), .slot = -1};
    assert_int_equal(posix_memalign(&file.bytes, (size_t)page, file.size), 0);
    memset(file.bytes, 7, file.size);
    tu__release_pages(&file, 0, file.size);
    assert_int_equal(sum(&file), 7 * (long)file.size);
    free(file.bytes);
}

static void truncate_mapped(void) {
    tu__mapped_file file, other;
    require(tu__map_file(path, &file) == TU_OK);
    require(truncate(path, 5000) == 0);
    require(sum(&file) == 7 * 5000);
    require(tu__check_mapping(&file, path) == TU_IO);
    require(strstr(tu_message(), "was truncated while it was in use: it had 50000 bytes"));
    require(tu__map_file(path, &other) == TU_OK); /* another mapping is not affected */
    require(sum(&other) == 7 * 5000);
    require(tu__check_mapping(&other, path) == TU_OK);
    require(truncate(path, 4999) == 0); /* within the last page: no signal */
    require(tu__check_mapping(&other, path) == TU_IO);
    tu__unmap_file(&other);
    tu__unmap_file(&file);
}

static void truncation_is_reported(void **state) {
    (void)state;
    in_a_process(truncate_mapped);
}

static void *sum_in_thread(void *file) {
    require(sum(file) == 7 * 5000);
    return NULL;
}

/* A fault of a thread that blocks the signal kills the process, whatever handler there is. */
static void truncate_mapped_of_thread(void) {
    tu__mapped_file file;
    pthread_t thread;
    require(tu__map_file(path, &file) == TU_OK);
    require(truncate(path, 5000) == 0);
    require(tu__start_thread(&thread, sum_in_thread, &file) == 0);
    require(pthread_join(thread, NULL) == 0);
    require(tu__check_mapping(&file, path) == TU_IO);
    tu__unmap_file(&file);
}

static void truncation_is_reported_if_a_thread_of_the_library_reads(void **state) {
    (void)state;
    in_a_process(truncate_mapped_of_thread);
}

static void map_many(void) {
    enum { FILES = 1100 };
    static tu__mapped_file files[FILES];
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){4096, 4096});
    for (int i = 0; i < FILES; i++) require(tu__map_file(path, &files[i]) == TU_OK);
    require(sum(&files[FILES - 1]) == 7 * BYTES);
    require(truncate(path, 0) == 0);
    require(sum(&files[FILES - 1]) == 7 * BYTES);
    require(tu__check_mapping(&files[FILES - 1], path) == TU_OK);
    require(sum(&files[0]) == 0);
    require(tu__check_mapping(&files[0], path) == TU_IO);
    for (int i = 0; i < FILES; i++) tu__unmap_file(&files[i]);
}

static void more_files_than_the_table_has_are_read(void **state) {
    (void)state;
    in_a_process(map_many);
}

static void raise_another(void) {
    tu__mapped_file file;
    require(tu__map_file(path, &file) == TU_OK);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDONLY);
        volatile char *own = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
        _exit(truncate(path, 0) == 0 ? own[20000] : 0);
    }
    int status;
    require(waitpid(child, &status, 0) == child);
    require(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    tu__unmap_file(&file);
}

static void another_bus_error_ends_the_process(void **state) {
    (void)state;
    in_a_process(raise_another);
}

#define on_a_file(test) cmocka_unit_test_setup_teardown(test, make_file, remove_file)

int main(void) {
    const struct CMUnitTest tests[] = {
        on_a_file(truncation_is_reported),
        on_a_file(truncation_is_reported_if_a_thread_of_the_library_reads),
        on_a_file(more_files_than_the_table_has_are_read),
        on_a_file(another_bus_error_ends_the_process),
        /* The last ones install the handler in this process: */
        on_a_file(a_file_is_mapped),
        on_a_file(released_pages_can_be_read_again),
        on_a_file(bytes_in_the_heap_are_not_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
