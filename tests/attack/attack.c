/* Attacks the command with hostile files: variants of every format, and links, FIFOs, folders and sparse files in their place.
 *
 *     attack TUTTI PICTURES [--cases N] [--first N] [--seed N] [--verbose]
 *
 * Each case copies a folder of valid files, replaces one of them, runs a command on it and watches: it ends by itself, not
 * by a signal, within 10 seconds of processor time, with a status of the manual; it takes at most 64 MB more memory than with valid files,
 * plus 3 times the size of the file; it prints no control characters; and what lies beside the folder stays as it was.
 * A failed case is printed with the options that repeat it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dirent.h>

#include "attack/mutate.h"

/* A command may take 10 seconds of processor time. It may wait longer only because the machine is busy. */
enum { MAX_SECONDS = 10, MAX_WAITED = 120, MEBIBYTE = 1 << 20, MAX_OUTPUT = 1 << 20 };

static const char *tutti, *pictures;
static char root[] = "/tmp/tutti-attack-XXXXXX";
static uint64_t seed = 1;
static long cases = 500, first_case;
static bool is_verbose;

static void give_up(const char *what) {
    fprintf(stderr, "attack: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- Files ---- */

static const char *path_of(const char *template, ...) __attribute__((format(printf, 1, 2)));
static const char *path_of(const char *template, ...) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    size_t used = (size_t)snprintf(path, sizeof paths[0], "%s/", root);
    va_list arguments;
    va_start(arguments, template);
    vsnprintf(path + used, sizeof paths[0] - used, template, arguments);
    va_end(arguments);
    return path;
}

static file_bytes read_bytes(const char *path) {
    file_bytes file = {0};
    struct stat info;
    FILE *stream = fopen(path, "rb");
    if (!stream || fstat(fileno(stream), &info) != 0) give_up(path);
    file.data = malloc((size_t)info.st_size + 1);
    if (!file.data) give_up("memory");
    file.size = fread(file.data, 1, (size_t)info.st_size, stream);
    fclose(stream);
    return file;
}

static void write_bytes(const char *path, const file_bytes *file) {
    unlink(path);
    FILE *stream = fopen(path, "wb");
    if (!stream || fwrite(file->data, 1, file->size, stream) != file->size || fclose(stream) != 0)
        give_up(path);
}

/* Runs a command of the shell for the preparation, which must succeed. */
static void shell(const char *template, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *template, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, template);
    vsnprintf(line, sizeof line, template, arguments);
    va_end(arguments);
    errno = 0;
    if (system(line) != 0) give_up(line); // NOLINT(cert-env33-c): the words are ours
}

/* ---- Targets: a file and a command that reads it ---- */

typedef struct target {
    const char *file;
    format kind;
    const char *words[16];
    long usual_memory; /* of the command with valid files, in bytes */
} target;

