/* Help texts of options that several commands have. The same option has the same letter, argument and help in every
 * command; what follows in parentheses may tell how a command's default differs. tests/unit/test_option_tables.c
 * compares all tables, those of `tutti train` from tutti/settings.def among them. */
#ifndef CLI_COMMON_OPTIONS_H
#define CLI_COMMON_OPTIONS_H

#define CLI_HELP_BATCH "samples in a batch"
#define CLI_HELP_BF16_GRADIENTS "send gradients between devices as bf16"
#define CLI_HELP_CENTRAL "with --strategy central: the device with the variables"
#define CLI_HELP_CHECKPOINT "last, best, or the number of a step"
#define CLI_HELP_DATA "cifar10, mnist, generated, a folder of images, or IMAGES.npy,LABELS.npy"
#define CLI_HELP_DEVICES "devices to run on, as in gpu:0-3 or cpu:0/2"
#define CLI_HELP_GPU_MEMORY_LIMIT                                                                            \
    "memory to use on each GPU; the smaller of this and --memory-limit counts; 0: no limit"
#define CLI_HELP_GPU_MEMORY_RESERVE                                                                          \
    "memory to allocate on each GPU at the start and keep; 0: allocate when needed"
#define CLI_HELP_IGNORE_LABEL "leave out the images of an array that have this label"
#define CLI_HELP_INVARIANT                                                                                   \
    "compute every batch as K shards, for the same bits on any number of devices; 0: off"
#define CLI_HELP_JSON "print one JSON object"
#define CLI_HELP_LOCK "fail if the placement differs from the one in FILE; written if there is no such file"
#define CLI_HELP_MEMORY_LIMIT "memory to use on each device, as in 64M or 1.5G; 0: all it has"
#define CLI_HELP_OFFLINE "download nothing: fail if the data set is not in the cache"
#define CLI_HELP_PLACE                                                                                       \
    "devices of operations by name, as in 'conv1/*=gpu:1,local*=cpu:0'; the first match counts"
#define CLI_HELP_PRECISION "type of products and activations"
#define CLI_HELP_SEED "seed of random numbers"
#define CLI_HELP_SKIP_BAD "leave out damaged pictures of a folder"
#define CLI_HELP_STRATEGY "how devices share a batch"
#define CLI_HELP_STRICT_PLACEMENT                                                                            \
    "fail if a device does not support an operation placed there, instead of moving it"
#define CLI_HELP_THREADS "threads of a CPU device; 0: one per core"
#define CLI_HELP_TRACE                                                                                       \
    "trace some steps into FILE, for ui.perfetto.dev, and print a summary of where time went"
#define CLI_HELP_TRACE_STEPS "steps to trace"
#define CLI_HELP_TUNE_KERNELS "time the kernels that a library offers and keep the fastest"

#endif
