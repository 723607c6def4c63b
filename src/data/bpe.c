/* Byte pair encoding (Sennrich et al. 2016) on bytes, with GPT-2's files.
 *
 * A file has a merge per line, in the order of training: two tokens that together are a new one. Token 0 … 255 are the
 * bytes, token 256 + i is the result of merge i; so of two merges the earlier one has the lower token. A word is encoded by
 * merging, again and again, the pair with the lowest result. Files write bytes as printable characters: those that are
 * printable in Latin-1 as themselves, the others as U+0100 and up, in order; the tokens of the bytes are in this order too.
 *
 * Words are short, so the lowest pair is found by looking at all of them; words above SHORT bytes use a heap. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "data/tokenizer.h"

enum { BYTES = 256, SHORT = 48, MAX_MERGES = 1 << 20, NONE = -1 };

/* Open addressing: keys are pairs of tokens, or 0 for an empty entry. */
typedef struct pair_entry {
    uint64_t key; /* 1 + (left << 32 | right) */
    int32_t result;
} pair_entry;

struct tu__merges {
    int32_t byte_token[BYTES];
    uint32_t mask; /* entries - 1 */
    pair_entry *entries;
};

/* ---- Pairs ---- */

static uint64_t key_of(int32_t left, int32_t right) {
    return 1 + ((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

static pair_entry *find_entry(const struct tu__merges *m, uint64_t key) {
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(hash >> 40) & m->mask;
    while (m->entries[i].key && m->entries[i].key != key) i = (i + 1) & m->mask;
    return &m->entries[i];
}

/* Returns the token that a pair becomes; NONE if it is not merged. */
static int32_t merge_of(const struct tu__merges *m, int32_t left, int32_t right) {
    const pair_entry *e = find_entry(m, key_of(left, right));
    return e->key ? e->result : NONE;
}

/* ---- Encoding ---- */

static size_t encode_short(const struct tu__merges *m, const unsigned char *word, size_t length,
                           int32_t *tokens) {
    int32_t merged[SHORT]; /* merged[i]: the result of tokens i and i + 1 */
    for (size_t i = 0; i < length; i++) tokens[i] = m->byte_token[word[i]];
    for (size_t i = 0; i + 1 < length; i++) merged[i] = merge_of(m, tokens[i], tokens[i + 1]);
    for (;;) {
        size_t best = length;
        for (size_t i = 0; i + 1 < length; i++)
            if (merged[i] != NONE && (best == length || merged[i] < merged[best])) best = i;
        if (best == length) return length;
        tokens[best] = merged[best];
        length--;
        memmove(tokens + best + 1, tokens + best + 2, (length - best - 1) * sizeof *tokens);
        memmove(merged + best, merged + best + 1, (length - best - 1) * sizeof *merged);
        if (best > 0) merged[best - 1] = merge_of(m, tokens[best - 1], tokens[best]);
        if (best + 1 < length) merged[best] = merge_of(m, tokens[best], tokens[best + 1]);
    }
}

/* A possible merge of the symbol at `position` and the next one. It is outdated if they would not give `result` now. */
typedef struct candidate {
    int32_t result;
    uint32_t position;
} candidate;

typedef struct long_word {
    const struct tu__merges *merges;
    int32_t *symbol;           /* per byte; NONE: merged into an earlier one */
    uint32_t *next, *previous; /* per byte; `length` and UINT32_MAX at the ends */
    candidate *heap;
    size_t heap_count;
    uint32_t length;
} long_word;

static bool precedes(candidate a, candidate b) {
    return a.result != b.result ? a.result < b.result : a.position < b.position;
}

static void push(long_word *w, uint32_t position) {
    uint32_t next = w->next[position];
    if (next >= w->length) return;
    candidate c = {merge_of(w->merges, w->symbol[position], w->symbol[next]), position};
    if (c.result == NONE) return;
    size_t i = w->heap_count++;
    for (; i > 0 && precedes(c, w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate pop(long_word *w) {
    candidate top = w->heap[0], last = w->heap[--w->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->heap_count) {
        if (child + 1 < w->heap_count && precedes(w->heap[child + 1], w->heap[child])) child++;
        if (!precedes(w->heap[child], last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static void merge_all(long_word *w) {
    while (w->heap_count) {
        candidate c = pop(w);
        uint32_t next = w->next[c.position];
        if (w->symbol[c.position] == NONE || next >= w->length ||
            merge_of(w->merges, w->symbol[c.position], w->symbol[next]) != c.result)
            continue;
        w->symbol[c.position] = c.result;
        w->symbol[next] = NONE;
        w->next[c.position] = w->next[next];
        if (w->next[next] < w->length) w->previous[w->next[next]] = c.position;
        if (w->previous[c.position] != UINT32_MAX) push(w, w->previous[c.position]);
        push(w, c.position);
    }
}

static tu_status encode_long(const struct tu__merges *m, const unsigned char *word, size_t length,
                             int32_t *tokens, size_t *count) {
    if (length > UINT32_MAX / 4)
        return tu_fail(TU_INVALID, "a word of %zu bytes: expected less than 2^30", length);
    long_word w = {.merges = m, .length = (uint32_t)length};
    w.symbol = tu__alloc_array(length, sizeof *w.symbol, "a word");
    w.next = tu__alloc_array(length, sizeof *w.next, "a word");
    w.previous = tu__alloc_array(length, sizeof *w.previous, "a word");
    w.heap = tu__alloc_array(3 * length, sizeof *w.heap, "a word"); /* each merge adds at most two */
    tu_status status = w.symbol && w.next && w.previous && w.heap ? TU_OK : TU_NO_MEMORY;
    if (status == TU_OK) {
        for (uint32_t i = 0; i < w.length; i++) {
            w.symbol[i] = m->byte_token[word[i]];
            w.next[i] = i + 1;
            w.previous[i] = i - 1;
        }
        for (uint32_t i = 0; i < w.length; i++) push(&w, i);
        merge_all(&w);
        *count = 0;
        for (uint32_t i = 0; i < w.length; i = w.next[i]) tokens[(*count)++] = w.symbol[i];
    }
    tu__free(w.symbol);
    tu__free(w.next);
    tu__free(w.previous);
    tu__free(w.heap);
    return status;
}

tu_status tu__merges_encode(const struct tu__merges *merges, const unsigned char *word, size_t length,
                            int32_t *tokens, size_t *count) {
    if (length > SHORT) return encode_long(merges, word, length, tokens, count);
    *count = encode_short(merges, word, length, tokens);
    return TU_OK;
}

/* ---- Reading a file ---- */

static bool is_printable(unsigned c) {
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* Sets the tokens of the bytes, and the byte of each character below 0x200 (-1: none). */
static void number_bytes(int32_t token_of[BYTES], int byte_of[2 * BYTES]) {
    int32_t token = 0, others = 0;
    for (int c = 0; c < 2 * BYTES; c++) byte_of[c] = -1;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned c = 0; c < BYTES; c++) {
            if (is_printable(c) != (pass == 0)) continue;
            token_of[c] = token++;
            byte_of[pass == 0 ? c : BYTES + (unsigned)others++] = (int)c;
        }
}

typedef struct reader {
    const char *path;
    tu_tokenizer *t;
    struct tu__merges *m;
    int byte_of[2 * BYTES];
    uint32_t merge_count, lookup_mask;
    int32_t *lookup; /* hash table of pieces: token + 1; 0: empty */
    int64_t line;
} reader;

static uint32_t hash_bytes(const char *bytes, size_t length) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)bytes[i]) * 16777619u;
    return h ^ h >> 15;
}

/* Returns the entry of a piece: its token + 1, or 0 if it is new. */
static int32_t *lookup_piece(const reader *r, const char *bytes, size_t length) {
    uint32_t i = hash_bytes(bytes, length) & r->lookup_mask;
    for (; r->lookup[i]; i = (i + 1) & r->lookup_mask) {
        int32_t token = r->lookup[i] - 1;
        size_t size = r->t->starts[token + 1] - r->t->starts[token];
        if (size == length && memcmp(r->t->pieces + r->t->starts[token], bytes, length) == 0) break;
    }
    return &r->lookup[i];
}

static void add_piece(reader *r, int32_t token, const char *bytes, size_t length) {
    uint32_t start = r->t->starts[token];
    memcpy(r->t->pieces + start, bytes, length);
    r->t->starts[token + 1] = start + (uint32_t)length;
    *lookup_piece(r, bytes, length) = token + 1;
}

/* Converts the characters of a file to bytes, in `bytes`. Returns the number of bytes; 0: a character stands for none. */
static size_t decode_characters(const reader *r, const char *text, size_t length, char *bytes) {
    size_t count = 0;
    for (size_t i = 0; i < length;) {
        bool valid;
        size_t size = tu__utf8_length(text + i, length - i, &valid);
        unsigned c = (unsigned char)text[i];
        if (size == 2) c = (c & 0x1f) << 6 | ((unsigned char)text[i + 1] & 0x3f);
        if (!valid || size > 2 || c >= 2 * BYTES || r->byte_of[c] < 0) return 0;
        bytes[count++] = (char)r->byte_of[c];
        i += size;
    }
    return count;
}

static tu_status fail_line(const reader *r, const char *line, size_t length) {
    return tu_fail(TU_CORRUPT,
                   "'%s', line %" PRId64
                   ": '%.*s': expected two tokens, separated by a space, that are bytes or results of "
                   "earlier lines",
                   r->path, r->line, (int)(length < 60 ? length : 60), line);
}

static tu_status read_merge(reader *r, const char *line, size_t length) {
    enum { MAX_PIECE = 1024 };
    char bytes[MAX_PIECE];
    const char *space = memchr(line, ' ', length);
    if (!space || length > MAX_PIECE) return fail_line(r, line, length);
    size_t left_length = decode_characters(r, line, (size_t)(space - line), bytes);
    size_t right_length =
        decode_characters(r, space + 1, length - (size_t)(space - line) - 1, bytes + left_length);
    if (!left_length || !right_length) return fail_line(r, line, length);
    int32_t left = *lookup_piece(r, bytes, left_length) - 1,
            right = *lookup_piece(r, bytes + left_length, right_length) - 1;
    if (left < 0 || right < 0 || *lookup_piece(r, bytes, left_length + right_length))
        return fail_line(r, line, length);
    int32_t token = BYTES + (int32_t)r->merge_count++;
    add_piece(r, token, bytes, left_length + right_length);
    *find_entry(r->m, key_of(left, right)) = (pair_entry){key_of(left, right), token};
    return TU_OK;
}

static uint32_t power_of_two_above(size_t n) {
    uint32_t power = 1024;
    while (power < n) power *= 2;
    return power;
}

/* Allocates for at most `lines` merges from `length` bytes of text. */
static tu_status allocate(reader *r, size_t lines, size_t length) {
    static const char purpose[] = "a tokenizer";
    uint32_t entries = power_of_two_above(2 * (lines + BYTES));
    r->t->merges = r->m = tu__alloc(sizeof *r->m, purpose);
    if (!r->m) return TU_NO_MEMORY;
    *r->m = (struct tu__merges){.mask = entries - 1};
    r->lookup_mask = entries - 1;
    r->m->entries = tu__alloc_array(entries, sizeof *r->m->entries, purpose);
    r->lookup = tu__alloc_array(entries, sizeof *r->lookup, purpose);
    r->t->starts = tu__alloc_array(lines + BYTES + 2, sizeof *r->t->starts, purpose);
    r->t->pieces = tu__alloc(length + BYTES + 64, purpose);
    if (!r->m->entries || !r->lookup || !r->t->starts || !r->t->pieces) return TU_NO_MEMORY;
    return TU_OK;
}

static void add_bytes(reader *r) {
    number_bytes(r->m->byte_token, r->byte_of);
    char byte_with_token[BYTES];
    for (int c = 0; c < BYTES; c++) byte_with_token[r->m->byte_token[c]] = (char)c;
    for (int32_t token = 0; token < BYTES; token++) add_piece(r, token, &byte_with_token[token], 1);
}

static tu_status read_lines(reader *r, const char *text, size_t length) {
    for (size_t start = 0; start < length;) {
        const char *end = memchr(text + start, '\n', length - start);
        size_t size = end ? (size_t)(end - text) - start : length - start;
        r->line++;
        bool is_comment = r->line == 1 && size >= 8 && memcmp(text, "#version", 8) == 0;
        if (size && !is_comment) TU_TRY(read_merge(r, text + start, size));
        start += size + 1;
    }
    return TU_OK;
}

tu_status tu__merges_read(const char *path, const char *text, size_t length, tu_tokenizer *tokenizer) {
    static const char end[] = "<|endoftext|>";
    reader r = {.path = path, .t = tokenizer};
    size_t lines = 1;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    if (lines > MAX_MERGES)
        return tu_fail(TU_CORRUPT, "'%s' has %zu lines: expected at most %d merges", path, lines, MAX_MERGES);
    tu_status status = allocate(&r, lines, length);
    if (status == TU_OK) {
        add_bytes(&r);
        status = read_lines(&r, text, length);
    }
    tu__free(r.lookup);
    TU_TRY(status);
    tokenizer->end = BYTES + (int32_t)r.merge_count;
    tokenizer->vocabulary = tokenizer->end + 1;
    uint32_t start = tokenizer->starts[tokenizer->end];
    memcpy(tokenizer->pieces + start, end, sizeof end - 1);
    tokenizer->starts[tokenizer->end + 1] = start + (uint32_t)sizeof end - 1;
    return TU_OK;
}

void tu__merges_free(struct tu__merges *merges) {
    if (merges) tu__free(merges->entries);
    tu__free(merges);
}
