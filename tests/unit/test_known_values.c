/* Compares Tutti's reference device with PyTorch: every case of tests/data/known_values.txt, forward and backward.
 *
 * build_KIND() builds the graph of a case from the inputs and attributes in the file and calls expect() for each
 * output. Then the loss sum(y * weights) is differentiated with respect to every input for which the file has a
 * gradient. Outputs and gradients must agree to a relative error of 1e-10, plus 1e-13 of the largest element (at
 * least 1e-13).
 *
 * The test also fails if the file is missing or empty, or contains an unknown kind of case, or an attribute or
 * tensor that is not used. */
#include "test.h"

#include <errno.h>
#include <math.h>

#include <tutti/tutti.h>

#include "unit/known_file.h"

typedef struct case_check {
    known_case *file;
    tu_graph *graph;
    tu_value value[KNOWN_TENSORS]; /* per tensor of the file: its value in the graph */
    char problem[400];             /* the first error; "": none */
} case_check;

static void report_problem(case_check *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void report_problem(case_check *k, const char *format, ...) {
    if (k->problem[0]) return;
    int used = snprintf(k->problem, sizeof k->problem, "%s %s: ", k->file->kind, k->file->variant);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(k->problem + used, sizeof k->problem - (size_t)used, format, arguments);
    va_end(arguments);
}

/* ---- Attributes and tensors of the case ---- */

static const char *attr_at(case_check *k, const char *name, int index) {
    for (int i = 0; i < k->file->attr_count; i++) {
        known_attr *attr = &k->file->attrs[i];
        if (strcmp(attr->name, name) != 0) continue;
        attr->used = true;
        if (index < attr->count) return attr->values[index];
    }
    report_problem(k, "no attribute '%s' with %d values", name, index + 1);
    return "0";
}

static const char *attr(case_check *k, const char *name) {
    return attr_at(k, name, 0);
}

static int64_t int_attr_at(case_check *k, const char *name, int index) {
    return strtoll(attr_at(k, name, index), NULL, 10);
}

static int64_t int_attr(case_check *k, const char *name) {
    return int_attr_at(k, name, 0);
}

static double double_attr(case_check *k, const char *name) {
    return strtod(attr(k, name), NULL);
}

#define PAIR(k, name)                                                                                        \
    { int_attr_at(k, name, 0), int_attr_at(k, name, 1) }
#define FOUR(k, name)                                                                                        \
    { int_attr_at(k, name, 0), int_attr_at(k, name, 1), int_attr_at(k, name, 2), int_attr_at(k, name, 3) }

static int find_tensor(case_check *k, const char *role, const char *name) {
    for (int i = 0; i < k->file->tensor_count; i++)
        if (strcmp(k->file->tensors[i].role, role) == 0 && strcmp(k->file->tensors[i].name, name) == 0)
            return i;
    return -1;
}

static tu_value input(case_check *k, const char *name) {
    int i = find_tensor(k, "input", name);
    if (i < 0) {
        report_problem(k, "no input '%s'", name);
        return (tu_value){k->graph, TU_NO_NODE, 0};
    }
    known_tensor *t = &k->file->tensors[i];
    if (!t->used) k->value[i] = tu_input(k->graph, name, t->type.dtype, t->type.shape);
    t->used = true;
    return k->value[i];
}

/* Declares that `value` must equal the tensor (role, name) of the file. */
static void expect(case_check *k, const char *role, const char *name, tu_value value) {
    int i = find_tensor(k, role, name);
    if (i < 0) {
        report_problem(k, "no %s '%s'", role, name);
        return;
    }
    known_tensor *t = &k->file->tensors[i];
    t->used = true;
    k->value[i] = value;
    tu_type type = tu_value_type(value);
    if (!tu_ok(value))
        report_problem(k, "%s", tu_graph_status(k->graph) == TU_OK ? "invalid value" : tu_message());
    else if (type.dtype != t->type.dtype || !tu_shape_equal(type.shape, t->type.shape))
        report_problem(k, "%s '%s' has a different dtype or shape", role, name);
}

/* ---- Building the graph of each kind of case ---- */

static tu_padding parse_padding(case_check *k) {
    const char *name = attr(k, "padding");
    if (strcmp(name, "same") == 0) return TU_SAME;
    if (strcmp(name, "valid") == 0) return TU_VALID;
    if (strcmp(name, "explicit") != 0) report_problem(k, "unknown padding '%s'", name);
    return TU_EXPLICIT;
}

static void build_conv2d(case_check *k) {
    tu_value y = tu_convolve(input(k, "x"), input(k, "filter"), .stride = PAIR(k, "stride"),
                             .dilation = PAIR(k, "dilation"), .padding = parse_padding(k),
                             .pad = FOUR(k, "pad"), .groups = int_attr(k, "groups"));
    expect(k, "output", "y", y);
}

static void build_convolve_transpose(case_check *k) {
    tu_value y = tu_convolve_transpose(input(k, "x"), input(k, "filter"), .stride = PAIR(k, "stride"),
                                       .dilation = PAIR(k, "dilation"), .padding = parse_padding(k),
                                       .pad = FOUR(k, "pad"), .groups = int_attr(k, "groups"),
                                       .size = PAIR(k, "size"));
    expect(k, "output", "y", y);
}

static void build_max_pool(case_check *k) {
    expect(k, "output", "y",
           tu_max_pool(input(k, "x"), .window = PAIR(k, "window"), .stride = PAIR(k, "stride"),
                       .padding = parse_padding(k), .pad = FOUR(k, "pad")));
}

static void build_avg_pool(case_check *k) {
    expect(k, "output", "y",
           tu_avg_pool(input(k, "x"), .window = PAIR(k, "window"), .stride = PAIR(k, "stride"),
                       .padding = parse_padding(k), .pad = FOUR(k, "pad"),
                       .count_padding = int_attr(k, "count_padding")));
}

static void build_resize(case_check *k) {
    tu_resize_method method = strcmp(attr(k, "method"), "nearest") == 0 ? TU_NEAREST : TU_BILINEAR;
    expect(k, "output", "y",
           tu_resize(input(k, "x"), int_attr_at(k, "size", 0), int_attr_at(k, "size", 1), method));
}

static void build_batch_norm(case_check *k) {
    tu_value x = input(k, "x"), gamma = input(k, "gamma"), beta = input(k, "beta");
    tu_value y = tu_batch_normalize(x, gamma, beta, .epsilon = double_attr(k, "epsilon"));
    expect(k, "output", "y", y);
    expect(k, "output", "mean", tu_output_of(y, 1));
    expect(k, "output", "variance", tu_output_of(y, 2));
}

static void build_layer_norm(case_check *k) {
    tu_value x = input(k, "x"), gamma = input(k, "gamma"), beta = input(k, "beta");
    tu_value y =
        tu_layer_normalize(x, gamma, beta, .epsilon = double_attr(k, "epsilon"), .axes = int_attr(k, "axes"));
    expect(k, "output", "y", y);
    expect(k, "output", "mean", tu_output_of(y, 1));
    expect(k, "output", "reciprocal_deviation", tu_output_of(y, 2));
}

static void build_lrn(case_check *k) {
    expect(k, "output", "y",
           tu_lrn(input(k, "x"), .radius = int_attr(k, "radius"), .bias = double_attr(k, "bias"),
                  .alpha = double_attr(k, "alpha"), .beta = double_attr(k, "beta")));
}

static void build_softmax(case_check *k) {
    expect(k, "output", "y", tu_softmax(input(k, "x"), (int)int_attr(k, "axis")));
}

static void build_log_softmax(case_check *k) {
    expect(k, "output", "y", tu_log_softmax(input(k, "x"), (int)int_attr(k, "axis")));
}

static void build_logsumexp(case_check *k) {
    tu_reduce_options o = {.struct_size = sizeof o, .keep = int_attr(k, "keep")};
    for (int i = 0; i < k->file->attr_count; i++)
        if (strcmp(k->file->attrs[i].name, "axes") == 0) o.axes.count = (uint32_t)k->file->attrs[i].count;
    for (uint32_t i = 0; i < o.axes.count; i++) o.axes.axis[i] = (int32_t)int_attr_at(k, "axes", (int)i);
    expect(k, "output", "y", tu_logsumexp_with(input(k, "x"), &o));
}

static void build_cross_entropy(case_check *k) {
    expect(
        k, "output", "y",
        tu_cross_entropy(input(k, "logits"), input(k, "labels"), .smoothing = double_attr(k, "smoothing")));
}

static void build_inverse(case_check *k) {
    expect(k, "output", "y", tu_inverse(input(k, "a")));
}

static void build_solve(case_check *k) {
    expect(k, "output", "y", tu_solve(input(k, "a"), input(k, "b")));
}

static void build_cholesky(case_check *k) {
    tu_value m = input(k, "m");
    expect(k, "output", "y", tu_cholesky(tu_add(tu_matmul(m, m, .transpose_b = true), input(k, "shift"))));
}

static void build_triangular_solve(case_check *k) {
    expect(k, "output", "y",
           tu_triangular_solve(input(k, "a"), input(k, "b"), .upper = int_attr(k, "upper")));
}

static void build_activation(case_check *k) {
    static const struct {
        const char *name;
        tu_value (*function)(tu_value x);
    } functions[] = {{"relu", tu_relu},          {"tanh", tu_tanh}, {"sigmoid", tu_sigmoid},
                     {"gelu", tu_gelu},          {"silu", tu_silu}, {"softplus", tu_softplus},
                     {"gelu_tanh", tu_gelu_tanh}};
    const char *name = attr(k, "function");
    tu_value x = input(k, "x"), y = {k->graph, TU_NO_NODE, 0};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(name, functions[i].name) == 0) y = functions[i].function(x);
    if (strcmp(name, "leaky_relu") == 0) y = tu_leaky_relu(x, 0.2);
    if (strcmp(name, "elu") == 0) y = tu_elu(x, 1.5);
    expect(k, "output", "y", y);
}

