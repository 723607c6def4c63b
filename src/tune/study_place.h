/* Where a study is: its database, its name in it, and the folder with its run folders. */
#ifndef TU__TUNE_STUDY_PLACE_H
#define TU__TUNE_STUDY_PLACE_H

#include <limits.h>

#include <tutti/status.h>

typedef struct tu__study_place {
    char address[PATH_MAX]; /* file of SQLite, or postgresql://… */
    char folder[PATH_MAX];  /* absolute; "": the study knows it */
    char name[256];
} tu__study_place;

/* Chooses the place of a new study and creates its folder. `study` is a folder, a file, a server's address, or NULL:
 * studies/MODEL-DATA-NUMBER with the first free number. */
tu_status tu__study_place_new(const char *study, const char *name, const char *out, const char *model,
                              const char *data, tu__study_place *place);
/* Finds the place of a study that exists. */
tu_status tu__study_place_find(const char *study, const char *out, tu__study_place *place);

#endif