static target targets[] = {
    {"run/config.json", PLAIN, {"eval", "run"}, 0},
    {"run/config.json", PLAIN, {"train", "run", "--resume", "-q"}, 0},
    {"run/metrics.jsonl", PLAIN, {"train", "run", "--resume", "-q"}, 0},
    {"run/graphs/evaluate.graph", GRAPH_FILE, {"eval", "run"}, 0},
    {"run/graphs/predict.graph", GRAPH_FILE, {"graph", "run/graphs/predict.graph"}, 0},
    {"run/graphs/step.graph", GRAPH_FILE, {"explain", "run/graphs/step.graph"}, 0},
    {"run/graphs/step.graph", GRAPH_FILE, {"train", "run", "--resume", "-q"}, 0},
    {"run/checkpoints/step-2.safetensors", SAFETENSORS, {"eval", "run", "--json"}, 0},
    {"run/checkpoints/step-2.safetensors", SAFETENSORS, {"train", "run", "--resume", "-q"}, 0},
    {"weights.safetensors",
     SAFETENSORS,
     {"train", "mlp", "-d", "images.npy,labels.npy", "--init", "weights.safetensors", "--steps", "1",
      "--threads", "1", "--batch", "32", "-q"},
     0},
    {"model.tutti", SAFETENSORS, {"verify", "model.tutti", "--devices", "cpu:0"}, 0},
    {"model.tutti", SAFETENSORS, {"run", "model.tutti", "--json"}, 0},
    {"images.npy", PLAIN, {"data", "info", "images.npy,labels.npy"}, 0},
    {"labels.npy", PLAIN, {"data", "info", "images.npy,labels.npy"}, 0},
    {"set.tutti", DATA_FILE, {"data", "info", "set.tutti", "--json"}, 0},
    {"set.tutti", DATA_FILE, {"eval", "run", "-d", "set.tutti"}, 0},
    {"pictures/a/1.png", PNG_FILE, {"data", "info", "pictures"}, 0},
    {"pictures/a/1.png", PNG_FILE, {"predict", "run", "pictures/a/1.png"}, 0},
    {"pictures/b/2.jpg", PLAIN, {"predict", "run", "pictures/b/2.jpg"}, 0},
    {"cache/mnist/train-images-idx3-ubyte", PLAIN, {"data", "get", "mnist", "--offline"}, 0},
    {"cache/cifar-10-binary.tar.gz", PLAIN, {"data", "get", "cifar10", "--offline"}, 0},
    {"run/lock", PLAIN, {"train", "run", "--resume", "-q"}, 0},
    {"lock.json", PLAIN, {"explain", "mlp", "--lock", "lock.json"}, 0},
    {"hosts", PLAIN, {"launch", "--hosts", "hosts", "--dry-run", "--", "train", "mlp", "-d", "generated"}, 0},
    {"licence",
     PLAIN,
     {"export", "run", "new.tutti", "--licence", "licence", "-d", "images.npy,labels.npy"},
     0},
    {"run/config.json", PLAIN, {"runs", ".", "--settings"}, 0},
    {"run/metrics.jsonl", PLAIN, {"runs", "run", "--json"}, 0},
    {"pictures/a/3.gif", PLAIN, {"predict", "run", "pictures/a/3.gif"}, 0},
    {"pictures/a/4.webp", PLAIN, {"predict", "run", "pictures/a/4.webp"}, 0},
    {"table.csv", PLAIN, {"data", "info", "table.csv"}, 0},
    {"table.csv", PLAIN, {"predict", "rows", "table.csv"}, 0},
    {"table.csv", PLAIN, {"eval", "rows", "-d", "table.csv"}, 0},
    {"rows/config.json", PLAIN, {"predict", "rows", "table.csv"}, 0},
    {"rows/checkpoints/step-2.safetensors", SAFETENSORS, {"predict", "rows", "table.csv"}, 0},
    {"tokens.tutti", DATA_FILE, {"data", "info", "tokens.tutti"}, 0},
    {"merges", PLAIN, {"data", "tokens", "text", "--tokenizer", "merges", "-o", "new.tutti"}, 0},
    {"text", PLAIN, {"data", "tokens", "text", "-o", "new.tutti"}, 0},
    {"space",
     PLAIN,
     {"tune", "mlp", "-d", "images.npy,labels.npy", "--space", "space", "--trials", "1", "--steps", "1",
      "--base", "8", "--threads", "1", "-q"},
     0},
    {"study/study.db", PLAIN, {"tune", "--status", "--study", "study"}, 0},
    {"study/study.db", PLAIN, {"tune", "--export", "json", "--study", "study"}, 0},
    {"study/study.db", PLAIN, {"tune", "--best", "--study", "study", "--json"}, 0},
};
enum { TARGETS = sizeof targets / sizeof *targets };

