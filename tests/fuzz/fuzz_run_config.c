/* Loads arbitrary bytes as the config.json of a run. If that succeeds, saving it and loading it again must give the same
 * file. */
#include <stdint.h>

#include "fuzz/input_file.h"
#include "train/run_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

static char *read_config(size_t *size) {
    FILE *file = fopen(input_path("config.json").text, "rb");
    struct stat info;
    require(file && fstat(fileno(file), &info) == 0);
    char *text = malloc((size_t)info.st_size + 1);
    require(text && fread(text, 1, (size_t)info.st_size, file) == (size_t)info.st_size);
    fclose(file);
    *size = (size_t)info.st_size;
    return text;
}

static tu_status load(tu__arena *arena, tu__run_config *config) {
    *arena = (tu__arena){.purpose = "fuzzing"};
    return tu__run_config_load(input_folder(), arena, config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tu__arena arena, arena_again;
    tu__run_config config, again;
    tu__run_folder folder = {0};
    size_t length, length_again;
    write_input("config.json", data, size);
    tu_status status = load(&arena, &config);
    require(status == TU_OK || status == TU_CORRUPT || status == TU_UNSUPPORTED || status == TU_INVALID);
    if (status == TU_OK) {
        snprintf(folder.path, sizeof folder.path, "%s", input_folder());
        require(config.steps >= 1 && tu__training_images(&config) >= 1);
        require(tu__run_config_save(&folder, &config) == TU_OK);
        char *text = read_config(&length);
        require(load(&arena_again, &again) == TU_OK);
        require(tu__run_config_save(&folder, &again) == TU_OK);
        char *text_again = read_config(&length_again);
        require(length == length_again && memcmp(text, text_again, length) == 0);
        free(text);
        free(text_again);
        tu__arena_free(&arena_again);
    }
    tu__arena_free(&arena);
    return 0;
}
