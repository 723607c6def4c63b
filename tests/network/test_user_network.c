/* Networks in a user's C file: compiled, loaded and used by name like the built-in ones, with a clear message for
 * every possible failure. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

static char folder[] = "/tmp/tutti-test-XXXXXX";

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Writes a file with this text into the test's folder. */
static const char *write_file(const char *name, const char *text) {
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path_of(name);
}

static int set_up(void **state) {
    (void)state;
    unsetenv("CC");
    setenv("TUTTI_INCLUDE", SOURCE_FOLDER "/include", 1);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    static const char *const names[] = {"net.c", "net.so", "it's $HOME.c", "other.so"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(path_of(names[i]));
    return rmdir(folder); /* fails if anything else was left in it */
}

#define NET(fields)                                                                                          \
    "#include <tutti/tutti.h>\n"                                                                             \
    "static tu_value build(tu_value x, const tu_network_options *o) {\n"                                     \
    "    return tu_dense(tu_flatten(x), .units = o->classes, .name = \"only\");\n"                           \
    "}\n"                                                                                                    \
    "TU_NETWORK(" fields ");\n"
#define OWN                                                                                                  \
    ".defaults = TU_OPTIONS(tu_network_options, .height = 4, .width = 4, .channels = 1, .classes = 3, .base = 1)"

static void assert_load_fails(const char *path, tu_status status, const char *part) {
    const char *name = "something";
    assert_int_equal(tu_network_load(path, &name), status);
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not say \"%s\"", tu_message(), part);
    assert_null(name);
}

/* ---- Loading ---- */

static void the_example_network_trains(void **state) {
    (void)state;
    const char *name;
    if (tu_network_load(SOURCE_FOLDER "/examples/mynet.c", &name) != TU_OK) fail_msg("%s", tu_message());
    assert_string_equal(name, "mynet");
    tu_graph *g;
    tu_network_graph net = TU_SIZED(tu_network_graph);
    tu_program *program;
    tu_state *weights;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_network_build(g, name, &net, .batch = 4, .height = 8, .width = 8, .base = 4), TU_OK);
    assert_int_equal(tu_add_sgd(net.loss, 0.05, 0.9), TU_OK);
    assert_int_equal(tu_graph_verify(g), TU_OK);
    assert_int_equal(tu_compile(g, &program, .fetch = &net.loss, .fetch_count = 1, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &weights, .seed = 1), TU_OK);
    float images[4 * 8 * 8 * 3], first = 0, last = 0;
    int32_t labels[4] = {0, 1, 2, 3};
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    for (int i = 0; i < 20; i++) {
        tu_feed feeds[] = {{net.images, images}, {net.labels, labels}};
        assert_int_equal(tu_run(program, weights, 2, feeds, (void *[]){i == 0 ? &first : &last}), TU_OK);
    }
    assert_true(last < 0.5f * first);
    tu_state_free(weights);
    tu_program_free(program);
    tu_graph_free(g);
}

static void a_loaded_network_is_listed_with_its_defaults(void **state) {
    (void)state;
    const char *name, *summary;
    assert_int_equal(
        tu_network_load(
            write_file("net.c", NET(".name = \"tiny\", .summary = \"a test\", .build = build, " OWN)), &name),
        TU_OK);
    tu_network_options own = TU_SIZED(tu_network_options);
    assert_int_equal(tu_network_defaults("tiny", &own), TU_OK);
    assert_true(own.height == 4 && own.classes == 3);
    bool listed = false;
    for (size_t i = 0; i < tu_network_count() && tu_network(i, &name, &summary) == TU_OK; i++)
        listed = listed || strcmp(name, "tiny") == 0;
    assert_true(listed);
}

