/* Stacks of trainers: who has which place, and when a step runs. See stack.h.
 *
 * A round is one call of the stacked program. It begins when every trainer that has a place has arrived, each with the number
 * of steps until something other than a step is due for it; the round has the smallest. Trainers of a round read their
 * batches at the same time, and the last one to finish runs the program for all. If some trainers need the program for the
 * short last batch of an epoch while others do not, the short ones go first, and the others keep their variables: these are
 * saved before the call and restored after it, like those of a trainer whose batch could not be read.
 *
 * A trainer is in no round while it evaluates, saves or ends. So no program runs while a place changes hands. */
#include "train/stack.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "train/stack_programs.h"
#include "train/trainer.h"

typedef struct place {
    tu__trainer *trainer; /* NULL: free */
    bool arrived;         /* waits for a round */
    bool in_round;        /* the present round includes it */
    bool stale;           /* the trainer's state lacks the latest steps */
    bool wants_short;
    int64_t steps; /* that it wants to run at most */
    int64_t ran;   /* steps of its latest round */
    tu_batch *batches;
    const tu__stack_step *step; /* program of its latest round */
    tu_status status;           /* of its latest round */
    char message[1024];
} place;

struct tu__train_stack {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t count;    /* places */
    int64_t expected; /* trainers that must join before the first round */
    int64_t joined;   /* trainers that have, until then */
    bool built;
    place *places;
    const tu_dataset *dataset; /* of the first trainer */
    tu_dataset *kept;          /* the same if the trainer opened it: the stack frees it; else NULL */
    tu__stack_programs programs;
    /* The present round. */
    bool in_round;
    int64_t round_steps, reading; /* steps; trainers that still read batches */
};

/* ---- Making and freeing ---- */

tu_status tu__train_stack_new(int64_t places, int64_t first, tu__train_stack **stack) {
    *stack = NULL;
    if (places < 1 || first < 1 || first > places)
        return tu_fail(TU_INVALID, "a stack of %lld places that waits for %lld runs: expected 1 to %lld",
                       (long long)places, (long long)first, (long long)places);
    tu__train_stack *s = tu__alloc(sizeof *s, "a stack");
    if (!s) return TU_NO_MEMORY;
    s->places = tu__alloc_array((size_t)places, sizeof *s->places, "a stack");
    if (!s->places) {
        tu__free(s);
        return TU_NO_MEMORY;
    }
    s->count = places;
    s->expected = first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    *stack = s;
    return TU_OK;
}

void tu__train_stack_free(tu__train_stack *s) {
    if (!s) return;
    tu__stack_programs_close(&s->programs);
    for (int64_t i = 0; i < s->count; i++) tu__free(s->places[i].batches);
    tu_dataset_free(s->kept);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tu__free(s->places);
    tu__free(s);
}

int64_t tu__train_stack_places(const tu__train_stack *s) {
    return s->count;
}

/* ---- Rounds ---- */

/* Sets the status of a place's round from this thread's latest message. */
static void set_status(place *p, tu_status status) {
    p->status = status;
    snprintf(p->message, sizeof p->message, "%s", status == TU_OK ? "" : tu_message());
}

static tu_status allocate_batches(tu__train_stack *s) {
    for (int64_t i = 0; i < s->count; i++) {
        place *p = &s->places[i];
        p->batches =
            tu__alloc_array((size_t)s->programs.capacity, sizeof *p->batches, "the batches of a stack");
        if (!p->batches) return TU_NO_MEMORY;
    }
    return TU_OK;
}

/* Stacks the networks of the trainers that have joined. */
static tu_status build(tu__train_stack *s) {
    tu__trainer **trainers = tu__alloc_array((size_t)s->count, sizeof *trainers, "a stack");
    if (!trainers) return TU_NO_MEMORY;
    for (int64_t i = 0; i < s->count; i++) trainers[i] = s->places[i].trainer;
    tu_status status = tu__stack_programs_open(&s->programs, s->count, trainers, s->dataset);
    if (status == TU_OK) status = allocate_batches(s);
    tu__free(trainers);
    s->built = status == TU_OK;
    return status;
}

static bool everyone_arrived(const tu__train_stack *s) {
    int64_t present = 0, arrived = 0;
    for (int64_t i = 0; i < s->count; i++) {
        present += s->places[i].trainer != NULL;
        arrived += s->places[i].arrived;
    }
    return present > 0 && arrived == present;
}

/* Ends the wait of all that have arrived, with a failure. */
static void fail_everyone(tu__train_stack *s, tu_status status) {
    for (int64_t i = 0; i < s->count; i++)
        if (s->places[i].arrived) {
            set_status(&s->places[i], status);
            s->places[i].arrived = false;
        }
    pthread_cond_broadcast(&s->changed);
}

static bool is_short_wanted(const tu__train_stack *s) {
    for (int64_t i = 0; i < s->count; i++)
        if (s->places[i].arrived && s->places[i].wants_short) return true;
    return false;
}

