/* Opening files of folders that come from others: links, FIFOs, limits. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include <tutti/graph.h>

#include "base/map_file.h"
#include "base/open_file.h"
#include "base/save.h"

static char root[64]; /* has inside/ and outside/, each with sub/file */

static const char *at(const char *name) {
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void write_text(const char *name, const char *text) {
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static const char *text_of(const char *name) {
    static char text[64];
    FILE *file = fopen(at(name), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static int make_folders(void **state) {
    (void)state;
    strcpy(root, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < 2; i++) {
        static const char *const folders[] = {"inside", "outside", "inside/sub", "outside/sub"};
        mkdir(at(folders[i]), 0700);
        mkdir(at(folders[i + 2]), 0700);
    }
    write_text("inside/sub/file", "inside");
    write_text("outside/sub/file", "outside");
    assert_int_equal(symlink("../outside/sub/file", at("inside/link")), 0);
    assert_int_equal(symlink("../outside/sub", at("inside/folder_link")), 0);
    assert_int_equal(symlink("inside", at("alias")), 0);
    assert_int_equal(mkfifo(at("inside/fifo"), 0600), 0);
    return 0;
}

static int remove_folders(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void files_beneath_a_folder_are_read(void **state) {
    (void)state;
    tu__text text;
    assert_int_equal(tu__read_file(at("inside"), "sub/file", 6, &text), TU_OK);
    assert_string_equal(text.data, "inside");
    tu__text_free(&text);
    assert_int_equal(tu__read_file(at("alias"), "sub/file", 6, &text), TU_OK); /* the user named this link */
    tu__text_free(&text);
    assert_int_equal(tu__read_file(NULL, at("inside/link"), 100, &text), TU_OK);
    assert_string_equal(text.data, "outside");
    tu__text_free(&text);
}

static void links_beneath_a_folder_are_not_followed(void **state) {
    (void)state;
    tu__text text;
    tu__mapped_file file;
    static const char *const names[] = {"link", "folder_link/file"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(tu__read_file(at("inside"), names[i], 100, &text), TU_INVALID);
        assert_non_null(strstr(tu_message(), "symbolic link"));
        assert_int_equal(tu__map_file_in(at("inside"), names[i], &file), TU_INVALID);
        assert_false(tu__file_exists(at("inside"), names[i]));
        assert_int_equal(tu__open_to_write(at("inside"), names[i], O_WRONLY | O_CREAT), -1);
        assert_int_equal(errno, ELOOP);
    }
    assert_int_equal(tu__remove_file(at("inside"), "folder_link/file"), -1);
    assert_null(tu__list_folder(at("inside"), "folder_link"));
    tu__remove_files(at("inside"), "folder_link", "");
    assert_string_equal(text_of("outside/sub/file"), "outside");
}

static void names_do_not_leave_the_folder(void **state) {
    (void)state;
    tu__text text;
    static const char *const names[] = {
        "..",  "../outside/sub/file", "sub/../../outside/sub/file", "", "/etc/passwd", "sub//file", "sub/.",
        "sub/"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_not_equal(tu__read_file(at("inside"), names[i], 1 << 20, &text), TU_OK);
        assert_int_equal(tu__open_to_write(at("inside"), names[i], O_WRONLY), -1);
    }
}

static void a_fifo_fails_at_once(void **state) {
    (void)state;
    tu__text text;
    tu__mapped_file file;
    alarm(10);
    assert_int_equal(tu__read_file(at("inside"), "fifo", 100, &text), TU_INVALID);
    assert_non_null(strstr(tu_message(), "not a regular file"));
    assert_int_equal(tu__read_file(NULL, at("inside/fifo"), 100, &text), TU_INVALID);
    assert_int_equal(tu__map_file(at("inside/fifo"), &file), TU_INVALID);
    assert_int_equal(tu__read_file(NULL, "/dev/zero", 100, &text), TU_INVALID);
    assert_int_equal(tu__open_to_write(at("inside"), "fifo", O_WRONLY), -1);
    assert_int_equal(tu__open_to_write(at("inside"), "fifo", O_RDWR), -1);
    alarm(0);
}

/* Files that the user names may be pipes, /dev/null or a terminal, but nothing without an end. */
static void an_endless_device_is_refused(void **state) {
    (void)state;
    void *bytes;
    size_t size;
    assert_int_equal(tu_file_read("/dev/zero", (size_t)1 << 34, &bytes, &size), TU_INVALID);
    assert_string_equal(tu_message(), "cannot read '/dev/zero': it is a device: expected a file or a pipe");
    assert_int_equal(tu_file_read("/dev/null", 100, &bytes, &size), TU_OK);
    assert_int_equal(size, 0);
    tu_bytes_free(bytes);
}

static void a_file_longer_than_the_limit_is_not_read(void **state) {
    (void)state;
    tu__text text;
    write_text("inside/sparse", "");
    assert_int_equal(truncate(at("inside/sparse"), 1LL << 40), 0);
    assert_int_equal(tu__read_file(at("inside"), "sparse", 1 << 20, &text), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "1099511627776 bytes, expected at most 1048576"));
    tu__text_free(&text);
    assert_int_equal(truncate(at("inside/sparse"), 64 << 20), 0);
    assert_int_equal(tu__read_file(at("inside"), "sparse", 1 << 30, &text), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "it is sparse: parts of its 67108864 bytes are not stored"));
    unlink(at("inside/sparse"));
}

static void a_save_replaces_a_link_beneath_a_folder(void **state) {
    (void)state;
    assert_int_equal(symlink("../outside/sub/file", at("inside/target")), 0);
    assert_int_equal(tu__file_save_in(at("inside"), "target", "new", 3), TU_OK);
    assert_string_equal(text_of("inside/target"), "new");
    assert_string_equal(text_of("outside/sub/file"), "outside");
    assert_int_equal(tu__file_save_in(at("inside"), "folder_link/file", "new", 3), TU_IO);
    assert_string_equal(text_of("outside/sub/file"), "outside");
    unlink(at("inside/target"));
    /* A path that the user named: the file the link points to is replaced. */
    assert_int_equal(tu_file_save(at("inside/link"), "written", 7), TU_OK);
    assert_string_equal(text_of("outside/sub/file"), "written");
    write_text("outside/sub/file", "outside");
}

static void removing_a_folder_removes_only_the_link_to_one(void **state) {
    (void)state;
    tu__remove_folder(at("inside"), "folder_link");
    assert_int_equal(access(at("inside/folder_link"), F_OK), -1);
    assert_string_equal(text_of("outside/sub/file"), "outside");
    mkdir(at("inside/old"), 0700);
    write_text("inside/old/file", "");
    tu__remove_folder(at("inside"), "old");
    assert_int_equal(access(at("inside/old"), F_OK), -1);
    assert_int_equal(tu__make_folder(at("inside"), "old"), 0);
    assert_int_equal(tu__make_folder(at("inside"), "old"), -1);
    assert_int_equal(errno, EEXIST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_beneath_a_folder_are_read),
        cmocka_unit_test(links_beneath_a_folder_are_not_followed),
        cmocka_unit_test(names_do_not_leave_the_folder),
        cmocka_unit_test(a_fifo_fails_at_once),
        cmocka_unit_test(an_endless_device_is_refused),
        cmocka_unit_test(a_file_longer_than_the_limit_is_not_read),
        cmocka_unit_test(a_save_replaces_a_link_beneath_a_folder),
        cmocka_unit_test(removing_a_folder_removes_only_the_link_to_one),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
