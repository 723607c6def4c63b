/* Reads the GNU build ID of a loaded library. See build_id.h. */
#include "base/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct search {
    const char *address;
    char *text;
} search;

static bool contains(const struct dl_phdr_info *object, uintptr_t address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t first = (uintptr_t)(object->dlpi_addr + segment->p_vaddr);
        if (segment->p_type == PT_LOAD && address >= first && address - first < segment->p_memsz) return true;
    }
    return false;
}

static void write_hexadecimal(const unsigned char *bytes, size_t count, char *text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count && 2 * i + 2 < TU__BUILD_ID_TEXT; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

static size_t round_up(size_t bytes) {
    return (bytes + 3) & ~(size_t)3;
}

/* A note has a header, a name and a description, each padded to 4 bytes. */
static bool find_in_notes(const unsigned char *notes, size_t bytes, char *text) {
    ElfW(Nhdr) note;
    for (size_t at = 0; at + sizeof note <= bytes;) {
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, description = name + round_up(note.n_namesz);
        if (description + note.n_descsz > bytes) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
            memcmp(notes + name, "GNU", sizeof "GNU") == 0) {
            write_hexadecimal(notes + description, note.n_descsz, text);
            return true;
        }
        at = description + round_up(note.n_descsz);
    }
    return false;
}

/* For dl_iterate_phdr: 1 ends the search. */
static int look_into(struct dl_phdr_info *object, size_t bytes, void *context) {
    const search *s = context;
    (void)bytes;
    if (!contains(object, (uintptr_t)s->address)) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_NOTE) continue;
        uintptr_t notes = (uintptr_t)(object->dlpi_addr + segment->p_vaddr);
        const char *at = s->address + (ptrdiff_t)(notes - (uintptr_t)s->address);
        if (find_in_notes((const unsigned char *)at, segment->p_memsz, s->text)) break;
    }
    return 1;
}

void tu__build_id(const void *address, char text[TU__BUILD_ID_TEXT]) {
    search s = {address, text};
    text[0] = '\0';
    dl_iterate_phdr(look_into, &s);
}
