/* Option names of other programs, used only for suggestions in error messages. A name may have several rows, for
 * options of different commands; the first option that the command has is suggested. */
#include "cli/synonyms.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct synonym {
    const char *foreign, *option;
} synonyms[] = {
    {"lr", "rate"},
    {"learning-rate", "rate"},
    {"base-lr", "rate"},
    {"max-lr", "rate"},
    {"batch-size", "batch"},
    {"bs", "batch"},
    {"device", "devices"},
    {"gpu", "devices"},
    {"gpus", "devices"},
    {"cuda", "devices"},
    {"cpu", "devices"},
    {"accelerator", "devices"},
    {"output", "out"},
    {"output-dir", "out"},
    {"out-dir", "out"},
    {"save-dir", "out"},
    {"log-dir", "out"},
    {"logdir", "out"},
    {"deadline", "timeout"},
    {"workers", "threads"},
    {"num-workers", "threads"},
    {"jobs", "threads"},
    {"num-threads", "threads"},
    {"num-epochs", "epochs"},
    {"max-epochs", "epochs"},
    {"epoch", "epochs"},
    {"max-steps", "steps"},
    {"num-steps", "steps"},
    {"iterations", "steps"},
    {"iters", "steps"},
    {"dataset", "data"},
    {"data-dir", "data"},
    {"data-path", "data"},
    {"train-dir", "data"},
    {"val", "validation"},
    {"val-split", "validation"},
    {"validation-split", "validation"},
    {"optim", "optimizer"},
    {"opt", "optimizer"},
    {"wd", "weight-decay"},
    {"l2", "weight-decay"},
    {"scheduler", "schedule"},
    {"lr-scheduler", "schedule"},
    {"lr-schedule", "schedule"},
    {"gamma", "rate-factor"},
    {"lr-gamma", "rate-factor"},
    {"step-size", "rate-every"},
    {"lr-step-size", "rate-every"},
    {"min-lr", "rate-end"},
    {"warmup-steps", "warmup"},
    {"dtype", "precision"},
    {"amp", "precision"},
    {"mixed-precision", "precision"},
    {"fp16", "precision"},
    {"fp32", "precision"},
    {"f16", "precision"},
    {"f32", "precision"},
    {"tf32", "precision"},
    {"bf16", "precision"},
    {"half", "precision"},
    {"grad-clip", "clip"},
    {"gradient-clip", "clip"},
    {"clip-norm", "clip"},
    {"max-grad-norm", "clip"},
    {"accumulation-steps", "accumulate"},
    {"grad-accum", "accumulate"},
    {"gradient-accumulation", "accumulate"},
    {"gradient-accumulation-steps", "accumulate"},
    {"patience", "early-stop"},
    {"early-stopping", "early-stop"},
    {"ema", "average"},
    {"pretrained", "init"},
    {"weights", "init"},
    {"checkpoint", "resume"},
    {"img-size", "image-size"},
    {"imgsz", "image-size"},
    {"input-size", "image-size"},
    {"random-seed", "seed"},
    {"strategies", "strategy"},
    {"silent", "quiet"},
    {"top-k", "top"},
};

/* Ignores case; an underscore equals a dash. */
static bool equals_ignoring_case(const char *word, const char *synonym) {
    for (; *word && *synonym; word++, synonym++) {
        char letter = *word == '_' ? '-' : (char)tolower((unsigned char)*word);
        if (letter != *synonym) return false;
    }
    return !*word && !*synonym;
}

const char *cli_synonym(const char *word, const char *const *names, int count) {
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        if (!equals_ignoring_case(word, synonyms[i].foreign)) continue;
        for (int k = 0; k < count; k++)
            if (strcmp(names[k], synonyms[i].option) == 0) return names[k];
    }
    return NULL;
}
