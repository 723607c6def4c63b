/* Cases of image operations. Results of linear operations are squared, so that the second derivatives are not all
 * zero. */
#include "ops/cases.h"

static tu_shape random_images_shape(case_run *c) {
    return TU_SHAPE(case_size(c, 1, 3), case_size(c, 1, 5), case_size(c, 1, 5), case_size(c, 1, 2));
}

OP_CASE(resize, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, random_images_shape(c), -1, 1);
    tu_resize_method method = case_pick(c, "method", 2) ? TU_NEAREST : TU_BILINEAR;
    case_output(c, tu_square(tu_resize(x, case_size(c, 1, 8), case_size(c, 1, 8), method)));
}

OP_CASE(resize_integers, CASE_NO_GRADIENT) {
    tu_value x = case_integers(c, case_pick(c, "dtype", 2) ? TU_U8 : TU_I32, random_images_shape(c), 0, 200);
    case_output(c, tu_resize(x, case_size(c, 1, 8), case_size(c, 1, 8), TU_NEAREST));
}

/* Crops at random offsets inside and outside the valid range; tu_crop() clamps them. */
static tu_value crop_at_random_offsets(case_run *c, tu_value x, tu_shape s) {
    tu_value offsets =
        case_integers(c, case_pick(c, "offsets", 2) ? TU_I64 : TU_I32, TU_SHAPE(s.dim[0], 2), -2, 6);
    return tu_crop(x, offsets, case_size(c, 1, s.dim[1]), case_size(c, 1, s.dim[2]));
}

OP_CASE(crop, CASE_ALL_CHECKS) {
    tu_shape s = random_images_shape(c);
    case_output(c, tu_square(crop_at_random_offsets(c, case_input(c, s, -1, 1), s)));
}

OP_CASE(crop_bytes, CASE_NO_GRADIENT) {
    tu_shape s = random_images_shape(c);
    case_output(c, crop_at_random_offsets(c, case_integers(c, TU_U8, s, 0, 256), s));
}

/* Images whose standard deviation is well above the lower bound of tu_standardize(), or well below it ("flat"). */
OP_CASE(standardize, CASE_ALL_CHECKS) {
    tu_shape s = TU_SHAPE(case_size(c, 1, 2), case_size(c, 2, 4), case_size(c, 2, 3), case_size(c, 2, 3));
    double spread = case_pick(c, "flat", 2) ? 0.01 : 2;
    case_output(c, tu_standardize(case_input(c, s, -spread, spread)));
}

OP_CASE(random_crop, CASE_ALL_CHECKS) {
    tu_shape s = random_images_shape(c);
    tu_set_training(case_graph(c), case_pick(c, "training", 2));
    tu_value x = case_input(c, s, -1, 1);
    case_output(c, tu_square(tu_random_crop(x, case_size(c, 1, s.dim[1]), case_size(c, 1, s.dim[2]))));
}

OP_CASE(random_flip, CASE_ALL_CHECKS) {
    tu_set_training(case_graph(c), case_pick(c, "training", 2));
    case_output(c, tu_square(tu_random_flip(case_input(c, random_images_shape(c), -1, 1))));
}

OP_CASE(random_flip_bytes, CASE_NO_GRADIENT) {
    case_output(c, tu_random_flip(case_integers(c, TU_U8, random_images_shape(c), 0, 256)));
}

OP_CASE(random_brightness, CASE_ALL_CHECKS) {
    tu_set_training(case_graph(c), case_pick(c, "training", 2));
    case_output(c, tu_square(tu_random_brightness(case_input(c, random_images_shape(c), -1, 1),
                                                  case_uniform(c, 0, 1))));
}

OP_CASE(random_contrast, CASE_ALL_CHECKS) {
    tu_set_training(case_graph(c), case_pick(c, "training", 2));
    double low = case_uniform(c, 0, 1);
    case_output(c, tu_square(tu_random_contrast(case_input(c, random_images_shape(c), -1, 1), low, low + 1)));
}
