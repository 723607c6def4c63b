/* CSV files: cells, numbers, records, types of columns, categories, missing cells, and errors with line and column. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/csv.h"
#include "data/csv_dictionary.h"
#include "data/dataset.h"
#include "temp_folder.h"

/* ---- Cells and numbers ---- */

static void check_cell(const char *line, const char *expected, const char *rest) {
    tu__csv_cell cell;
    tu__csv_cell_at(line, line + strlen(line), ',', &cell);
    assert_null(cell.problem);
    assert_int_equal(cell.length, strlen(expected));
    assert_memory_equal(cell.text, expected, cell.length);
    assert_string_equal(cell.next, rest);
}

static void cells_end_at_delimiters_and_lines(void **state) {
    (void)state;
    check_cell("a,b", "a", ",b");
    check_cell("  a b \t,c", "a b", ",c");
    check_cell(",", "", ",");
    check_cell("a\r\nb", "a", "\nb");
    check_cell("last", "last", "");
}

static void quotes_protect_delimiters_lines_and_quotes(void **state) {
    (void)state;
    check_cell("\"a,b\",c", "a,b", ",c");
    check_cell("\"two\nlines\",c", "two\nlines", ",c");
    check_cell("\"6\"\" pipe\"\n", "6\" pipe", "\n");
    check_cell("\"\",x", "", ",x");
    check_cell(" \" kept \" ,x", " kept ", ",x");
    tu__csv_cell cell;
    const char *open = "\"never closed", *inside = "6\" pipe,", *after = "\"a\"b,";
    tu__csv_cell_at(open, open + strlen(open), ',', &cell);
    assert_non_null(cell.problem);
    tu__csv_cell_at(inside, inside + strlen(inside), ',', &cell);
    assert_non_null(cell.problem);
    tu__csv_cell_at(after, after + strlen(after), ',', &cell);
    assert_non_null(cell.problem);
}

/* Every number is read like strtod does, within the precision of f32. */
static void numbers_are_read_like_strtod(void **state) {
    (void)state;
    static const char *const texts[] = {"0",
                                        "-0.5",
                                        "+3",
                                        "1e3",
                                        "1E-3",
                                        "12345678901234567890",
                                        ".5",
                                        "5.",
                                        "1e-40",
                                        "3.4028e38",
                                        "-7.25",
                                        "0.1",
                                        "1e22",
                                        "123.456e-7",
                                        "0.000000000000000000001",
                                        "9007199254740993",
                                        "1.7976931348623157e308"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double number, expected = strtod(texts[i], NULL);
        assert_true(tu__csv_is_number(texts[i], strlen(texts[i]), &number));
        assert_true(fabs(number - expected) <= 1e-15 * fabs(expected) + 1e-320);
    }
    unsigned seed = 1;
    for (int i = 0; i < 20000; i++) {
        char text[64];
        double number, random = (rand_r(&seed) - 1e9) * pow(10, rand_r(&seed) % 60 - 30);
        snprintf(text, sizeof text, "%.*g", 1 + i % 17, random);
        double expected = strtod(text, NULL);
        assert_true(tu__csv_is_number(text, strlen(text), &number));
        assert_float_equal((float)number, (float)expected, fabsf((float)expected) * 1e-7f);
    }
}

static void other_texts_are_no_numbers(void **state) {
    (void)state;
    static const char *const texts[] = {"",    "-",   "e5",  "1e",  "1,5", "0x10",
                                        "inf", "nan", "1 2", "12a", "--1", "."};
    double number;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(tu__csv_is_number(texts[i], strlen(texts[i]), &number));
}

/* ---- Records ---- */

