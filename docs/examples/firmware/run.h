/* A model whose tensors lie in planned arenas; write_run.py writes its source. */
#include <stdint.h>

int run_ready(void); /* copies and checks the constants; 0: a byte of them was changed */
int8_t *run_input(int32_t *size);
int8_t *run_output(int32_t *size);
void run(void);
