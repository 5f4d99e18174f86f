/* A Cortex-M starts here: the vector table, and what the C library is owed before main. Host calls go by semihosting. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern uint8_t board_data_start[], board_data_end[], board_data_stored[], board_bss_start[], board_bss_end[];
extern uint8_t board_stack_top[];
extern void initialise_monitor_handles(void);
extern int main(void);

static void reset(void) {
    memcpy(board_data_start, board_data_stored, (size_t)(board_data_end - board_data_start));
    memset(board_bss_start, 0, (size_t)(board_bss_end - board_bss_start));
    initialise_monitor_handles();
    int code = main();
    fflush(NULL);
    _exit(code); /* nothing was registered to run at the end */
}

static void stuck(void) {
    abort();
}

typedef void (*vector_t)(void);

__attribute__((section(".vectors"), used)) static const vector_t vectors[16] = {
    (vector_t)(uintptr_t)board_stack_top, reset, stuck, stuck, stuck, stuck, stuck, stuck,
    stuck, stuck, stuck, stuck, stuck, stuck, stuck, stuck,
};