static void write_text(const folder *f, const char *text) {
    FILE *file = fopen(f->file, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Whatever the size of blocks, they have all records once. */
static void blocks_have_every_record_once(void **state) {
    (void)state;
    folder f = new_folder("a.csv");
    write_text(&f, "a,b\n1,\"x\ny\"\n\n2,\"\"\"\"\n3,plain\r\n\r\n4,\"q,\"\"\n\"\n5,end");
    for (size_t bytes = 1; bytes < 60; bytes++) {
        tu__csv csv;
        tu__csv_blocks blocks;
        char seen[16] = "";
        assert_int_equal(tu__csv_open(f.file, NULL, &csv), TU_OK);
        assert_int_equal(tu__csv_divide(&csv, bytes, 2, &blocks), TU_OK);
        assert_int_equal(blocks.rows, 5);
        for (size_t i = 0; i < blocks.count; i++) {
            const char *at = blocks.block[i].first, *end = csv.bytes + csv.size, *next;
            while (at && at < end && at <= blocks.block[i].end) {
                if (tu__csv_is_blank(at, end, &next)) {
                    at = next;
                    continue;
                }
                strncat(seen, at, 1);
                tu__csv_cell cell;
                tu__csv_cell_at(at, end, ',', &cell);
                tu__csv_cell_at(cell.next + 1, end, ',', &cell);
                assert_null(cell.problem);
                at = cell.next < end ? cell.next + 1 : end;
            }
        }
        assert_string_equal(seen, "12345");
        tu__free(blocks.block);
        tu__csv_close(&csv);
    }
    remove_folder(&f);
}

/* ---- Tables ---- */

static void begin_cache(char path[64]) {
    snprintf(path, 64, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    setenv("TUTTI_DATA", path, 1);
}

static void end_cache(const char *path) {
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): the path is ours
}

/* Opens a table of this text. */
static tu_status open_text(const char *text, const tu_dataset_options *o, tu_dataset **set) {
    char cache[64];
    folder f = new_folder("table.csv");
    begin_cache(cache);
    write_text(&f, text);
    tu_status status = tu_dataset_open_with(f.file, set, o);
    end_cache(cache); /* an open file stays mapped */
    remove_folder(&f);
    return status;
}

static const char small[] = "area,rooms,region,price\n"
                            "50.5,2,north,100\n"
                            "NA,3,south,200\n"
                            "70,?,\"west, upper\",300\n"
                            "80,5,,400\n"
                            "90,6,north,500\n";

/* Finds the sample whose target is `price`, in any split. */
static void read_row(const tu_dataset *set, float price, float numbers[2], int32_t *category) {
    for (int split = TU_TRAIN; split <= TU_TEST; split++)
        for (int64_t i = 0; i < set->info.count[split]; i++) {
            float target;
            assert_int_equal(
                tu_dataset_read_columns(set, (tu_split)split, i, (void *[]){numbers, category, &target}),
                TU_OK);
            if (target == price) return;
        }
    fail();
}

static void a_table_has_numbers_categories_and_a_target(void **state) {
    (void)state;
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .target = "price"};
    assert_int_equal(open_text(small, &o, &set), TU_OK);
    assert_int_equal(tu_dataset_columns(set), 3);
    assert_int_equal(set->info.count[TU_TRAIN], 4);
    assert_int_equal(set->info.count[TU_TEST], 1);
    tu_column column = TU_SIZED(tu_column);
    tu_field field = TU_SIZED(tu_field);
    assert_int_equal(tu_dataset_column(set, 0, &column), TU_OK);
    assert_string_equal(column.name, "numbers");
    assert_int_equal(column.fields, 2);
    assert_int_equal(tu_dataset_field(set, 0, 1, &field), TU_OK);
    assert_string_equal(field.name, "rooms");
    assert_int_equal(tu_dataset_field(set, 1, 0, &field), TU_OK);
    assert_int_equal(field.categories, 3);
    assert_string_equal(field.category_names[0], "north"); /* sorted */
    assert_string_equal(field.category_names[2], "west, upper");
    assert_int_equal(tu_dataset_column(set, 2, &column), TU_OK);
    assert_true(column.is_target);
    assert_int_equal(tu_dataset_column(set, 3, &column), TU_NOT_FOUND);
    float numbers[2];
    int32_t category;
    read_row(set, 100, numbers, &category);
    assert_float_equal(numbers[0], 50.5, 0);
    assert_float_equal(numbers[1], 2, 0);
    assert_int_equal(category, 0);
    read_row(set, 200, numbers, &category);
    assert_true(isnan(numbers[0]));
    read_row(set, 300, numbers, &category);
    assert_true(isnan(numbers[1]));
    assert_int_equal(category, 2);
    read_row(set, 400, numbers, &category);
    assert_int_equal(category, -1);
    assert_int_equal(tu_dataset_verify(set), TU_OK);
    tu_dataset_free(set);
}

/* Means and counts are those of the training rows. */
static void statistics_are_of_the_training_rows(void **state) {
    (void)state;
    char text[20000] = "x,y\n";
    for (int i = 0; i < 500; i++)
        i % 10 ? sprintf(text + strlen(text), "%d.5,%d\n", i, i) : sprintf(text + strlen(text), ",%d\n", i);
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .target = "y"};
    assert_int_equal(open_text(text, &o, &set), TU_OK);
    double sum = 0, squares = 0;
    int64_t count = 0, missing = 0;
    for (int64_t i = 0; i < set->info.count[TU_TRAIN]; i++) {
        float x;
        assert_int_equal(tu_dataset_read_columns(set, TU_TRAIN, i, (void *[]){&x, NULL}), TU_OK);
        if (isnan(x)) {
            missing++;
            continue;
        }
        sum += (double)x;
        squares += (double)x * (double)x;
        count++;
    }
    double mean = sum / (double)count;
    tu_field field = TU_SIZED(tu_field);
    assert_int_equal(tu_dataset_field(set, 0, 0, &field), TU_OK);
    assert_int_equal(field.missing, missing);
    assert_true(fabs(field.mean - mean) < 1e-9 * mean);
    assert_true(fabs(field.deviation - sqrt(squares / (double)count - mean * mean)) < 1e-6 * field.deviation);
    tu_dataset_free(set);
}

