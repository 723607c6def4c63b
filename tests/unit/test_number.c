/* Conversions between doubles and element types round once, to nearest, ties to even. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

/* The two 16-bit formats, for a decoder that is independent of the tested one. */
typedef struct narrow {
    tu_dtype dtype;
    int fraction_bits, bias;
    uint32_t infinity; /* bit pattern of infinity; the largest finite number precedes it */
} narrow;

static const narrow formats[] = {{TU_BF16, 7, 127, 0x7f80}, {TU_F16, 10, 15, 0x7c00}};

static double defined_value(const narrow *format, uint32_t pattern) {
    int fraction = (int)(pattern & ((1u << format->fraction_bits) - 1));
    int exponent = (int)((pattern & 0x7fff) >> format->fraction_bits);
    int implicit = exponent ? 1 << format->fraction_bits : 0;
    double size =
        ldexp(implicit + fraction, (exponent ? exponent : 1) - format->bias - format->fraction_bits);
    return pattern & 0x8000 ? -size : size;
}

static double load_pattern(tu_dtype dtype, uint32_t pattern) {
    uint16_t stored = (uint16_t)pattern;
    return tu__load(dtype, &stored, 0);
}

static uint32_t store_pattern(tu_dtype dtype, double x) {
    uint16_t stored;
    tu__store(dtype, &stored, 0, x);
    return stored;
}

/* Asserts equality, including the sign of zero. */
static void assert_same(double a, double b) {
    if (memcmp(&a, &b, sizeof a) != 0) fail_msg("%a is not %a", a, b);
}

static void every_16_bit_pattern_survives_a_round_trip(void **state) {
    (void)state;
    for (size_t f = 0; f < 2; f++)
        for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
            const narrow *format = &formats[f];
            double value = load_pattern(format->dtype, pattern);
            uint32_t stored = store_pattern(format->dtype, value);
            if ((pattern & 0x7fff) > format->infinity) { /* NaN stays NaN; a signalling one becomes quiet */
                assert_true(isnan(value));
                assert_true(isnan(tu__round_to(format->dtype, value)));
                assert_int_equal(stored, pattern | 1u << (format->fraction_bits - 1));
                continue;
            }
            if ((pattern & 0x7fff) == format->infinity)
                assert_same(value, pattern & 0x8000 ? -(double)INFINITY : (double)INFINITY);
            else
                assert_same(value, defined_value(format, pattern));
            assert_int_equal(stored, pattern);
            assert_same(tu__round_to(format->dtype, value), value);
        }
}

static void assert_rounds_to(const narrow *format, double x, uint32_t pattern) {
    uint32_t stored = store_pattern(format->dtype, x);
    if (stored != pattern)
        fail_msg("%s of %a: stored as %04x, not %04x", tu_dtype_name(format->dtype), x, stored, pattern);
    assert_int_equal(store_pattern(format->dtype, -x), pattern | 0x8000);
    assert_same(tu__round_to(format->dtype, x), load_pattern(format->dtype, pattern));
}

/* The midpoint of two neighbours and the doubles next to it are exact. The upper neighbour of the largest number is
 * the first power of two that overflows. */
static void ties_round_to_even(void **state) {
    (void)state;
    for (size_t f = 0; f < 2; f++)
        for (uint32_t low = 0; low < formats[f].infinity; low++) {
            const narrow *format = &formats[f];
            double middle = (defined_value(format, low) + defined_value(format, low + 1)) / 2;
            assert_rounds_to(format, middle, low + (low & 1));
            assert_rounds_to(format, nextafter(middle, 0), low);
            assert_rounds_to(format, nextafter(middle, (double)INFINITY), low + 1);
        }
}

static void too_large_numbers_become_infinity(void **state) {
    (void)state;
    static const double large[] = {0x1p128, 0x1.fffffep127, 1e300, 1.7976931348623157e308, (double)INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_rounds_to(&formats[0], large[i], 0x7f80);
        assert_rounds_to(&formats[1], large[i], 0x7c00);
    }
    assert_same(tu__round_to(TU_F16, 65519.99), 65504);
    assert_same(tu__round_to(TU_F16, 65520), (double)INFINITY);
    assert_same(tu__round_to(TU_F32, 1e300), (double)INFINITY);
    assert_same(tu__round_to(TU_F32, -1e300), -(double)INFINITY);
    assert_same(tu__round_to(TU_F64, 1e300), 1e300);
}

static void tiny_numbers_keep_their_sign(void **state) {
    (void)state;
    static const tu_dtype floats[] = {TU_F32, TU_BF16, TU_F16};
    for (size_t i = 0; i < 3; i++) {
        assert_same(tu__round_to(floats[i], 4.9e-324), 0.0);
        assert_same(tu__round_to(floats[i], -4.9e-324), -0.0);
        assert_same(tu__round_to(floats[i], -0.0), -0.0);
    }
}

