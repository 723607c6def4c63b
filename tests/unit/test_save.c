/* Atomic saves: after any failure or power loss, either the complete old or the complete new file exists. */
#include "fake_disk.h"

#include "base/save.h"

typedef struct folder {
    char path[64], file[80], after[64];
} folder;

static folder new_folder(void) {
    folder f;
    strcpy(f.path, "/tmp/tutti-test-XXXXXX");
    strcpy(f.after, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    assert_non_null(mkdtemp(f.after));
    snprintf(f.file, sizeof f.file, "%s/file", f.path);
    return f;
}

/* Removes all files and returns how many there were. */
static int empty_folder(const char *path) {
    int count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char file[512];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        assert_int_equal(unlink(file), 0);
        count++;
    }
    closedir(dir);
    return count;
}

static void remove_folder(const folder *f) {
    empty_folder(f->path);
    empty_folder(f->after);
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(rmdir(f->after), 0);
}

/* Returns the contents of the folder's file as a string; "" if there is none. */
static const char *contents(const char *folder_path) {
    static char bytes[4096];
    char path[512];
    snprintf(path, sizeof path, "%s/file", folder_path);
    FILE *file = fopen(path, "rb");
    if (!file) return "";
    size_t size = fread(bytes, 1, sizeof bytes - 1, file);
    fclose(file);
    bytes[size] = '\0';
    for (size_t i = 0; i < size; i++)
        if (!bytes[i]) bytes[i] = '0'; /* make NUL bytes visible */
    return bytes;
}

static const char old_bytes[] = "the old contents", new_bytes[] = "the new contents, longer than the old";

static tu_status save_in_chunks(const char *path) {
    tu__save save;
    TU_TRY(tu__save_begin(&save, path));
    for (size_t i = 0; i < sizeof new_bytes - 1; i += 8) {
        size_t left = sizeof new_bytes - 1 - i;
        tu__save_append(&save, new_bytes + i, left < 8 ? left : 8);
    }
    return tu__save_commit(&save);
}

static tu_status save_at_once(const char *path) {
    return tu_file_save(path, new_bytes, sizeof new_bytes - 1);
}

static tu_status (*const save_functions[])(const char *path) = {save_at_once, save_in_chunks};

static void a_saved_file_contains_the_bytes(void **state) {
    (void)state;
    folder f = new_folder();
    for (size_t way = 0; way < 2; way++) {
        assert_int_equal(tu_file_save(f.file, old_bytes, sizeof old_bytes - 1), TU_OK);
        assert_string_equal(contents(f.path), old_bytes);
        assert_int_equal(save_functions[way](f.file), TU_OK);
        assert_string_equal(contents(f.path), new_bytes);
        assert_int_equal(empty_folder(f.path), 1);
    }
    remove_folder(&f);
}

static void an_empty_file_can_be_saved(void **state) {
    (void)state;
    folder f = new_folder();
    assert_int_equal(tu_file_save(f.file, NULL, 0), TU_OK);
    assert_string_equal(contents(f.path), "");
    assert_int_equal(empty_folder(f.path), 1);
    remove_folder(&f);
}

static void short_writes_are_continued(void **state) {
    (void)state;
    folder f = new_folder();
    fake_disk_short_writes(3);
    assert_int_equal(tu_file_save(f.file, new_bytes, sizeof new_bytes - 1), TU_OK);
    fake_disk_remove();
    assert_string_equal(contents(f.path), new_bytes);
    assert_true(fake_disk_calls > 10);
    remove_folder(&f);
}

/* For a failure of every system call of every kind of save: the error contains the reason, the file has the old or
 * the new bytes, and no temporary file is left. */
