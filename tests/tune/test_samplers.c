/* Samplers give every point of a grid once, points as even as promised, and the same points for the same seed. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "tune/sampler.h"

enum { POINTS = 1024 };

static tu__space space_of(const char *lines) {
    tu__space space = {0};
    if (tu__space_add_lines(&space, "space", lines) != TU_OK) fail_msg("%s", tu_message());
    return space;
}

static void a_grid_has_every_point_once(void **state) {
    (void)state;
    tu__space space = space_of("o=sgd|adam\nm=0.5:0.9/3 if o=sgd\nb=int:1:4");
    tu__history history = {.space = &space};
    tu__point points[17];
    assert_int_equal(tu__grid_size(&space, 1000), 3 * 4 + 4);
    assert_int_equal(tu__grid_size(&space, 10), 10);
    for (int64_t i = 0; i < 16; i++) {
        assert_int_equal(tu__sample_grid.sample(&history, i, &points[i]), TU_OK);
        assert_int_equal(isnan(points[i].value[1]) != 0, points[i].value[0] == 1);
        for (int64_t k = 0; k < i; k++)
            assert_true(points[k].value[0] != points[i].value[0] ||
                        points[k].value[2] != points[i].value[2] || points[k].value[1] != points[i].value[1]);
    }
    assert_true(fabs(points[4].value[1] - 0.7) < 1e-12);
    assert_int_equal(tu__sample_grid.sample(&history, 16, &points[16]), TU_NOT_FOUND);
    tu__space_free(&space);
}

/* Integers on a logarithmic scale: several points of the scale may be rounded to one. */
static void a_grid_of_integers_on_a_logarithmic_scale_has_each_once(void **state) {
    (void)state;
    static const struct {
        const char *space;
        int64_t count, last;
    } grids[] = {{"a=log:int:1:8", 8, 8}, {"a=log:int:1:8/8", 6, 8}, {"a=int:0:10/4", 4, 10}};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        tu__space space = {0};
        tu__point point;
        double before = -1;
        assert_int_equal(tu__space_add(&space, grids[i].space), TU_OK);
        tu__history history = {.space = &space, .seed = 1};
        assert_int_equal(tu__grid_size(&space, 1000), grids[i].count);
        for (int64_t k = 0; k < grids[i].count; k++) {
            assert_int_equal(tu__sample_grid.sample(&history, k, &point), TU_OK);
            assert_true(point.value[0] > before);
            before = point.value[0];
        }
        assert_true(before == (double)grids[i].last);
        tu__space_free(&space);
    }
}

static void a_grid_needs_numbers_of_values(void **state) {
    (void)state;
    tu__space space = space_of("rate=log:0.1:1");
    tu__history history = {.space = &space};
    tu__point point;
    assert_int_equal(tu__sample_grid.sample(&history, 0, &point), TU_INVALID);
    assert_non_null(strstr(tu_message(), "'rate' has no number of values"));
    assert_int_equal(tu__grid_size(&space, 10), 0);
    tu__space_free(&space);
}

static tu__space cube(size_t count) {
    tu__space space = {0};
    for (size_t i = 0; i < count; i++) {
        char text[] = "p00=0:1";
        text[1] = (char)('0' + i / 10), text[2] = (char)('0' + i % 10);
        assert_int_equal(tu__space_add(&space, text), TU_OK);
    }
    return space;
}

/* Scrambled or not: of 2^k points, each of 2^k intervals of every coordinate has one. */
static void sobol_points_have_one_in_each_interval(void **state) {
    (void)state;
    tu__space space = cube(TU__MAX_PARAMETERS);
    for (uint64_t seed = 0; seed < 2; seed++) {
        static bool used[TU__MAX_PARAMETERS][POINTS];
        tu__history history = {.space = &space, .seed = seed};
        memset(used, 0, sizeof used);
        for (int64_t i = 0; i < POINTS; i++) {
            tu__point point;
            assert_int_equal(tu__sample_sobol.sample(&history, i, &point), TU_OK);
            for (size_t k = 0; k < space.count; k++) {
                bool *cell = &used[k][(size_t)(point.value[k] * POINTS)];
                if (*cell) fail_msg("seed %d, coordinate %zu: point %d", (int)seed, k, (int)i);
                *cell = true;
            }
        }
    }
    tu__space_free(&space);
}

/* Returns how many of 32 × 32 cells 1,024 points of two coordinates leave empty, the mean over pairs of neighbours. */
static double empty_cells(const tu__sampler *sampler, const tu__space *space) {
    static tu__point points[POINTS];
    tu__history history = {.space = space, .seed = 3};
    int empty = 0;
    for (int64_t i = 0; i < POINTS; i++) assert_int_equal(sampler->sample(&history, i, &points[i]), TU_OK);
    for (size_t k = 0; k + 1 < space->count; k++) {
        bool used[32][32] = {0};
        for (int64_t i = 0; i < POINTS; i++)
            used[(int)(points[i].value[k] * 32)][(int)(points[i].value[k + 1] * 32)] = true;
        for (int i = 0; i < 32 * 32; i++) empty += !used[i / 32][i % 32];
    }
    return (double)empty / (double)(space->count - 1);
}

static void pairs_of_sobol_coordinates_are_more_even_than_random_ones(void **state) {
    (void)state;
    tu__space space = cube(16);
    double sobol = empty_cells(&tu__sample_sobol, &space), random = empty_cells(&tu__sample_random, &space);
    if (!(sobol < 0.8 * random)) fail_msg("empty cells: %g, random %g", sobol, random);
    tu__space_free(&space);
}

static void seeds_give_different_points_and_one_seed_the_same(void **state) {
    (void)state;
    tu__space space = cube(3);
    const tu__sampler *const samplers[] = {&tu__sample_random, &tu__sample_sobol};
    for (size_t s = 0; s < 2; s++) {
        tu__history history = {.space = &space, .seed = 1}, other = {.space = &space, .seed = 2};
        tu__point a, b, c;
        assert_int_equal(samplers[s]->sample(&history, 7, &a), TU_OK);
        assert_int_equal(samplers[s]->sample(&history, 7, &b), TU_OK);
        assert_int_equal(samplers[s]->sample(&other, 7, &c), TU_OK);
        for (size_t i = 0; i < 3; i++) {
            assert_true(a.value[i] == b.value[i]);
            assert_true(a.value[i] != c.value[i]);
        }
    }
    tu__space_free(&space);
}

static void unknown_samplers_are_named(void **state) {
    (void)state;
    const tu__sampler *sampler;
    assert_int_equal(tu__sampler_find("sobol", &sampler), TU_OK);
    assert_ptr_equal(sampler, &tu__sample_sobol);
    assert_int_equal(tu__sampler_find("tpa", &sampler), TU_INVALID);
    assert_non_null(strstr(tu_message(), "did you mean 'tpe'?"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grid_has_every_point_once),
        cmocka_unit_test(a_grid_of_integers_on_a_logarithmic_scale_has_each_once),
        cmocka_unit_test(a_grid_needs_numbers_of_values),
        cmocka_unit_test(sobol_points_have_one_in_each_interval),
        cmocka_unit_test(pairs_of_sobol_coordinates_are_more_even_than_random_ones),
        cmocka_unit_test(seeds_give_different_points_and_one_seed_the_same),
        cmocka_unit_test(unknown_samplers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
