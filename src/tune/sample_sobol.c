/* Quasi-random points: Sobol's sequence, scrambled. They fill a space more evenly than random points: of the first 2^k
 * points each of the 2^k equal intervals of every parameter contains one.
 *
 * I. Sobol, "On the distribution of points in a cube", 1967. Coordinate d of a point is a sum modulo 2 of direction numbers
 * v_j, one for each 1 among the bits of the point's number. They follow from a primitive polynomial over GF(2), another one
 * for each coordinate, by its recurrence, and from odd first numbers m_j < 2^j, which are free. Both are computed here: the
 * polynomials are the primitive ones in order of their degree, and the first numbers are those, of a few random ones, with
 * which the coordinate is distributed best together with each of the coordinates before it.
 *
 * Scrambling: J. Matoušek, "On the L2-discrepancy for anchored boxes", 1998. A random lower triangular matrix over GF(2) and
 * a random shift are applied to the bits of each coordinate, which keeps its intervals. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/philox.h"
#include "tune/sampler.h"

enum {
    BITS = 32,
    DIMENSIONS = TU__MAX_PARAMETERS,
    CANDIDATES = 16, /* sets of first numbers tried for a coordinate */
    NEIGHBOURS = 8,  /* earlier coordinates with which they are compared */
    CELL_BITS = 4,   /* … on grids of 2^4 × 2^4 cells, with 2^8 points */
    PURPOSE_FIRST = 101,
    PURPOSE_SCRAMBLE = 102,
};

typedef struct directions {
    uint32_t v[BITS]; /* v[j]: added if bit j of the number of a point is set */
} directions;

/* ---- Primitive polynomials ---- */

/* Multiplies polynomials over GF(2) modulo `modulus` of degree `degree`. */
static uint32_t multiply(uint32_t a, uint32_t b, uint32_t modulus, int degree) {
    uint32_t product = 0;
    for (; b; b >>= 1) {
        if (b & 1) product ^= a;
        a <<= 1;
        if (a >> degree & 1) a ^= modulus;
    }
    return product;
}

static uint32_t power(uint32_t exponent, uint32_t modulus, int degree) {
    uint32_t result = 1, square = degree == 1 ? 1 : 2; /* x, which is 1 modulo x + 1 */
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = multiply(result, square, modulus, degree);
        square = multiply(square, square, modulus, degree);
    }
    return result;
}

/* True if the powers of x modulo the polynomial are all 2^degree - 1 polynomials that are not 0. */
static bool is_primitive(uint32_t polynomial, int degree) {
    uint32_t order = ((uint32_t)1 << degree) - 1;
    if (!(polynomial & 1) || power(order, polynomial, degree) != 1) return false;
    for (uint32_t factor = 2; factor <= order; factor++) {
        bool divides = order % factor == 0;
        if (divides && order / factor < order && power(order / factor, polynomial, degree) == 1) return false;
    }
    return true;
}

static uint32_t next_primitive(uint32_t polynomial, int *degree) {
    for (polynomial++;; polynomial++) {
        while (polynomial >> (*degree + 1)) ++*degree;
        if (is_primitive(polynomial, *degree)) return polynomial;
    }
}

/* ---- Direction numbers ---- */

static uint32_t random_bits(uint64_t seed, uint32_t purpose, uint32_t a, uint32_t b) {
    const uint32_t counter[4] = {a, b, purpose, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    tu__philox4x32(counter, key, bits);
    return bits[0];
}

/* Makes the direction numbers of a coordinate from random first numbers. */
static void make_directions(uint32_t polynomial, int degree, uint32_t dimension, uint32_t candidate,
                            directions *d) {
    uint32_t m[BITS];
    for (int j = 0; j < BITS; j++) {
        if (j < degree) {
            uint32_t mask = ((uint32_t)1 << (j + 1)) - 1;
            m[j] = (random_bits(candidate, PURPOSE_FIRST, dimension, (uint32_t)j) & mask) | 1;
        } else {
            m[j] = m[j - degree] ^ m[j - degree] << degree;
            for (int k = 1; k < degree; k++)
                if (polynomial >> (degree - k) & 1) m[j] ^= m[j - k] << k;
        }
        d->v[j] = m[j] << (BITS - 1 - j);
    }
}

static uint32_t coordinate(const directions *d, uint64_t number) {
    uint32_t x = 0;
    for (int j = 0; j < BITS; j++)
        if (number >> j & 1) x ^= d->v[j];
    return x;
}

/* Returns how many of 2^4 × 2^4 cells the first 2^8 points of two coordinates leave empty. */
static int empty_cells(const directions *a, const directions *b) {
    enum { SIDE = 1 << CELL_BITS, POINTS = SIDE * SIDE };
    bool used[SIDE][SIDE] = {0};
    int empty = POINTS;
    for (uint64_t i = 0; i < POINTS; i++) {
        bool *cell = &used[coordinate(a, i) >> (BITS - CELL_BITS)][coordinate(b, i) >> (BITS - CELL_BITS)];
        empty -= !*cell;
        *cell = true;
    }
    return empty;
}

static void choose_directions(uint32_t polynomial, int degree, size_t dimension, directions *all) {
    int fewest = -1;
    for (uint32_t candidate = 0; candidate < CANDIDATES && fewest != 0; candidate++) {
        directions d;
        int empty = 0;
        make_directions(polynomial, degree, (uint32_t)dimension, candidate, &d);
        for (size_t k = 1; k <= NEIGHBOURS && k <= dimension; k++)
            empty += empty_cells(&all[dimension - k], &d);
        if (fewest >= 0 && empty >= fewest) continue;
        fewest = empty;
        all[dimension] = d;
    }
}

static directions table[DIMENSIONS];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void) {
    for (int j = 0; j < BITS; j++) table[0].v[j] = (uint32_t)1 << (BITS - 1 - j);
    uint32_t polynomial = 2;
    int degree = 1;
    for (size_t dimension = 1; dimension < DIMENSIONS; dimension++) {
        polynomial = next_primitive(polynomial, &degree);
        choose_directions(polynomial, degree, dimension, table);
    }
}

/* ---- Points ---- */

/* Bit i of the result is the sum of the bits of row i of a random matrix, which has ones on its diagonal and zeros below
 * bit i of a number that begins with its highest bit; then the shift is added. */
static uint32_t scramble(uint64_t seed, uint32_t dimension, uint32_t x) {
    uint32_t result = random_bits(seed, PURPOSE_SCRAMBLE, dimension, BITS);
    for (uint32_t i = 0; i < BITS; i++) {
        uint32_t above = i ? ~(uint32_t)0 << (BITS - i) : 0, diagonal = (uint32_t)1 << (BITS - 1 - i);
        uint32_t row = (random_bits(seed, PURPOSE_SCRAMBLE, dimension, i) & above) | diagonal;
        if (__builtin_parity(row & x)) result ^= diagonal;
    }
    return result;
}

static tu_status sample_sobol(const tu__history *history, int64_t trial, tu__point *point) {
    double units[TU__MAX_PARAMETERS];
    pthread_once(&table_once, make_table);
    for (size_t i = 0; i < history->space->count; i++)
        units[i] = ldexp((double)scramble(history->seed, (uint32_t)i, coordinate(&table[i], (uint64_t)trial)),
                         -BITS);
    tu__point_from_units(history->space, units, point);
    return TU_OK;
}

const tu__sampler tu__sample_sobol = {.name = "sobol", .sample = sample_sobol};
