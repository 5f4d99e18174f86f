/* Replay recorded calls of the library: standard input and output, in words of 64 bits.
 * A call: the function, the number of words, and each as a number (0, value) or an array (1, length, bytes).
 * A result: the return value, and the bytes of every array. FUNCTIONS(X) is defined by the compiler's command line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define DECLARE(name) int64_t name(const void *);
#define LIST(name) name,
FUNCTIONS(DECLARE)
static int64_t (*const calls[])(const void *) = {FUNCTIONS(LIST)};

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