static void build_cumsum(case_check *k) {
    expect(k, "output", "y",
           tu_cumsum(input(k, "x"), (int)int_attr(k, "axis"), .exclusive = int_attr(k, "exclusive"),
                     .reverse = int_attr(k, "reverse")));
}

static void build_top_k(case_check *k) {
    tu_value y = tu_top_k(input(k, "x"), int_attr(k, "k"), (int)int_attr(k, "axis"));
    expect(k, "output", "y", y);
    expect(k, "output", "indices", tu_output_of(y, 1));
}

static tu_value dense(tu_value x, tu_value weights, tu_value bias) {
    return tu_add(tu_matmul(x, weights, .transpose_b = true), bias);
}

static void build_network_dense(case_check *k) {
    tu_value hidden = tu_relu(dense(input(k, "x"), input(k, "w1"), input(k, "b1")));
    tu_value logits = dense(hidden, input(k, "w2"), input(k, "b2"));
    expect(k, "output", "y", tu_mean(tu_cross_entropy(logits, input(k, "labels"))));
}

static void build_network_conv(case_check *k) {
    tu_value h = tu_relu(tu_add(tu_convolve(input(k, "x"), input(k, "f1")), input(k, "b1")));
    h = tu_convolve(tu_max_pool(h), input(k, "f2"), .stride = {2, 2});
    h = tu_gelu(tu_batch_normalize(h, input(k, "gamma"), input(k, "beta")));
    tu_value logits = dense(tu_global_avg_pool(h), input(k, "w"), input(k, "b"));
    expect(k, "output", "y", tu_mean(tu_cross_entropy(logits, input(k, "labels"))));
}