static void a_file_can_be_loaded_again_after_an_edit(void **state) {
    (void)state;
    tu_network_options own = TU_SIZED(tu_network_options);
    const char *fields = NET(".name = \"edited\", .summary = \"a test\", .build = build, " OWN);
    assert_int_equal(tu_network_load(write_file("net.c", fields), NULL), TU_OK);
    write_file(
        "net.c",
        NET(".name = \"edited\", .summary = \"a test\", .build = build, "
            ".defaults = TU_OPTIONS(tu_network_options, .height = 9, .width = 4, .channels = 1, .classes = 3, .base = 1)"));
    assert_int_equal(tu_network_load(path_of("net.c"), NULL), TU_OK);
    assert_int_equal(tu_network_defaults("edited", &own), TU_OK);
    assert_int_equal(own.height, 9);
}

static void file_names_are_not_interpreted_by_a_shell(void **state) {
    (void)state;
    const char *path =
        write_file("it's $HOME.c", NET(".name = \"quoted\", .summary = \"a test\", .build = build, " OWN));
    assert_int_equal(tu_network_load(path, NULL), TU_OK);
}

static void the_environment_variable_CC_selects_the_compiler(void **state) {
    (void)state;
    setenv("CC", "cc -DCLASSES=5", 1);
    const char *text = NET(
        ".name = \"options\", .summary = \"a test\", .build = build, "
        ".defaults = TU_OPTIONS(tu_network_options, .height = 4, .width = 4, .channels = 1, .classes = CLASSES, .base = 1)");
    tu_network_options own = TU_SIZED(tu_network_options);
    assert_int_equal(tu_network_load(write_file("net.c", text), NULL), TU_OK);
    assert_int_equal(tu_network_defaults("options", &own), TU_OK);
    assert_int_equal(own.classes, 5);
    unsetenv("CC");
}

