/* Calls of the library as they were recorded, made again: standard input and output, in words of 64 bits.
 * A call: which, how many words, and of each whether it is a number (0, itself) or an array (1, bytes, the bytes).
 * An answer: what was given back, and the bytes of every array. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int64_t tmmu_place_near(const void *), tmmu_place(const void *), tmmu_search(const void *), tmmu_neighbours(const void *),
    tmmu_rebuild(const void *);
static int64_t (*const calls[])(const void *) = {tmmu_place_near, tmmu_place, tmmu_search, tmmu_neighbours,
    tmmu_rebuild};

static int64_t word(void)
{
    int64_t value;
    if (fread(&value, sizeof value, 1, stdin) != 1)
        exit(0);
    return value;
}

int main(void)
{
    for (;;) {
        const int64_t which = word(), count = word();
        int64_t words[64], length[64];
        for (int64_t k = 0; k < count; k++) {
            length[k] = -1;
            if (!word()) {
                words[k] = word();
                continue;
            }
            length[k] = word();
            void *const data = malloc((size_t)length[k] + 1);
            if (fread(data, 1, (size_t)length[k], stdin) != (size_t)length[k])
                return 1;
            words[k] = (int64_t)(intptr_t)data;
        }
        const int64_t answer = calls[which](words);
        fwrite(&answer, sizeof answer, 1, stdout);
        for (int64_t k = 0; k < count; k++) {
            if (length[k] < 0)
                continue;
            fwrite((void *)(intptr_t)words[k], 1, (size_t)length[k], stdout);
            free((void *)(intptr_t)words[k]);
        }
    }
}
