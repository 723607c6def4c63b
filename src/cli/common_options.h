/* Help texts of options that several commands have. An option has the same letter, argument and help in every
 * command; only text in parentheses at the end of the help, such as the default, may differ.
 * tests/unit/test_option_tables.c compares all tables, including the options of `tutti train` in
 * tutti/settings.def. */
#ifndef TU__CLI_COMMON_OPTIONS_H
#define TU__CLI_COMMON_OPTIONS_H

#define CLI_HELP_BASE "width of the network's first layer; 0: the network's default"
#define CLI_HELP_BATCH "batch size"
#define CLI_HELP_BF16_GRADIENTS "send gradients between devices as bf16"
#define CLI_HELP_CENTRAL "device that holds the variables under --strategy central"
#define CLI_HELP_CHECKPOINT "checkpoint to load: last, best or a step number"
#define CLI_HELP_DATA "data set: cifar10, mnist, generated, a folder of images, or IMAGES.npy,LABELS.npy"
#define CLI_HELP_DEVICES "devices to run on, as in gpu:0-3 or cpu:0/2"
#define CLI_HELP_GPU_MEMORY_LIMIT                                                                            \
    "memory limit of each GPU; the smaller of this and --memory-limit applies; 0: no limit"
#define CLI_HELP_GPU_MEMORY_RESERVE                                                                          \
    "memory to allocate on each GPU at the start and keep; 0: allocate as needed"
#define CLI_HELP_HEADER "whether the first line of a table has the names of its columns"
#define CLI_HELP_IGNORE_LABEL "leave out the images of an array with this label"
#define CLI_HELP_INVARIANT                                                                                   \
    "split every batch into K shards, for bit-identical results on any number of devices; 0: off"
#define CLI_HELP_JSON "print one JSON object"
#define CLI_HELP_LOCK "fail if the placement differs from FILE; write FILE if it does not exist"
#define CLI_HELP_MEMORY_LIMIT "memory limit of each device, as in 64M or 1.5G; 0: all of its memory"
#define CLI_HELP_OFFLINE "download nothing: fail if the data set is not in the cache"
#define CLI_HELP_PLACE                                                                                       \
    "devices of operations by name, as in 'conv1/*=gpu:1,local*=cpu:0'; the first match is used"
#define CLI_HELP_PRECISION "data type of matrix products, convolutions and activations"
#define CLI_HELP_SEED "random seed"
#define CLI_HELP_SKIP_BAD "skip damaged files of a folder of images instead of failing"
#define CLI_HELP_STRATEGY "how several devices share a batch"
#define CLI_HELP_STRICT_PLACEMENT                                                                            \
    "fail if a device does not support an operation placed on it, instead of moving the operation"
#define CLI_HELP_THREADS "threads of each CPU device; 0: one per core"
#define CLI_HELP_TOKENIZER "tokenizer of texts: bytes, gpt2 or a file with merges"
#define CLI_HELP_TRACE "write a trace of some steps to FILE, for ui.perfetto.dev, and print a summary"
#define CLI_HELP_TRACE_STEPS "number of steps to trace"
#define CLI_HELP_TUNE_KERNELS "time the kernels of GPU libraries once and use the fastest"

#endif