#define KIND(name)                                                                                           \
    { #name, build_##name }
static const struct kind {
    const char *name;
    void (*build)(case_check *k);
} kinds[] = {
    KIND(conv2d),           KIND(convolve_transpose), KIND(max_pool), KIND(avg_pool), KIND(resize),
    KIND(batch_norm),       KIND(layer_norm),         KIND(lrn),      KIND(softmax),  KIND(log_softmax),
    KIND(logsumexp),        KIND(cross_entropy),      KIND(inverse),  KIND(solve),    KIND(cholesky),
    KIND(triangular_solve), KIND(activation),         KIND(cumsum),   KIND(top_k),    KIND(network_dense),
    KIND(network_conv),
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

/* ---- Building, running, comparing ---- */

/* Adds the gradients of sum(y * weights) with respect to all inputs for which the file has a gradient. */
static void differentiate(case_check *k) {
    int y = find_tensor(k, "output", "y");
    if (y < 0 || k->problem[0]) return;
    int weights = find_tensor(k, "weights", "y");
    if (weights < 0) {
        report_problem(k, "no weights");
        return;
    }
    known_tensor *r = &k->file->tensors[weights];
    r->used = true;
    tu_value loss = tu_sum(tu_mul(k->value[y], tu_constant(k->graph, r->type.dtype, r->type.shape, r->data)));
    tu_value wrt[KNOWN_TENSORS], gradients[KNOWN_TENSORS];
    const char *names[KNOWN_TENSORS];
    size_t count = 0;
    for (int i = 0; i < k->file->tensor_count; i++) {
        if (strcmp(k->file->tensors[i].role, "gradient") != 0) continue;
        names[count] = k->file->tensors[i].name;
        wrt[count++] = input(k, k->file->tensors[i].name);
    }
    if (count == 0) report_problem(k, "no gradient");
    if (tu_gradients(loss, count, wrt, gradients) != TU_OK) report_problem(k, "%s", tu_message());
    for (size_t i = 0; i < count; i++) expect(k, "gradient", names[i], gradients[i]);
}

static void check_all_used(case_check *k) {
    for (int i = 0; i < k->file->attr_count; i++)
        if (!k->file->attrs[i].used) report_problem(k, "attribute '%s' is not used", k->file->attrs[i].name);
    for (int i = 0; i < k->file->tensor_count; i++)
        if (!k->file->tensors[i].used)
            report_problem(k, "%s '%s' is not used", k->file->tensors[i].role, k->file->tensors[i].name);
}

static void compare(case_check *k, const known_tensor *expected, const void *data) {
    int64_t count = tu_shape_elements(expected->type.shape);
    double largest = 1;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected->data[i]));
    for (int64_t i = 0; i < count; i++) {
        bool exact = expected->type.dtype == TU_I64;
        double expected_element = expected->data[i];
        double got = exact ? (double)((const int64_t *)data)[i] : ((const double *)data)[i];
        double tolerance = exact ? 0 : 1e-10 * fabs(expected_element) + 1e-13 * largest;
        if (fabs(got - expected_element) <= tolerance) continue;
        report_problem(k, "%s '%s' element %lld is %.17g, expected %.17g", expected->role, expected->name,
                       (long long)i, got, expected_element);
        return;
    }
}