/* Begins a round if everybody has arrived. Called by a trainer that has. */
static void begin_round(tu__train_stack *s) {
    if (s->in_round || s->joined < s->expected || !everyone_arrived(s)) return;
    tu_status status = s->built ? TU_OK : build(s);
    if (status != TU_OK) {
        tu__stack_programs_close(&s->programs);
        fail_everyone(s, status);
        return;
    }
    bool is_short = is_short_wanted(s);
    s->in_round = true;
    s->reading = 0;
    s->round_steps = s->programs.length;
    for (int64_t i = 0; i < s->count; i++) {
        place *p = &s->places[i];
        if (!p->arrived || p->wants_short != is_short) continue;
        p->in_round = true;
        p->step = is_short ? &s->programs.short_batch : &s->programs.full;
        s->reading++;
        if (p->steps < s->round_steps) s->round_steps = p->steps;
    }
    pthread_cond_broadcast(&s->changed);
}

/* Reads the batches of a place. */
static tu_status read_batches(tu__train_stack *s, int64_t index, tu_loader *loader) {
    place *p = &s->places[index];
    for (int64_t step = 0; step < s->round_steps; step++) {
        tu_batch batch = TU_SIZED(tu_batch);
        TU_TRY(tu_loader_next(loader, &batch));
        if (batch.count != p->step->samples)
            return tu_fail(TU_INTERNAL, "a batch of %lld samples instead of %lld", (long long)batch.count,
                           (long long)p->step->samples);
        tu__stack_programs_copy(&s->programs, p->step, step, index, &batch, &p->batches[step]);
    }
    return TU_OK;
}

/* True if the program computes the place but its trainer must not see that. */
static bool is_bystander(const place *p) {
    return p->trainer && (!p->in_round || p->status != TU_OK);
}

static tu_status save_bystanders(tu__train_stack *s) {
    for (int64_t i = 0; i < s->count; i++) {
        place *p = &s->places[i];
        if (!is_bystander(p) || !p->stale) continue;
        TU_TRY(tu__stack_programs_extract(&s->programs, i, p->trainer));
        p->stale = false;
    }
    return TU_OK;
}

static tu_status restore_bystanders(tu__train_stack *s) {
    for (int64_t i = 0; i < s->count; i++)
        if (is_bystander(&s->places[i]))
            TU_TRY(tu__stack_programs_insert(&s->programs, i, s->places[i].trainer));
    return TU_OK;
}

static tu_status run_program(tu__train_stack *s, const tu__stack_step *step) {
    TU_TRY(save_bystanders(s));
    TU_TRY(tu__stack_programs_run(&s->programs, step, s->round_steps));
    return restore_bystanders(s);
}

/* Runs the round's program, in the thread that was the last to read its batches, and ends the round. */
static void run_round(tu__train_stack *s) {
    const tu__stack_step *step = NULL;
    for (int64_t i = 0; i < s->count; i++)
        if (s->places[i].in_round && s->places[i].status == TU_OK) step = s->places[i].step;
    tu_status status = step ? run_program(s, step) : TU_OK;
    for (int64_t i = 0; i < s->count; i++) {
        place *p = &s->places[i];
        if (!p->in_round) continue;
        if (p->status == TU_OK) {
            p->stale = true;
            p->ran = s->round_steps;
            set_status(p, status);
        }
        p->in_round = p->arrived = false;
    }
    s->in_round = false;
    pthread_cond_broadcast(&s->changed);
}

tu_status tu__train_stack_run(tu__trainer *t, tu_loader *loader, int64_t steps, bool is_short,
                              int64_t *completed) {
    tu__train_stack *s = t->stack;
    place *p = &s->places[t->place];
    *completed = 0;
    pthread_mutex_lock(&s->lock);
    p->arrived = true;
    p->wants_short = is_short;
    p->steps = steps;
    p->ran = 0;
    p->status = TU_OK;
    begin_round(s);
    while (p->arrived && !p->in_round) {
        pthread_cond_wait(&s->changed, &s->lock);
        begin_round(s); /* another may have left, or have ended a round of short batches */
    }
    if (p->in_round) {
        pthread_mutex_unlock(&s->lock);
        tu_status status = read_batches(s, t->place, loader);
        pthread_mutex_lock(&s->lock);
        set_status(p, status);
        if (--s->reading == 0) run_round(s);
        while (p->in_round) pthread_cond_wait(&s->changed, &s->lock);
    }
    *completed = p->ran;
    tu_status status = p->status == TU_OK ? TU_OK : tu_fail(p->status, "%s", p->message);
    pthread_mutex_unlock(&s->lock);
    return status;
}

tu__step_values tu__train_stack_values(const tu__trainer *t, int64_t index) {
    const tu__train_stack *s = t->stack;
    const tu__stack_programs *programs = &s->programs;
    bool is_short = s->places[t->place].step == &programs->short_batch;
    int64_t at = index * s->count + t->place;
    bool finite = programs->finite[at];
    return (tu__step_values){.loss = programs->losses[at],
                             .correct = programs->corrects[at],
                             .rate = programs->rates[at],
                             .gradient_norm = programs->norms[at],
                             .finite = finite,
                             .failed = finite     ? NULL
                                       : is_short ? &t->stepper.short_batch
                                                  : &t->stepper.full};
}

