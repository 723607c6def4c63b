/* Parses the binary format of CIFAR-10 and converts planes to HWC. See cifar.h. */
#include "data/cifar.h"

static void interleave(const uint8_t *planes, uint8_t *image) {
    for (int i = 0; i < TU__CIFAR_PIXELS; i++)
        for (int c = 0; c < 3; c++) image[3 * i + c] = planes[c * TU__CIFAR_PIXELS + i];
}

tu_status tu__cifar_parse(const char *name, const void *bytes, size_t size, tu__cifar_callback callback,
                          void *context) {
    const uint8_t *record = bytes;
    if (size == 0 || size % TU__CIFAR_RECORD_BYTES != 0)
        return tu_fail(
            TU_CORRUPT,
            "'%s' has %zu bytes: expected a multiple of %d; it is truncated or not a CIFAR-10 file", name,
            size, TU__CIFAR_RECORD_BYTES);
    for (size_t i = 0; i < size / TU__CIFAR_RECORD_BYTES; i++, record += TU__CIFAR_RECORD_BYTES) {
        uint8_t image[3 * TU__CIFAR_PIXELS];
        if (record[0] > 9)
            return tu_fail(TU_CORRUPT, "'%s': image %zu has label %d: expected 0 to 9", name, i, record[0]);
        interleave(record + 1, image);
        TU_TRY(callback(context, image, record[0]));
    }
    return TU_OK;
}