/* Returns the elements of an input in its dtype; the caller frees them. */
static void *typed_elements(const known_tensor *t) {
    int64_t count = tu_shape_elements(t->type.shape);
    void *data = malloc((size_t)count * sizeof(double));
    if (!data || t->type.dtype == TU_F64)
        return data ? memcpy(data, t->data, (size_t)count * sizeof(double)) : NULL;
    for (int64_t i = 0; i < count; i++) ((int64_t *)data)[i] = (int64_t)t->data[i];
    return data;
}

static void run(case_check *k) {
    tu_feed feeds[KNOWN_TENSORS];
    tu_value fetch[KNOWN_TENSORS];
    void *fetched[KNOWN_TENSORS], *fed[KNOWN_TENSORS];
    const known_tensor *expected[KNOWN_TENSORS];
    size_t feed_count = 0, fetch_count = 0;
    for (int i = 0; i < k->file->tensor_count; i++) {
        const known_tensor *t = &k->file->tensors[i];
        if (strcmp(t->role, "input") == 0) {
            fed[feed_count] = typed_elements(t);
            feeds[feed_count] = (tu_feed){k->value[i], fed[feed_count]};
            feed_count++;
        } else if (strcmp(t->role, "weights") != 0) {
            fetch[fetch_count] = k->value[i];
            expected[fetch_count] = t;
            fetched[fetch_count++] = calloc(1, tu_type_bytes(t->type));
        }
    }
    tu_program *program = NULL;
    tu_state *state = NULL;
    if (tu_compile(k->graph, &program, .devices = "ref", .fetch = fetch, .fetch_count = fetch_count) !=
            TU_OK ||
        tu_state_new(k->graph, &state) != TU_OK ||
        tu_run(program, state, feed_count, feeds, fetched) != TU_OK)
        report_problem(k, "%s", tu_message());
    else
        for (size_t i = 0; i < fetch_count; i++) compare(k, expected[i], fetched[i]);
    tu_program_free(program);
    tu_state_free(state);
    for (size_t i = 0; i < feed_count; i++) free(fed[i]);
    for (size_t i = 0; i < fetch_count; i++) free(fetched[i]);
}

static void check_case(case_check *k, int *seen) {
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(k->file->kind, kinds[i].name) != 0) continue;
        seen[i]++;
        kinds[i].build(k);
        differentiate(k);
        check_all_used(k);
        if (!k->problem[0]) run(k);
        return;
    }
    report_problem(k, "unknown kind of case: expected one with a function build_KIND in test_known_values.c");
}