static void a_failed_save_leaves_a_complete_file(void **state) {
    (void)state;
    static const int errors[] = {ENOSPC, EIO};
    folder f = new_folder();
    for (size_t way = 0; way < 2; way++)
        for (int error = 0; error < 2; error++)
            for (int forever = 0; forever < 2; forever++)
                for (unsigned nth = 1;; nth++) {
                    assert_int_equal(tu_file_save(f.file, old_bytes, sizeof old_bytes - 1), TU_OK);
                    (forever ? fake_disk_fail_from : fake_disk_fail_at)(nth, errors[error]);
                    tu_status status = save_functions[way](f.file);
                    bool reached = fake_disk_calls >= nth;
                    fake_disk_remove();
                    bool is_old = strcmp(contents(f.path), old_bytes) == 0;
                    bool is_new = strcmp(contents(f.path), new_bytes) == 0;
                    assert_true(is_old || is_new);
                    assert_int_equal(empty_folder(f.path), 1);
                    if (!reached) {
                        assert_int_equal(status, TU_OK);
                        assert_true(is_new);
                        assert_true(nth >= 8); /* open, write, flush, close, rename; the folder's three */
                        break;
                    }
                    assert_int_equal(status, TU_IO);
                    assert_non_null(strstr(tu_message(), f.file));
                    assert_non_null(strstr(tu_message(), strerror(errors[error])));
                }
    remove_folder(&f);
}

/* For power loss after every system call, and every state in which it may leave the disk. */
static void power_loss_leaves_the_old_or_the_new_file(void **state) {
    (void)state;
    for (size_t way = 0; way < 2; way++)
        for (int with_old = 0; with_old < 2; with_old++) {
            folder f = new_folder();
            if (with_old) assert_int_equal(tu_file_save(f.file, old_bytes, sizeof old_bytes - 1), TU_OK);
            fake_disk_record(f.path);
            assert_int_equal(save_functions[way](f.file), TU_OK);
            fake_disk_remove();
            int seen_old = 0, seen_new = 0;
            for (unsigned n = 0; n <= fake_disk_calls; n++)
                for (int choice = 0; choice < FAKE_DISK_CHOICES; choice++) {
                    fake_disk_crash(n, choice, f.after);
                    bool is_old = strcmp(contents(f.after), with_old ? old_bytes : "") == 0;
                    bool is_new = strcmp(contents(f.after), new_bytes) == 0;
                    if (!is_old && !is_new)
                        fail_msg("after call %u, choice %d: '%s'", n, choice, contents(f.after));
                    if (n == fake_disk_calls) assert_true(is_new); /* the save had returned */
                    seen_old += is_old;
                    seen_new += is_new;
                    empty_folder(f.after);
                }
            assert_true(seen_old > 0 && seen_new > FAKE_DISK_CHOICES);
            fake_disk_forget();
            remove_folder(&f);
        }
}

/* The simulation must detect a save without a flush. */
static void the_power_loss_simulation_detects_a_missing_flush(void **state) {
    (void)state;
    folder f = new_folder();
    char other_file[96];
    snprintf(other_file, sizeof other_file, "%s/other_file", f.path);
    assert_int_equal(tu_file_save(f.file, old_bytes, sizeof old_bytes - 1), TU_OK);
    fake_disk_record(f.path);
    int fd = tu__disk_in_use()->open(AT_FDCWD, other_file, O_WRONLY | O_CREAT | O_EXCL, 0666);
    assert_int_equal(tu__disk_in_use()->write(fd, new_bytes, sizeof new_bytes - 1), sizeof new_bytes - 1);
    tu__disk_in_use()->close(fd);
    assert_int_equal(tu__disk_in_use()->rename(AT_FDCWD, other_file, f.file), 0);
    fake_disk_remove();
    static const char *const expected[FAKE_DISK_CHOICES] = {
        old_bytes, "",
        old_bytes, "the new contents, ",
        old_bytes, "the new contents, 0000000000000000000",
        old_bytes, new_bytes};
    for (int choice = 0; choice < FAKE_DISK_CHOICES; choice++) {
        fake_disk_crash(fake_disk_calls, choice, f.after);
        assert_string_equal(contents(f.after), expected[choice]);
        empty_folder(f.after);
    }
    fake_disk_forget();
    remove_folder(&f);
}

static void an_abandoned_save_leaves_nothing(void **state) {
    (void)state;
    folder f = new_folder();
    tu__save save;
    assert_int_equal(tu_file_save(f.file, old_bytes, sizeof old_bytes - 1), TU_OK);
    assert_int_equal(tu__save_begin(&save, f.file), TU_OK);
    assert_int_equal(tu__save_append(&save, new_bytes, 5), TU_OK);
    tu__save_abandon(&save);
    tu__save_abandon(&save);
    assert_int_equal(tu__save_commit(&save), TU_IO);
    assert_string_equal(contents(f.path), old_bytes);
    assert_int_equal(empty_folder(f.path), 1);
    remove_folder(&f);
}

