/* Functions to run a model in its planned arenas; write_run.py writes their source. */
#include <stdint.h>

int run_ready(void); /* copies and checks the constants; returns 0 if a byte of them changed */
int8_t *run_input(int32_t *size);
int8_t *run_output(int32_t *size);
void run(void);