/* Rounding first to f32 would give the even neighbour here. */
static void rounding_happens_once(void **state) {
    (void)state;
    assert_same(tu__round_to(TU_F16, 1 + 0x1p-11 + 0x1p-30), 1 + 0x1p-10);
    assert_same(tu__round_to(TU_BF16, 1 + 0x1p-8 + 0x1p-30), 1 + 0x1p-7);
    assert_same(tu__round_to(TU_F16, 1 + 3 * 0x1p-11 - 0x1p-30), 1 + 0x1p-10);
}

static void nan_stays_nan_in_floats(void **state) {
    (void)state;
    uint64_t bits = UINT64_C(0x7ff0000000000001) | UINT64_C(1) << 51; /* a payload in the lowest bit */
    double nan_value;
    memcpy(&nan_value, &bits, sizeof nan_value);
    static const tu_dtype floats[] = {TU_F64, TU_F32, TU_BF16, TU_F16};
    for (size_t i = 0; i < 4; i++) {
        double stored;
        tu__store(floats[i], &stored, 0, nan_value);
        assert_true(isnan(tu__load(floats[i], &stored, 0)));
        assert_true(isnan(tu__round_to(floats[i], nan_value)));
    }
}

static void f32_is_the_c_conversion(void **state) {
    (void)state;
    static const double samples[] = {0.1,         1.0 / 3, 1e-45, 0x1p-150, 0x1.8p-150, 3.4028235677973366e38,
                                     -123456789.0};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        float stored;
        tu__store(TU_F32, &stored, 0, samples[i]);
        assert_same(stored, (double)(float)samples[i]);
        assert_same(tu__round_to(TU_F32, samples[i]), (double)(float)samples[i]);
    }
}