static void the_commit_reports_the_first_failure(void **state) {
    (void)state;
    folder f = new_folder();
    tu__save save;
    fake_disk_fail_at(2, EIO);
    assert_int_equal(tu__save_begin(&save, f.file), TU_OK);
    assert_int_equal(tu__save_append(&save, "a", 1), TU_IO);
    assert_int_equal(tu__save_append(&save, "b", 1), TU_IO);
    assert_int_equal(tu__save_commit(&save), TU_IO);
    assert_non_null(strstr(tu_message(), strerror(EIO)));
    fake_disk_remove();
    assert_int_equal(empty_folder(f.path), 0);
    remove_folder(&f);
}

static void a_file_marked_read_only_is_not_replaced(void **state) {
    (void)state;
    if (geteuid() == 0) skip(); /* root may write anything */
    folder f = new_folder();
    assert_int_equal(tu_file_save(f.file, old_bytes, sizeof old_bytes - 1), TU_OK);
    assert_int_equal(chmod(f.file, 0444), 0);
    assert_int_equal(tu_file_save(f.file, new_bytes, sizeof new_bytes - 1), TU_IO);
    assert_string_equal(contents(f.path), old_bytes);
    remove_folder(&f);
}

/* ---- Other processes that remove what killed ones have left ---- */

static const char *shared_folder;
static bool removes_new_files;
static unsigned opened_files;

/* Another process removes unfinished files between two calls of this one. Opening a file a second time locks it anew, so
 * that a thread may stand for a process. */
static void remove_as_another_process(void) {
    tu__disk_replace(NULL);
    tu__remove_unfinished(shared_folder, "");
}

static const tu__disk *watched_disk(void);

static int open_watched(int parent, const char *name, int flags, mode_t mode) {
    int fd = openat(parent, name, flags, mode);
    if (fd >= 0 && (flags & O_CREAT) && removes_new_files && !opened_files++) {
        remove_as_another_process();
        tu__disk_replace(watched_disk());
    }
    return fd;
}

static int rename_watched(int parent, const char *from, const char *to) {
    remove_as_another_process();
    tu__disk_replace(watched_disk());
    return renameat(parent, from, parent, to);
}

static const tu__disk *watched_disk(void) {
    static tu__disk disk;
    tu__disk_replace(NULL);
    disk = *tu__disk_in_use();
    disk.open = open_watched;
    disk.rename = rename_watched;
    return &disk;
}

/* A file that is being written is never taken for one that a killed process has left: neither before it is locked nor
 * once it is closed. */
static void a_save_is_not_removed_by_another_process(void **state) {
    (void)state;
    folder f = new_folder();
    shared_folder = f.path;
    for (int when = 0; when < 2; when++) {
        removes_new_files = when == 1;
        opened_files = 0;
        tu__disk_replace(watched_disk());
        tu_status status = tu_file_save(f.file, new_bytes, sizeof new_bytes - 1);
        tu__disk_replace(NULL);
        assert_int_equal(status, TU_OK);
        assert_string_equal(contents(f.path), new_bytes);
        assert_int_equal(empty_folder(f.path), 1);
    }
    remove_folder(&f);
}

static void a_save_removes_what_a_killed_process_has_left(void **state) {
    (void)state;
    folder f = new_folder();
    char left[128];
    snprintf(left, sizeof left, "%s/" TU__SAVE_UNFINISHED "1-1", f.path);
    FILE *file = fopen(left, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(tu_file_save(f.file, new_bytes, sizeof new_bytes - 1), TU_OK);
    assert_int_equal(empty_folder(f.path), 1);
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_file_contains_the_bytes),
        cmocka_unit_test(an_empty_file_can_be_saved),
        cmocka_unit_test(short_writes_are_continued),
        cmocka_unit_test(a_failed_save_leaves_a_complete_file),
        cmocka_unit_test(power_loss_leaves_the_old_or_the_new_file),
        cmocka_unit_test(the_power_loss_simulation_detects_a_missing_flush),
        cmocka_unit_test(an_abandoned_save_leaves_nothing),
        cmocka_unit_test(the_commit_reports_the_first_failure),
        cmocka_unit_test(a_file_marked_read_only_is_not_replaced),
        cmocka_unit_test(a_save_is_not_removed_by_another_process),
        cmocka_unit_test(a_save_removes_what_a_killed_process_has_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