/* Categories are those of the training rows; one of the test rows alone is missing there. */
static void categories_are_of_the_training_rows(void **state) {
    (void)state;
    static char text[20000] = "name,kind,y\n";
    for (int i = 0; i < 500; i++) sprintf(text + strlen(text), "n%d,%s,%d\n", i, i % 2 ? "odd" : "even", i);
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .target = "y"};
    assert_int_equal(open_text(text, &o, &set), TU_OK);
    assert_int_equal(set->info.count[TU_TEST], 50);
    tu_field name = TU_SIZED(tu_field), kind = TU_SIZED(tu_field);
    assert_int_equal(tu_dataset_field(set, 0, 0, &name), TU_OK);
    assert_int_equal(tu_dataset_field(set, 0, 1, &kind), TU_OK);
    assert_int_equal(name.categories, 450);
    assert_int_equal(kind.categories, 2);
    for (int split = TU_TRAIN; split <= TU_TEST; split++)
        for (int64_t i = 0; i < set->info.count[split]; i++) {
            int32_t codes[2];
            char expected[16];
            float y;
            assert_int_equal(tu_dataset_read_columns(set, (tu_split)split, i, (void *[]){codes, &y}), TU_OK);
            assert_string_equal(kind.category_names[codes[1]], (int)y % 2 ? "odd" : "even");
            sprintf(expected, "n%d", (int)y);
            if (split == TU_TEST)
                assert_int_equal(codes[0], -1);
            else
                assert_string_equal(name.category_names[codes[0]], expected);
        }
    tu_dataset_free(set);
}

static void a_target_of_text_has_classes(void **state) {
    (void)state;
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .target = "kind", .drop = "id"};
    assert_int_equal(open_text("id,x,kind\n7,1,b\n8,2,a\n9,3,b\n", &o, &set), TU_OK);
    assert_int_equal(set->info.classes, 2);
    assert_string_equal(set->info.class_names[0], "a");
    assert_int_equal(tu_dataset_columns(set), 2);
    assert_int_equal(set->columns.column[0].field_count, 1);
    tu_dataset_free(set);
    const tu_dataset_options numbers = {.struct_size = sizeof numbers, .target = "x", .categories = "x"};
    assert_int_equal(open_text("id,x\n7,10\n8,9\n9,10\n", &numbers, &set), TU_OK);
    assert_string_equal(set->info.class_names[0], "9"); /* sorted as numbers */
    tu_dataset_free(set);
}

static void delimiters_are_found_in_the_header(void **state) {
    (void)state;
    static const char with_byte_order_mark[] = "\xEF\xBB\xBF"
                                               "a,b,c\r\n1,2,3\r\n4,5,7\r\n";
    static const char *const texts[] = {"a;b;c\n1;2;3\n4;5;7\n", "a\tb\tc\n1\t2\t3\n4\t5\t7\n",
                                        "a|b|c\n1|2|3\n4|5|7\n", with_byte_order_mark};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tu_dataset *set;
        const tu_dataset_options o = {.struct_size = sizeof o};
        assert_int_equal(open_text(texts[i], &o, &set), TU_OK);
        assert_int_equal(set->columns.column[0].field_count, 3);
        assert_string_equal(set->columns.column[0].fields[0].name, "a");
        tu_dataset_free(set);
    }
}