const tu_batch *tu__train_stack_batch(const tu__trainer *t, int64_t index) {
    return &t->stack->places[t->place].batches[index];
}

/* ---- Joining and leaving ---- */

static tu_status check_run(const tu__trainer *t) {
    const tu__settings *settings = &t->config.settings;
    const char *what = settings->accumulate > 1                               ? "accumulates gradients"
                       : t->config.group                                      ? "uses several processes"
                       : tu_program_device_count(t->stepper.full.program) > 1 ? "uses several devices"
                       : settings->invariant > 0                              ? "splits batches into shards"
                       : !t->stepper.counts_correct ? "has another task than classification"
                       : t->options.trace           ? "is traced"
                                                    : NULL;
    return what ? tu_fail(TU_UNSUPPORTED, "the run cannot join a stack: it %s", what) : TU_OK;
}

/* Compares what the program of the stack has in common with a run that is in it already. */
static tu_status check_same(const tu__trainer *a, const tu__trainer *b) {
    const tu__settings *x = &a->config.settings, *y = &b->config.settings;
    const char *what = strcmp(a->config.dataset.digest, b->config.dataset.digest) != 0 ? "data set"
                       : x->batch != y->batch                                          ? "batch size"
                       : strcmp(x->devices, y->devices) != 0                           ? "device"
                       : strcmp(x->precision, y->precision) != 0                       ? "precision"
                       : x->threads != y->threads                                      ? "number of threads"
                                                                                       : NULL;
    return what ? tu_fail(TU_INVALID, "the run cannot join the stack: its %s differs from that of the others",
                          what)
                : TU_OK;
}

/* Before the stack is built, a run with another network must not join it: building would fail for all of them. */
static tu_status check_structure(const tu__trainer *a, const tu__trainer *b) {
    tu_graph *const full[] = {a->graphs.step, b->graphs.step}, *const last[] = {a->graphs.step_short,
                                                                                b->graphs.step_short};
    tu_stacked *pair;
    if (!last[0] != !last[1])
        return tu_fail(TU_INVALID,
                       "the run cannot join the stack: its epochs have another number of samples");
    TU_TRY(tu_stacked_new(2, full, &pair));
    tu_stacked_free(pair);
    if (!last[0]) return TU_OK;
    TU_TRY(tu_stacked_new(2, last, &pair));
    tu_stacked_free(pair);
    return TU_OK;
}

static tu__trainer *any_trainer(const tu__train_stack *s) {
    for (int64_t i = 0; i < s->count; i++)
        if (s->places[i].trainer) return s->places[i].trainer;
    return NULL;
}

static int64_t free_place(const tu__train_stack *s) {
    int64_t i = 0;
    while (i < s->count && s->places[i].trainer) i++;
    return i;
}

/* The tables of the first trainer's images outlive it. */
static void keep_dataset(tu__train_stack *s, tu__trainer *t) {
    if (s->dataset) return;
    s->dataset = t->dataset;
    s->kept = t->opened;
    t->opened = NULL;
}

static tu_status join(tu__train_stack *s, tu__trainer *t) {
    const tu__trainer *other = any_trainer(s);
    int64_t index = free_place(s);
    TU_TRY(check_run(t));
    if (other) TU_TRY(check_same(other, t));
    if (other && !s->built) TU_TRY(check_structure(other, t));
    if (index == s->count)
        return tu_fail(TU_NO_MEMORY, "all %lld places of the stack are taken", (long long)s->count);
    if (s->built) TU_TRY(tu__stack_programs_insert(&s->programs, index, t));
    keep_dataset(s, t);
    place *p = &s->places[index];
    *p = (place){.trainer = t, .batches = p->batches};
    t->stack = s;
    t->place = index;
    s->joined++;
    return TU_OK;
}

tu_status tu__train_stack_join(tu__train_stack *s, tu__trainer *t) {
    pthread_mutex_lock(&s->lock);
    while (s->in_round) pthread_cond_wait(&s->changed, &s->lock);
    tu_status status = join(s, t);
    pthread_mutex_unlock(&s->lock);
    return status;
}

void tu__train_stack_expect_fewer(tu__train_stack *s, int64_t count) {
    pthread_mutex_lock(&s->lock);
    s->expected -= count;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

tu_status tu__train_stack_sync(tu__trainer *t) {
    if (!t->stack) return TU_OK;
    place *p = &t->stack->places[t->place];
    if (!p->stale) return TU_OK;
    TU_TRY(tu__stack_programs_extract(&t->stack->programs, t->place, t));
    p->stale = false;
    return TU_OK;
}

void tu__train_stack_abandon(tu__trainer *t) {
    tu__train_stack *s = t->stack;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->places[t->place].trainer = NULL;
    t->stack = NULL;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

tu_status tu__train_stack_leave(tu__trainer *t) {
    tu_status status = tu__train_stack_sync(t);
    tu__train_stack_abandon(t);
    return status;
}

bool tu__train_stack_selects(const tu__trainer *t) {
    return t->stack && tu__dataset_in_memory(t->stack->dataset, TU_TRAIN);
}