static void prepare(void) {
    if (!mkdtemp(root)) give_up("a folder in /tmp");
    shell(
        "mkdir -p %s/valid/pictures/a %s/valid/pictures/b %s/valid/cache/mnist %s/outside %s/home && echo victim >%s/outside/victim",
        root, root, root, root, root, root);
    setenv("HOME", path_of("home"), 1);
    setenv("TUTTI_CUDA", "off", 1);
    shell(
        "cd %s/valid && header() { text=\"{'descr': '|u1', 'fortran_order': False, 'shape': ($1), }\"; "
        "printf '\\223NUMPY\\1\\0'; printf \"\\\\$(printf %%o ${#text})\\\\0%%s\" \"$text\"; } && "
        "{ header '64, 8, 8, 3'; head -c 12288 /dev/zero | tr '\\0' x; } >images.npy && "
        "{ header '64,'; for i in 1 2 3 4 5 6 7 8; do printf '\\0\\1\\2\\3\\0\\1\\2\\3'; done; } >labels.npy",
        root);
    shell(
        "cd %s/valid && cp %s/colour8.png pictures/a/1.png && cp %s/colour8.png pictures/b/1.png && cp %s/*.jpg pictures/b/ 2>/dev/null; "
        "cp $(ls pictures/b/*.jpg | head -1) pictures/b/2.jpg && cp pictures/b/2.jpg pictures/a/2.jpg",
        root, pictures, pictures, pictures);
    shell("cd %s/valid && cp %s/../../fuzz/corpus/gif/plain pictures/a/3.gif && "
          "cp %s/../../fuzz/corpus/webp/lossless pictures/a/4.webp && cp %s/../words.bpe merges",
          root, pictures, pictures, pictures);
    shell(
        "cd %s/valid && export TUTTI_DATA=$PWD/cache && t='%s' && $t train mlp -d images.npy,labels.npy --steps 4 --checkpoint-every 2 "
        "--batch 32 --base 8 --threads 1 -q -o run >/dev/null && $t export run model.tutti >/dev/null && "
        "cp run/checkpoints/step-4.safetensors weights.safetensors && rm run/checkpoints/step-4.safetensors && cp cache/converted/*.tutti set.tutti && "
        "$t explain mlp --lock lock.json >/dev/null && echo 'node1 slots=2' >hosts && echo 'All rights reserved' >licence && "
        "printf '\\0\\0\\10\\3\\0\\0\\352\\140\\0\\0\\0\\34\\0\\0\\0\\34' >cache/mnist/train-images-idx3-ubyte && "
        "head -c 20000 /dev/zero | tar czf cache/cifar-10-binary.tar.gz -C run config.json",
        root, tutti);
    shell(
        "cd %s/valid && export TUTTI_DATA=$PWD/cache && t='%s' && "
        "awk 'BEGIN { print \"x,c,y\"; for (i = 0; i < 60; i++) print i %% 7 \",c\" i %% 3 \",\" i %% 11 }' >table.csv && "
        "$t train mlp -d table.csv --target y --steps 2 --base 4 --threads 1 -q -o rows >/dev/null && "
        "head -c 600 table.csv >text && $t data tokens text -o tokens.tutti >/dev/null && "
        "printf 'rate = log:1e-4:1\\noptimizer = sgd|adam\\nmomentum = 0:0.9 if optimizer=sgd\\n' >space && "
        "$t tune mlp -d images.npy,labels.npy --space space --trials 2 --steps 1 --base 8 --threads 1 -q --study study >/dev/null",
        root, tutti);
}

/* ---- Hostile files ---- */

/* Replaces the file by something else than a file with contents. */
static const char *replace_kind(const char *path, uint64_t *state) {
    switch (random_below(state, 8)) {
    case 0: return unlink(path), symlink(path_of("outside/victim"), path) ? "" : "link to a file";
    case 1: return unlink(path), symlink(path_of("outside"), path) ? "" : "link to a folder";
    case 2: return unlink(path), symlink(path_of("outside/created"), path) ? "" : "link to nothing";
    case 3: return unlink(path), mkfifo(path, 0600) ? "" : "FIFO";
    case 4: return unlink(path), mkdir(path, 0700) ? "" : "folder";
    case 5: return truncate(path, (off_t)1 << (20 + random_below(state, 21))) ? "" : "sparse file";
    case 6: return truncate(path, 0) ? "" : "empty file";
    default: return unlink(path), symlink("/dev/zero", path) ? "" : "link to /dev/zero";
    }
}