/* A first line with a number may be a row: it was lost silently. */
static void a_number_in_the_header_is_reported(void **state) {
    (void)state;
    static const char flowers[] = "5.1,3.5,setosa\n4.9,3,setosa\n6.2,2.8,virginica\n5.9,3.2,virginica\n";
    tu_dataset *set;
    tu_dataset_options o = {.struct_size = sizeof o};
    assert_int_equal(open_text(flowers, &o, &set), TU_OK);
    assert_non_null(strstr(set->info.notice,
                           "is read as the header, although '5.1' is a number; if the file has no "
                           "header, use --header no"));
    assert_int_equal(set->info.count[TU_TRAIN] + set->info.count[TU_TEST], 3);
    tu_dataset_free(set);
    o.header = "yes";
    assert_int_equal(open_text(flowers, &o, &set), TU_OK);
    assert_null(set->info.notice);
    tu_dataset_free(set);
}

static void a_file_without_a_header_has_numbered_columns(void **state) {
    (void)state;
    static const char *const texts[] = {
        "5.1,3.5,setosa\n4.9,3,setosa\n6.2,2.8,virginica\n5.9,3.2,virginica\n",
        ("\xEF\xBB\xBF"
         "5.1;3.5;\"setosa\"\r\n4.9;3;setosa\r\n6.2;2.8;virginica\r\n\r\n5.9;3.2;virginica"),
        "\n5.1,3.5,setosa\n4.9,3,setosa\n6.2,2.8,virginica\n5.9,3.2,virginica\n"};
    const tu_dataset_options o = {.struct_size = sizeof o, .header = "no", .target = "column 3"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tu_dataset *set;
        float sum = 0;
        assert_int_equal(open_text(texts[i], &o, &set), TU_OK);
        assert_null(set->info.notice);
        assert_string_equal(set->columns.column[0].fields[1].name, "column 2");
        assert_int_equal(set->info.classes, 2);
        assert_int_equal(set->info.count[TU_TRAIN] + set->info.count[TU_TEST], 4);
        for (int split = TU_TRAIN; split <= TU_TEST; split++)
            for (int64_t row = 0; row < set->info.count[split]; row++) {
                float numbers[2];
                int32_t class;
                assert_int_equal(
                    tu_dataset_read_columns(set, (tu_split)split, row, (void *[]){numbers, &class}), TU_OK);
                sum += numbers[0];
            }
        assert_float_equal(sum, 5.1 + 4.9 + 6.2 + 5.9, 1e-5);
        tu_dataset_free(set);
    }
}

/* Names such as 0, 1, 2, or years. */
static void a_header_of_numbers_can_be_confirmed(void **state) {
    (void)state;
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .header = "yes", .target = "2020"};
    assert_int_equal(open_text("2019,2020\n1,2\n3,4\n5,7\n", &o, &set), TU_OK);
    assert_string_equal(set->columns.column[0].fields[0].name, "2019");
    assert_int_equal(set->info.count[TU_TRAIN] + set->info.count[TU_TEST], 3);
    tu_dataset_free(set);
    const tu_dataset_options wrong = {.struct_size = sizeof wrong, .header = "maybe"};
    assert_int_equal(open_text("x,y\n1,2\n3,4\n", &wrong, &set), TU_INVALID);
    assert_string_equal(tu_message(), "--header 'maybe': expected yes or no");
}

/* Row numbers of R and pandas are left out, with a notice. */
static void row_names_are_left_out(void **state) {
    (void)state;
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o};
    assert_int_equal(open_text("\"\",\"x\"\n\"1\",5\n\"2\",6\n", &o, &set), TU_OK);
    assert_int_equal(set->columns.column[0].field_count, 1);
    assert_non_null(strstr(set->info.notice, "has no name and is left out"));
    tu_dataset_free(set);
}