static void integers_truncate_and_saturate(void **state) {
    (void)state;
    static const struct {
        tu_dtype dtype;
        double x, expected;
    } rows[] = {
        {TU_I32, 2.9, 2},
        {TU_I32, -2.9, -2},
        {TU_I32, -0.5, 0},
        {TU_I32, 1e10, 2147483647},
        {TU_I32, -1e10, -2147483648.0},
        {TU_I32, 2147483646.5, 2147483646},
        {TU_I32, 2147483647, 2147483647},
        {TU_I32, -2147483648.0, -2147483648.0},
        {TU_I32, -2147483648.5, -2147483648.0},
        {TU_I64, 2.9, 2},
        {TU_I64, -2.9, -2},
        {TU_I64, 1e30, 0x1p63},
        {TU_I64, -1e30, -0x1p63},
        {TU_I64, 0x1p62 + 1024, 0x1p62 + 1024},
        {TU_I64, -0x1p63, -0x1p63},
        {TU_U8, 255.9, 255},
        {TU_U8, 256, 255},
        {TU_U8, 1e30, 255},
        {TU_U8, -1, 0},
        {TU_U8, -0.9, 0},
        {TU_U8, 254.99, 254},
        {TU_I8, 127.9, 127},
        {TU_I8, 128, 127},
        {TU_I8, -128.9, -128},
        {TU_I8, -1e30, -128},
        {TU_I8, -0.9, 0},
        {TU_I8, -7.99, -7},
        {TU_BOOL, 0, 0},
        {TU_BOOL, -0.0, 0},
        {TU_BOOL, 1e-300, 1},
        {TU_BOOL, -3, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t stored = 0;
        tu__store(rows[i].dtype, &stored, 0, rows[i].x);
        assert_same(tu__load(rows[i].dtype, &stored, 0), rows[i].expected);
        assert_same(tu__round_to(rows[i].dtype, rows[i].x), rows[i].expected);
    }
    for (tu_dtype dtype = TU_I32; dtype < TU_DTYPE_COUNT; dtype++) {
        assert_same(tu__round_to(dtype, (double)NAN), dtype == TU_BOOL);
        assert_true(tu__round_to(dtype, (double)INFINITY) > 0);
        assert_true(tu__round_to(dtype, -(double)INFINITY) <= 1);
    }
}

static void i64_saturates(void **state) {
    (void)state;
    int64_t stored;
    tu__store(TU_I64, &stored, 0, 0x1p63);
    assert_true(stored == INT64_MAX);
    tu__store(TU_I64, &stored, 0, -0x1p63);
    assert_true(stored == INT64_MIN);
    tu__store(TU_I64, &stored, 0, 0x1p63 - 1024); /* the largest double below */
    assert_true(stored == INT64_MAX - 1023);
    for (int bit = 0; bit < 53; bit++) {
        int64_t number = (INT64_C(1) << bit) + (bit ? 1 : 0), back;
        tu__store(TU_I64, &back, 0, tu__load(TU_I64, &number, 0));
        assert_true(back == number);
    }
}

static void any_nonzero_byte_is_true(void **state) {
    (void)state;
    uint8_t stored = 2;
    assert_same(tu__load(TU_BOOL, &stored, 0), 1);
}

/* Array functions agree with the functions for one element at any alignment, and write nothing beyond the array. */
static void arrays_agree_with_elements(void **state) {
    (void)state;
    enum { COUNT = 37 };
    for (tu_dtype dtype = 0; dtype < TU_DTYPE_COUNT; dtype++) {
        unsigned char storage[8 * COUNT + 16];
        double numbers[COUNT], loaded[COUNT], rounded[COUNT];
        size_t bytes = tu_dtype_size(dtype) * COUNT;
        for (int i = 0; i < COUNT; i++) numbers[i] = (i - 18) * 1.37 * (i % 5 ? 1 : 1e5);
        memset(storage, 0xa5, sizeof storage);
        tu__store_array(dtype, numbers, COUNT, storage + 1);
        assert_int_equal(storage[0], 0xa5);
        assert_int_equal(storage[1 + bytes], 0xa5);
        tu__load_array(dtype, storage + 1, COUNT, loaded);
        memcpy(rounded, numbers, sizeof numbers);
        tu__round_array(dtype, rounded, COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_same(loaded[i], rounded[i]);
            assert_same(tu__load(dtype, storage + 1, i), tu__round_to(dtype, numbers[i]));
        }
    }
}

/* The public conversions against the definition of the formats and against the internal ones. */
static void f32_converts_to_16_bit_floats_and_back(void **state) {
    (void)state;
    static uint16_t patterns[0x10000], converted[0x10000];
    static float floats[0x10000];
    for (size_t f = 0; f < 2; f++) {
        const narrow *format = &formats[f];
        bool brain = format->dtype == TU_BF16;
        for (uint32_t i = 0; i <= 0xffff; i++) patterns[i] = (uint16_t)i;
        (brain ? tu_f32_from_bf16 : tu_f32_from_f16)(patterns, 0x10000, floats);
        (brain ? tu_bf16_from_f32 : tu_f16_from_f32)(floats, 0x10000, converted);
        for (uint32_t i = 0; i <= 0xffff; i++) {
            bool nan = (i & 0x7fff) > format->infinity;
            assert_int_equal(isnan(floats[i]), nan);
            assert_int_equal(converted[i], nan ? i | 1u << (format->fraction_bits - 1) : i);
            if ((i & 0x7fff) < format->infinity) assert_same((double)floats[i], defined_value(format, i));
        }
        /* The midpoint of a positive value and the next rounds to the even one; a larger number rounds to the
         * next. */
        for (uint32_t i = 0; i + 1 < format->infinity; i++) {
            float middle = (float)((defined_value(format, i) + defined_value(format, i + 1)) / 2);
            float two[] = {middle, nextafterf(middle, INFINITY)};
            uint16_t rounded[2];
            (brain ? tu_bf16_from_f32 : tu_f16_from_f32)(two, 2, rounded);
            assert_int_equal(rounded[0], i + (i & 1));
            assert_int_equal(rounded[1], i + 1);
        }
    }
    float large[] = {65519.0f, 65520.0f, -1e30f, 3.4e38f, -INFINITY};
    uint16_t f16[5], bf16[5];
    tu_f16_from_f32(large, 5, f16);
    tu_bf16_from_f32(large, 5, bf16);
    assert_int_equal(f16[0], 0x7bff);
    assert_int_equal(f16[1], 0x7c00);
    assert_int_equal(f16[2], 0xfc00);
    assert_int_equal(bf16[3], 0x7f80);
    assert_int_equal(bf16[4], 0xff80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_pattern_survives_a_round_trip),
        cmocka_unit_test(ties_round_to_even),
        cmocka_unit_test(too_large_numbers_become_infinity),
        cmocka_unit_test(tiny_numbers_keep_their_sign),
        cmocka_unit_test(rounding_happens_once),
        cmocka_unit_test(nan_stays_nan_in_floats),
        cmocka_unit_test(f32_is_the_c_conversion),
        cmocka_unit_test(integers_truncate_and_saturate),
        cmocka_unit_test(i64_saturates),
        cmocka_unit_test(any_nonzero_byte_is_true),
        cmocka_unit_test(arrays_agree_with_elements),
        cmocka_unit_test(f32_converts_to_16_bit_floats_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