/* Replaces the folder that the file is in by a link to a copy outside. */
static const char *replace_folder(const char *file, const char *path) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    *slash = '\0';
    if (!strchr(file, '/') || strchr(file, '/') == strrchr(file, '/')) return NULL;
    shell("rm -rf %s && ln -s %s %s", folder, path_of("outside"), folder);
    return "folder is a link";
}

static const char *make_hostile(const target *t, uint64_t *state) {
    const char *path = path_of("case/%s", t->file), *done = NULL;
    uint64_t choice = random_below(state, 10);
    if (choice == 0) done = replace_folder(t->file, path);
    if (!done && choice <= 2) return replace_kind(path, state);
    if (done) return done;
    file_bytes file = read_bytes(path);
    done = mutate(&file, t->kind, state);
    write_bytes(path, &file);
    free(file.data);
    return done;
}

/* ---- Running ---- */

typedef struct outcome {
    int status;
    long memory;
    bool is_late, prints_control;
    char output[512]; /* its beginning */
} outcome;

static bool has_control(const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        bool is_c1 = bytes[i] == 0xC2 && i + 1 < size && bytes[i + 1] >= 0x80 && bytes[i + 1] < 0xA0;
        if ((bytes[i] < ' ' && bytes[i] != '\n' && bytes[i] != '\t') || bytes[i] == 0x7F || is_c1)
            return true;
    }
    return false;
}

static void execute(const target *t, int out) {
    char *words[20] = {(char *)tutti};
    for (int i = 0; t->words[i]; i++) words[i + 1] = (char *)t->words[i];
    int nothing = open("/dev/null", O_RDONLY);
    if (chdir(path_of("case")) != 0 || nothing < 0) _exit(99);
    setenv("TUTTI_DATA", path_of("case/cache"), 1);
    dup2(nothing, 0);
    dup2(out, 1);
    dup2(out, 2);
    setrlimit(RLIMIT_CPU, &(struct rlimit){MAX_SECONDS, MAX_SECONDS + 1});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){256 * MEBIBYTE, 256 * MEBIBYTE});
    execv(tutti, words);
    _exit(99);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Reads what the child prints until it ends; kills it after MAX_WAITED. Unless `cut_path` is NULL, truncates that file after
 * `cut_after` seconds, while the child may have mapped it. */
static void watch(pid_t child, int in, const char *cut_path, double cut_after, outcome *o) {
    static unsigned char output[MAX_OUTPUT];
    size_t used = 0;
    double start = now();
    for (;;) {
        struct pollfd polled = {.fd = in, .events = POLLIN};
        poll(&polled, 1, cut_path ? 1 : 100);
        if (cut_path && now() - start > cut_after) {
            if (truncate(cut_path, 100) != 0) errno = 0;
            cut_path = NULL;
        }
        ssize_t got = polled.revents ? read(in, output + used, MAX_OUTPUT - used) : -1;
        if (got == 0) break;
        if (got > 0) used += (size_t)got;
        if (used == MAX_OUTPUT || now() - start > MAX_WAITED) {
            o->is_late = true;
            kill(child, SIGKILL);
            break;
        }
    }
    o->prints_control = has_control(output, used);
    snprintf(o->output, sizeof o->output, "%.*s", (int)(used < 500 ? used : 500), (const char *)output);
}

static outcome run(const target *t, const char *cut_path, double cut_after) {
    outcome o = {0};
    int ends[2];
    struct rusage usage;
    if (pipe2(ends, O_CLOEXEC) != 0) give_up("a pipe");
    pid_t child = fork();
    if (child < 0) give_up("a process");
    if (child == 0) execute(t, ends[1]);
    close(ends[1]);
    watch(child, ends[0], cut_path, cut_after, &o);
    close(ends[0]);
    if (wait4(child, &o.status, 0, &usage) != child) give_up("waiting");
    o.memory = usage.ru_maxrss * 1024;
    return o;
}

