/* Run the model on four inputs and print its outputs. Byte k of input n is k * (2 * n + 37) + n. */
#include "run.h"

#include <stdio.h>

int main(void) {
    if (!run_ready()) {
        return 1;
    }
    for (int32_t n = 0; n < 4; n++) {
        int32_t size;
        int8_t *input = run_input(&size);
        for (int32_t k = 0; k < size; k++) {
            input[k] = (int8_t)(uint8_t)(k * (2 * n + 37) + n);
        }
        run();
        const int8_t *output = run_output(&size);
        for (int32_t k = 0; k < size; k++) {
            printf("%d%c", output[k], k + 1 < size ? ' ' : '\n');
        }
    }
    return 0;
}
