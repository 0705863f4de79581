/* The limit: hs_scan alone, on a file in memory, without Python.
 *
 * Usage: hs_scan PATTERNS DATABASE FILE BLOCK ROUNDS
 *
 * PATTERNS has one expression a line. DATABASE is a serialised database of them: it is loaded if
 * this library can, else compiled and written there. FILE is read into memory and scanned ROUNDS
 * times in blocks of at most BLOCK bytes that end behind LF, or whole if BLOCK is 0. Prints a line
 * a round, "SECONDS MATCHES". */
#include <errno.h>
#include <hs/hs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* hs_scan takes a length of 32 bits: what is longer would wrap in silence. */
static const size_t MOST = 0xffffffffu;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "hs_scan: %s: %s\n", what, why);
    exit(2);
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseeko(file, 0, SEEK_END))
        fail(path, strerror(errno));
    off_t length = ftello(file);
    rewind(file);
    char *data = malloc((size_t)length + 1);
    if (length < 0 || !data)
        fail(path, "does not fit into memory: give a smaller file");
    *size = fread(data, 1, (size_t)length, file);
    data[*size] = 0;
    fclose(file);
    return data;
}

static hs_database_t *compile(const char *path) {
    size_t size, count = 0, room = 0;
    char *text = read_file(path, &size);
    char **patterns = NULL;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (count == room) {
            room = room ? 2 * room : 256;
            patterns = realloc(patterns, room * sizeof *patterns);
            if (!patterns)
                fail(path, "does not fit into memory");
        }
        patterns[count++] = line;
    }
    if (!count)
        fail(path, "holds no pattern");
    unsigned *flags = malloc(count * sizeof *flags), *ids = malloc(count * sizeof *ids);
    if (!flags || !ids)
        fail(path, "does not fit into memory");
    for (size_t number = 0; number < count; number++) {
        flags[number] = HS_FLAG_MULTILINE;
        ids[number] = (unsigned)number;
    }
    hs_database_t *database = NULL;
    hs_compile_error_t *error = NULL;
    if (hs_compile_multi((const char *const *)patterns, flags, ids, (unsigned)count, HS_MODE_BLOCK,
                         NULL, &database, &error) != HS_SUCCESS)
        fail(path, error ? error->message : "does not compile");
    free(ids);
    free(flags);
    free(patterns);
    free(text);
    return database;
}

static hs_database_t *load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fclose(file);
    size_t size;
    char *bytes = read_file(path, &size);
    hs_database_t *database = NULL;
    if (hs_deserialize_database(bytes, size, &database) != HS_SUCCESS)
        database = NULL;
    free(bytes);
    return database;
}

static void store(const hs_database_t *database, const char *path) {
    char *bytes = NULL;
    size_t size = 0;
    if (hs_serialize_database(database, &bytes, &size) != HS_SUCCESS)
        fail(path, "cannot be serialised");
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        fail(path, strerror(errno));
    free(bytes);
}

static int count(unsigned id, unsigned long long from, unsigned long long to, unsigned flags,
                 void *context) {
    (void)id, (void)from, (void)to, (void)flags;
    ++*(unsigned long long *)context;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 6)
        fail("usage", "hs_scan PATTERNS DATABASE FILE BLOCK ROUNDS");
    hs_database_t *database = load(argv[2]);
    if (!database) {
        database = compile(argv[1]);
        store(database, argv[2]);
    }
    hs_scratch_t *scratch = NULL;
    if (hs_alloc_scratch(database, &scratch) != HS_SUCCESS)
        fail(argv[2], "no scratch for it");
    size_t size;
    char *data = read_file(argv[3], &size);
    size_t block = strtoull(argv[4], NULL, 10);
    for (long rounds = strtol(argv[5], NULL, 10); rounds > 0; rounds--) {
        unsigned long long matches = 0;
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (size_t start = 0; start < size;) {
            size_t length = size - start;
            if (block && length > block) {
                /* A line longer than a block is a block. */
                char *last = memrchr(data + start, '\n', block);
                if (!last)
                    last = memchr(data + start + block, '\n', length - block);
                length = last ? (size_t)(last - data) + 1 - start : length;
            }
            if (length > MOST)
                fail(argv[3], "a piece is longer than 4 GiB: scan it in blocks");
            if (hs_scan(database, data + start, (unsigned)length, 0, scratch, count, &matches))
                fail(argv[3], "scan failed");
            start += length;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.9f %llu\n",
               (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9,
               matches);
    }
    free(data);
    hs_free_scratch(scratch);
    hs_free_database(database);
    return 0;
}
