/* Stacks of trainers: several training runs of one structure share the steps of one device (decision 45).
 *
 * Every run stays an ordinary trainer with its own thread, folder, loader, evaluations and checkpoints. Where it would run
 * a step alone, it brings its batch to the stack and waits; the last one to arrive runs one step, or many, for all of them.
 *
 *     tu__train_stack *stack;                                  // one for a device and a structure
 *     tu__train_stack_new(8, 8, &stack);                       // 8 places; the first step waits for 8 trainers
 *
 *     // in a thread per run
 *     status = tu__trainer_begin(&t, model, data, &options, NULL);
 *     if (status == TU_OK) status = tu__train_stack_join(stack, &t);
 *     if (status == TU_OK) status = tu__trainer_run(&t, &result);  // leaves the stack at its end, also if it fails
 *     else tu__train_stack_expect_fewer(stack, 1);             // it failed before it had a place: do not wait for it
 *     tu__trainer_end(&t);
 *
 *     tu__train_stack_free(stack);                             // after all trainers have left
 *
 * Trainers may join and leave at any time. The stack is built from the networks that have joined before the first step:
 * constants in which these differ (rate, decay, momentum, dropout, smoothing, …) may have any value in a trainer that joins
 * later; another value of any other constant, or another structure, makes tu__train_stack_join fail with TU_INVALID, and
 * the trainer is as before: it may train alone, or in another stack. The data set, batch size, device, precision and number
 * of threads must be equal. Seeds, epochs, evaluations and checkpoints may differ.
 *
 * Bits: on `ref` those of the run alone; elsewhere a run with the same members in the same places gives the same bits,
 * and one alone agrees within rounding. */
#ifndef TU__TRAIN_STACK_H
#define TU__TRAIN_STACK_H

#include <tutti/data.h>

#include "train/stepper.h"

struct tu__trainer;
typedef struct tu__train_stack tu__train_stack;

/* Makes a stack with `places` places. No step runs before `first` trainers have joined (1 to places). */
tu_status tu__train_stack_new(int64_t places, int64_t first, tu__train_stack **stack);
void tu__train_stack_free(tu__train_stack *stack);

/* Tells the stack that `count` trainers for which its first step waits will not join. Does nothing after that step. */
void tu__train_stack_expect_fewer(tu__train_stack *stack, int64_t count);

/* Gives a trainer a place, between tu__trainer_begin and tu__trainer_run. Fails with TU_INVALID if its network cannot be
 * stacked with the others, with TU_UNSUPPORTED if the run accumulates gradients or uses several devices or processes, and
 * with TU_NO_MEMORY if all places are taken, or a step of the stack does not fit. */
tu_status tu__train_stack_join(tu__train_stack *stack, struct tu__trainer *trainer);
/* Gives the place back, after copying its variables to the trainer's state. Does nothing without a place. Called by
 * tu__trainer_run at its end. */
tu_status tu__train_stack_leave(struct tu__trainer *trainer);

/* Gives the place back without its variables, keeping the message of an earlier failure. Does nothing without a place. */
void tu__train_stack_abandon(struct tu__trainer *trainer);

/* Returns the number of places. */
int64_t tu__train_stack_places(const tu__train_stack *stack);

/* ---- For the training loop ---- */

/* Copies the variables of the trainer's place to its state, unless that has them. Does nothing without a place. */
tu_status tu__train_stack_sync(struct tu__trainer *trainer);
/* True if steps select their images by index: loaders then need no images. */
bool tu__train_stack_selects(const struct tu__trainer *trainer);
/* Runs up to `steps` steps with the next batches of the loader, together with the other trainers; `is_short`: of the size of
 * the last batch of an epoch. Stores their number in `*completed`. */
tu_status tu__train_stack_run(struct tu__trainer *trainer, tu_loader *loader, int64_t steps, bool is_short,
                              int64_t *completed);
/* Return the results and the batch of step `index` of the latest call. */
tu__step_values tu__train_stack_values(const struct tu__trainer *trainer, int64_t index);
const tu_batch *tu__train_stack_batch(const struct tu__trainer *trainer, int64_t index);

#endif