static void a_shared_object_is_loaded_without_compiling(void **state) {
    (void)state;
    char command[1024];
    const char *name;
    write_file("net.c", NET(".name = \"object\", .summary = \"a test\", .build = build, " OWN));
    snprintf(command, sizeof command, "cc -shared -fPIC -I '%s/include' -o '%s/net.so' '%s/net.c'",
             SOURCE_FOLDER, folder, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(tu_network_load(path_of("net.so"), &name), TU_OK);
    assert_string_equal(name, "object");
}

/* ---- Errors ---- */

static void a_missing_file_fails(void **state) {
    (void)state;
    assert_load_fails(
        path_of("absent.c"), TU_NOT_FOUND,
        "absent.c': No such file or directory; check path and permissions, or use the name of a built-in network");
    assert_int_equal(mkdir(path_of("folder.c"), 0700), 0);
    assert_load_fails(path_of("folder.c"), TU_IO, "folder.c': Is a directory; check path");
    assert_int_equal(rmdir(path_of("folder.c")), 0);
    assert_load_fails("mynet.py", TU_INVALID,
                      "'mynet.py' is not a network file: expected a C file (.c) or a shared object");
}

static void a_compile_error_is_reported(void **state) {
    (void)state;
    assert_load_fails(write_file("net.c", "#include <tutti/tutti.h>\nint x = ;\n"), TU_INVALID,
                      "net.c' does not compile with cc:");
    assert_non_null(strstr(tu_message(), "net.c:2:"));
    assert_non_null(strstr(tu_message(), "error"));
}

static void a_missing_compiler_is_reported(void **state) {
    (void)state;
    setenv("CC", "no-such-compiler", 1);
    assert_load_fails(write_file("net.c", "int x;\n"), TU_UNSUPPORTED,
                      "cannot start the C compiler 'no-such-compiler'");
    assert_non_null(strstr(tu_message(), "apt install gcc"));
    unsetenv("CC");
}

static void missing_headers_are_reported(void **state) {
    (void)state;
    setenv("TUTTI_INCLUDE", folder, 1);
    assert_load_fails(write_file("net.c", "int x;\n"), TU_NOT_FOUND,
                      "expected the folder that contains tutti/tutti.h");
    setenv("TUTTI_INCLUDE", SOURCE_FOLDER "/include", 1);
}

static void a_missing_temporary_folder_is_reported(void **state) {
    (void)state;
    setenv("TMPDIR", "/nowhere", 1);
    assert_load_fails(write_file("net.c", "int x;\n"), TU_IO, "set TMPDIR to another folder");
    unsetenv("TMPDIR");
}

static void a_file_without_TU_NETWORK_fails(void **state) {
    (void)state;
    assert_load_fails(write_file("net.c", "int x;\n"), TU_INVALID,
                      "net.c' defines no network: expected one TU_NETWORK");
}

static void another_ABI_version_fails(void **state) {
    (void)state;
    assert_load_fails(write_file("net.c", NET(".name = \"old\", .summary = \"a test\", .build = build, " OWN
                                              ", .abi = 99")),
                      TU_UNSUPPORTED, "was compiled for another Tutti version (ABI 99");
    assert_load_fails(write_file("net.c", NET(".name = \"old\", .summary = \"a test\", .build = build, " OWN
                                              ", .struct_size = 8")),
                      TU_UNSUPPORTED, "recompile it");
}

static void an_incomplete_definition_fails(void **state) {
    (void)state;
    assert_load_fails(
        write_file("net.c", NET(".name = \"a b\", .summary = \"a test\", .build = build, " OWN)), TU_INVALID,
        ".name = \"a b\": expected 1 to 60 letters");
    assert_load_fails(write_file("net.c", NET(".summary = \"a test\", .build = build, " OWN)), TU_INVALID,
                      ".name = \"\"");
    assert_load_fails(write_file("net.c", NET(".name = \"n\", .build = build, " OWN)), TU_INVALID,
                      "has no .summary");
    assert_load_fails(write_file("net.c", NET(".name = \"n\", .summary = (const char *)build, " OWN)),
                      TU_INVALID, "has no .build");
    assert_load_fails(write_file("net.c", NET(".name = \"n\", .summary = \"a test\", .build = build")),
                      TU_INVALID, ".defaults.height of network 'n' is 0: expected at least 1");
    assert_load_fails(
        write_file("net.c", NET(".name = \"resnet20\", .summary = \"a test\", .build = build, " OWN)),
        TU_INVALID, "network 'resnet20': a built-in network has this name");
}

static void a_file_that_is_not_a_shared_object_fails(void **state) {
    (void)state;
    assert_load_fails(write_file("other.so", "text\n"), TU_INVALID, "other.so': ");
}

/* The error is reported for the network's result, not later in the loss. */
static void a_network_with_the_wrong_output_shape_fails(void **state) {
    (void)state;
    const char *text =
        "#include <tutti/tutti.h>\n"
        "static tu_value build(tu_value x, const tu_network_options *o) { (void)o; return tu_flatten(x); }\n"
        "TU_NETWORK(.name = \"broken\", .summary = \"a test\", .build = build, " OWN ");\n";
    tu_graph *g;
    tu_network_graph net = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_network_load(write_file("net.c", text), NULL), TU_OK);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_network_build(g, "broken", &net, .batch = 2), TU_INVALID);
    assert_non_null(strstr(
        tu_message(), "network 'broken' returns 'reshape' f32[2,16]: expected floating-point logits [2,3]"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_network_trains),
        cmocka_unit_test(a_loaded_network_is_listed_with_its_defaults),
        cmocka_unit_test(a_file_can_be_loaded_again_after_an_edit),
        cmocka_unit_test(file_names_are_not_interpreted_by_a_shell),
        cmocka_unit_test(the_environment_variable_CC_selects_the_compiler),
        cmocka_unit_test(a_shared_object_is_loaded_without_compiling),
        cmocka_unit_test(a_missing_file_fails),
        cmocka_unit_test(a_compile_error_is_reported),
        cmocka_unit_test(a_missing_compiler_is_reported),
        cmocka_unit_test(missing_headers_are_reported),
        cmocka_unit_test(a_missing_temporary_folder_is_reported),
        cmocka_unit_test(a_file_without_TU_NETWORK_fails),
        cmocka_unit_test(another_ABI_version_fails),
        cmocka_unit_test(an_incomplete_definition_fails),
        cmocka_unit_test(a_file_that_is_not_a_shared_object_fails),
        cmocka_unit_test(a_network_with_the_wrong_output_shape_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