/* ---- Judging ---- */

static int count_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    if (!folder) return -1;
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return count;
}

/* Restores what lies outside; returns false if it had changed. */
static bool check_outside(void) {
    file_bytes victim = read_bytes(path_of("outside/victim"));
    bool same = victim.size == 7 && memcmp(victim.data, "victim\n", 7) == 0 &&
                count_entries(path_of("outside")) == 1 && count_entries(root) == 4;
    free(victim.data);
    if (!same)
        shell("rm -rf %s/outside && mkdir %s/outside && echo victim >%s/outside/victim", root, root, root);
    return same;
}

static const char *judge(const target *t, const outcome *o, long file_bytes_on_disk) {
    static char text[160];
    long limit = t->usual_memory + 64L * MEBIBYTE + 3 * file_bytes_on_disk;
    bool ran_out = WIFSIGNALED(o->status) && WTERMSIG(o->status) == SIGXCPU;
    if (o->is_late || ran_out) return "did not end within 10 seconds";
    if (WIFSIGNALED(o->status))
        return snprintf(text, sizeof text, "was killed by signal %d", WTERMSIG(o->status)), text;
    if (WEXITSTATUS(o->status) > 4)
        return snprintf(text, sizeof text, "ended with status %d", WEXITSTATUS(o->status)), text;
    if (o->prints_control) return "printed control characters";
    if (o->memory > limit)
        return snprintf(text, sizeof text, "took %ld MB, expected at most %ld", o->memory / MEBIBYTE,
                        limit / MEBIBYTE),
               text;
    return NULL;
}

static long size_on_disk(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 ? (long)info.st_blocks * 512 : 0;
}

static void copy_valid(void) {
    shell("rm -rf %s/case && cp -r %s/valid %s/case", root, root, root);
}

static bool attack(long number) {
    uint64_t state = seed * 1000003 + (uint64_t)number;
    target *t = &targets[random_below(&state, TARGETS)];
    copy_valid();
    bool cuts = random_below(&state, 20) == 0;
    const char *done = cuts ? "truncated meanwhile" : make_hostile(t, &state);
    char path[512];
    snprintf(path, sizeof path, "%s", path_of("case/%s", t->file));
    long size = size_on_disk(path);
    outcome o = run(t, cuts ? path : NULL, 1e-3 * (double)(1 + random_below(&state, 40)));
    const char *fault = judge(t, &o, size);
    if (!check_outside() && !fault) fault = "changed what lies outside";
    if (is_verbose)
        printf("%ld %s %s: %s: status %d\n", number, t->words[0], t->file, done, WEXITSTATUS(o.status));
    if (!fault) return true;
    printf("FAILED  tutti %s ... with %s (%s) %s; repeat with --seed %llu --first %ld --cases 1\n%s\n",
           t->words[0], t->file, done, fault, (unsigned long long)seed, number, o.output);
    return false;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return fprintf(stderr,
                       "usage: attack TUTTI PICTURES [--cases N] [--first N] [--seed N] [--verbose]\n"),
               2;
    tutti = argv[1];
    pictures = argv[2];
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) is_verbose = true;
        if (i + 1 == argc) continue;
        if (strcmp(argv[i], "--cases") == 0) cases = strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--first") == 0) first_case = strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    prepare();
    for (size_t i = 0; i < TARGETS; i++) {
        copy_valid();
        outcome o = run(&targets[i], NULL, 0);
        targets[i].usual_memory = o.memory;
        if (is_verbose || (!WIFEXITED(o.status) && printf("FAILED  valid files: ")))
            printf("valid %s %s: status %d, %ld MB: %.120s\n", targets[i].words[0], targets[i].file,
                   WEXITSTATUS(o.status), o.memory / MEBIBYTE, o.output);
    }
    long failed = 0;
    for (long number = first_case; number < first_case + cases; number++) failed += !attack(number);
    shell("rm -rf %s", root);
    printf("%ld attacks, %ld failures\n", cases, failed);
    return failed > 0;
}