/* … unless an option names the column: a target that is left out would be read from memory that nobody has written. */
static void a_column_without_a_name_can_be_the_target(void **state) {
    (void)state;
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .target = "column 1"};
    const tu_dataset_options categories = {.struct_size = sizeof categories, .categories = "column 1"};
    assert_int_equal(open_text(",x\n7,5\n8,6\n9,8\n", &o, &set), TU_OK);
    assert_int_equal(set->columns.count, 2);
    assert_string_equal(set->columns.column[1].fields[0].name, "column 1");
    assert_true(set->columns.column[1].fields[0].mean >= 7);
    assert_null(set->info.notice);
    tu_dataset_free(set);
    assert_int_equal(open_text(",x\n7,5\n8,6\n7,8\n8,9\n7,9\n8,9\n", &categories, &set), TU_OK);
    assert_int_equal(set->columns.column[1].fields[0].categories, 2);
    assert_null(set->info.notice);
    tu_dataset_free(set);
}

/* ---- Errors ---- */

/* The length of a dropped cell does not matter, but its end must be found. */
static void a_long_dropped_cell_with_text_after_its_quote_is_refused(void **state) {
    (void)state;
    tu_dataset *set;
    const tu_dataset_options o = {.struct_size = sizeof o, .drop = "c"};
    static char cell[TU__CSV_LONGEST + 2], text[TU__CSV_LONGEST + 64];
    memset(cell, 'a', sizeof cell - 1);
    snprintf(text, sizeof text, "x,c\n1,b\n2,\"%s\"z\n3,b\n", cell);
    assert_int_equal(open_text(text, &o, &set), TU_INVALID);
    assert_non_null(strstr(tu_message(), "line 3, column 'c': the cell has text after a closing quote"));
}

static void expect_failure(const char *text, const char *target, const char *message) {
    tu_dataset *set = NULL;
    const tu_dataset_options o = {.struct_size = sizeof o, .target = target};
    tu_status status = open_text(text, &o, &set);
    if (status == TU_OK || !strstr(tu_message(), message)) print_message("%s\n", tu_message());
    assert_int_equal(status, TU_INVALID);
    assert_non_null(strstr(tu_message(), message));
    assert_null(strchr(tu_message(), '\n'));
}

static void errors_name_line_and_column(void **state) {
    (void)state;
    char many[2000] = "x,y\n";
    size_t length = strlen(many);
    for (int i = 0; i < 30; i++) length += (size_t)snprintf(many + length, sizeof many - length, "1,2\n");
    snprintf(many + length, sizeof many - length, "1,12a4\n");
    expect_failure(many, NULL, "line 32, column 'y': '12a4' is not a number");
    expect_failure("x,y\n1,2\n3\n", NULL, "line 3: the row has 1 cells: expected 2");
    expect_failure("x,y\n1,2\n3,4,5\n", NULL, "line 3: the row has 3 cells: expected 2");
    expect_failure("x,y\n1,2\n\"\n\n3\",4\n5\n", NULL, "line 6: the row has 1 cells");
    expect_failure("x,y\n1,2\n3,\"4\n", NULL,
                   "line 3, column 'y': the cell begins with a quote that is never closed");
    expect_failure("x,y\n1,a\"b\n2,c\n", NULL, "line 2, column 'y': the cell has a quote inside");
    expect_failure("x,y\n1,a\n2,caf\xE9\n", NULL, "line 3, column 'y': byte 0xE9 is not UTF-8 text");
    expect_failure("x,caf\xE9\n1,2\n3,4\n", NULL, "line 1: byte 5 of the file is 0xE9, which is not UTF-8");
    expect_failure("\xFF\xFE"
                   "x\0,\0",
                   NULL, "is UTF-16");
    expect_failure("x,y\n1,1e60\n2,3\n", NULL, "line 2, column 'y': 1e+60 is too large for f32");
    expect_failure("x,x\n1,2\n3,4\n", NULL, "line 1: columns 1 and 2 are both called 'x'");
    expect_failure("1,2\n3,4\n5,6\n", NULL, "line 1: '1' is a number: expected a header");
    expect_failure("x,y\r1,2\r3,4\r", NULL, "line 1: the lines end with a carriage return alone");
    expect_failure("x;y\n1;1,5\n2;\n3;2,75\n", NULL,
                   "line 2, column 'y': the numbers have a comma: expected a decimal point");
    expect_failure("x,y\n", NULL, "has 0 rows below the header");
    expect_failure("x,y\n1,2\n", NULL, "has 1 rows below the header");
}

