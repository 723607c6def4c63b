/* Writes a large CSV file, to time its conversion.
 *
 *     make_table ROWS mixed|numeric FILE
 *
 * mixed: two columns with decimals, two whole numbers, a category with quoted commas, two with 8 and 3,000 texts, and a price;
 * numeric: eleven columns with decimals. The same rows every time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

/* Xorshift (Marsaglia 2003). */
static uint64_t below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static double decimal(uint64_t steps, double step, double least) {
    return (double)below(steps) * step + least;
}

static void write_mixed(FILE *file) {
    static const char *const cities[] = {"Berlin",    "Hamburg", "Munich",  "Cologne", "Frankfurt am Main",
                                         "Stuttgart", "Leipzig", "Dortmund"};
    static const char *const kinds[] = {"flat", "house", "\"loft, upper\"", "studio"};
    double area = decimal(20000, 0.01, 20);
    int rooms = 1 + (int)below(8);
    fprintf(file, "%.2f,%d,%d,%s,%s,%.4f,z%05d,%.1f\n", area, rooms, 1900 + (int)below(124), cities[below(8)],
            kinds[below(4)], decimal(2000000, 1e-4, -100), (int)below(3000),
            area * 1000 + rooms * 500.0 + decimal(1000, 0.1, 0));
}

static void write_numeric(FILE *file) {
    for (int i = 0; i < 10; i++) fprintf(file, "%.4f,", decimal(2000000, 1e-4, -100));
    fprintf(file, "%.3f\n", decimal(1000000, 1e-3, 0));
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: make_table ROWS mixed|numeric FILE\n");
        return 2;
    }
    int mixed = strcmp(argv[2], "mixed") == 0;
    FILE *file = fopen(argv[3], "w");
    if (!file) {
        perror(argv[3]);
        return 1;
    }
    fputs(mixed ? "area,rooms,year,city,kind,score,zip,price\n" : "x0,x1,x2,x3,x4,x5,x6,x7,x8,x9,y\n", file);
    for (int64_t row = 0, rows = atoll(argv[1]); row < rows; row++)
        (mixed ? write_mixed : write_numeric)(file);
    return fclose(file) == 0 ? 0 : 1;
}