/* Checks all cases of a text. Returns the number of errors and copies the first to `first`. */
static int check_text(const char *text, bool print, int seen[KIND_COUNT], char first[400]) {
    known_reader reader = {.at = text};
    static known_case file;
    int problems = 0, cases = 0;
    first[0] = '\0';
    memset(seen, 0, KIND_COUNT * sizeof *seen);
    for (; known_next(&reader, &file); cases++) {
        case_check k = {.file = &file};
        assert_int_equal(tu_graph_new(&k.graph), TU_OK);
        check_case(&k, seen);
        tu_graph_free(k.graph);
        known_free(&file);
        if (!k.problem[0]) continue;
        if (print) print_error("%s\n", k.problem);
        if (problems++ == 0) snprintf(first, 400, "%s", k.problem);
    }
    if (!reader.problem[0] && cases == 0) snprintf(reader.problem, sizeof reader.problem, "no cases");
    if (!reader.problem[0]) return problems;
    if (print) print_error("%s\n", reader.problem);
    if (problems == 0) snprintf(first, 400, "%s", reader.problem);
    return problems + 1;
}

/* ---- The tests ---- */

/* Returns the text of a file in $TUTTI_TEST_DATA, or in ../data next to this file's folder. The caller frees it. */
static char *read_data(const char *name) {
    const char *folder = getenv("TUTTI_TEST_DATA"), *here = strrchr(__FILE__, '/');
    char path[1024];
    if (folder)
        snprintf(path, sizeof path, "%s/%s", folder, name);
    else
        snprintf(path, sizeof path, "%.*s/../data/%s", here ? (int)(here - __FILE__) : 1,
                 here ? __FILE__ : ".", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: %s", path, strerror(errno));
    size_t capacity = 1 << 20;
    char *text = malloc(capacity + 1);
    assert_non_null(text);
    size_t length = fread(text, 1, capacity, file);
    fclose(file);
    assert_true(length < capacity);
    text[length] = '\0';
    return text;
}

static void every_case_agrees_with_pytorch(void **state) {
    (void)state;
    char *text = read_data("known_values.txt"), first[400];
    int seen[KIND_COUNT], problems = check_text(text, true, seen, first);
    free(text);
    if (problems) fail_msg("%d problems; the first: %s", problems, first);
    for (int i = 0; i < KIND_COUNT; i++)
        if (!seen[i]) fail_msg("the file has no case of kind %s", kinds[i].name);
}

/* A valid case, for variants with one error each. */
#define HEAD "case activation relu\nattr function relu\n"
#define X "input x f64 3\n-1 2 3\n"
#define Y "output y f64 3\n0 2 3\n"
#define R "weights y f64 3\n1 10 100\n"
#define DX "gradient x f64 3\n0 10 100\n"

static void expect_error(const char *text, const char *part) {
    char first[400];
    int seen[KIND_COUNT];
    if (check_text(text, false, seen, first) == 0) fail_msg("accepted:\n%s", text);
    if (!strstr(first, part)) fail_msg("\"%s\" does not contain \"%s\"", first, part);
}

static void invalid_case_files_are_rejected(void **state) {
    (void)state;
    char first[400];
    int seen[KIND_COUNT];
    assert_int_equal(check_text(HEAD X Y R DX, false, seen, first), 0);
    expect_error("", "no cases");
    expect_error("# nothing\n\n", "no cases");
    expect_error("case unknown x\n", "unknown kind");
    expect_error(HEAD X Y R DX "case unknown x\n", "unknown kind");
    expect_error("hello\n", "a case was expected");
    expect_error(HEAD Y R DX, "no input 'x'");
    expect_error(HEAD X R DX, "no output 'y'");
    expect_error(HEAD X Y DX, "no weights");
    expect_error(HEAD X Y R, "no gradient");
    expect_error("case activation relu\n" X Y R DX, "no attribute 'function'");
    expect_error(HEAD "attr more 1\n" X Y R DX, "attribute 'more' is not used");
    expect_error(HEAD X Y R DX "output z f64 1\n0\n", "output 'z' is not used");
    expect_error(HEAD X "output y f64 3\n0 2 3.000000001\n" R DX, "element 2 is 3, expected 3.000000001");
    expect_error(HEAD X Y R "gradient x f64 3\n0 10 nan\n", "element 2 is 100");
    expect_error(HEAD X "output y f64 3x1\n0 2 3\n" R DX, "a different dtype or shape");
    expect_error(HEAD X Y R "gradient x f64 3\n0 10\n", "cannot read");
    expect_error(HEAD X Y R "gradient x f64 3\n0 10 1x\n", "cannot read");
    expect_error(HEAD X Y R "gradient x f32 3\n0 10 100\n", "cannot read");
    expect_error(HEAD X Y R "gradient x f64 3x0\n0 10 100\n", "cannot read");
    expect_error(HEAD X Y R "gradient x f64 3 0 10 100\n0", "cannot read");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_agrees_with_pytorch),
        cmocka_unit_test(invalid_case_files_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