static void errors_of_the_target_are_found(void **state) {
    (void)state;
    expect_failure("x,y\n1,2\n3,\n4,5\n", "y", "line 3, column 'y': the target is missing");
    expect_failure("x,y\n1,a\n3,NA\n4,b\n", "y", "line 3, column 'y': the target is missing");
    expect_failure("x,y\n1,7\n3,7\n4,7\n", "y", "the target is 7 in all training rows");
    expect_failure("x,y\n1,a\n3,a\n4,a\n", "y", "the target is 'a' in all rows");
    expect_failure("x,price\n1,2\n3,4\n", "prise", "did you mean 'price'?");
    expect_failure("y\n1\n2\n3\n", "y", "has no column besides the target");
    expect_failure("x,y,z\n1,2,a\n3,4,b\n", "y,z", "of which 'z' contains text");
    expect_failure("x,y\n1,2\n3,4\n", "y,y", "names column 'y' twice");
}

static void too_many_columns_or_categories_are_refused(void **state) {
    (void)state;
    size_t columns = TU__MAX_FIELDS + 5, length = 0;
    char *text = malloc(2 * columns + 100);
    assert_non_null(text);
    for (size_t i = 0; i < columns; i++) text[length++] = 'a', text[length++] = ',';
    memcpy(text + length - 1, "\n1\n", 4);
    expect_failure(text, NULL, "line 1: the header has 65541 columns: expected at most 65536");
    free(text);
    text = malloc((size_t)TU__MAX_CATEGORIES * 16 + 1000);
    assert_non_null(text);
    length = (size_t)sprintf(text, "id,y\n");
    for (int i = 0; i < TU__MAX_CATEGORIES + 10; i++)
        length += (size_t)sprintf(text + length, "n%d,%d\n", i, i);
    expect_failure(text, "y", "column 'id': ");
    assert_non_null(strstr(tu_message(), "--drop id"));
    free(text);
}

/* ---- Dictionaries ---- */

static void dictionaries_find_what_was_added(void **state) {
    (void)state;
    tu__arena arena = {.purpose = "a test"};
    tu__dictionary d = {.arena = &arena};
    for (int i = 0; i < 5000; i++) {
        char text[16];
        size_t length = (size_t)sprintf(text, "t%d", i);
        uint64_t hash = tu__dictionary_hash(text, length);
        assert_int_equal(tu__dictionary_find(&d, text, length, hash), -1);
        assert_int_equal(tu__dictionary_add(&d, text, length, hash), i);
    }
    for (int i = 0; i < 5000; i++) {
        char text[16];
        size_t length = (size_t)sprintf(text, "t%d", i);
        assert_int_equal(tu__dictionary_find(&d, text, length, tu__dictionary_hash(text, length)), i);
    }
    tu__dictionary_free(&d);
    tu__arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_end_at_delimiters_and_lines),
        cmocka_unit_test(quotes_protect_delimiters_lines_and_quotes),
        cmocka_unit_test(numbers_are_read_like_strtod),
        cmocka_unit_test(other_texts_are_no_numbers),
        cmocka_unit_test(blocks_have_every_record_once),
        cmocka_unit_test(a_table_has_numbers_categories_and_a_target),
        cmocka_unit_test(statistics_are_of_the_training_rows),
        cmocka_unit_test(categories_are_of_the_training_rows),
        cmocka_unit_test(a_target_of_text_has_classes),
        cmocka_unit_test(delimiters_are_found_in_the_header),
        cmocka_unit_test(a_number_in_the_header_is_reported),
        cmocka_unit_test(a_file_without_a_header_has_numbered_columns),
        cmocka_unit_test(a_header_of_numbers_can_be_confirmed),
        cmocka_unit_test(row_names_are_left_out),
        cmocka_unit_test(a_column_without_a_name_can_be_the_target),
        cmocka_unit_test(a_long_dropped_cell_with_text_after_its_quote_is_refused),
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(errors_of_the_target_are_found),
        cmocka_unit_test(too_many_columns_or_categories_are_refused),
        cmocka_unit_test(dictionaries_find_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
