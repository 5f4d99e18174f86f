/* Generated from a memory plan: loads the constants, checks their bytes and all bounds, and returns 0 on success. */
#include "«p»_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t region;
    uint64_t offset;
    uint64_t size;
    uint32_t crc;
} check_t;

#define CHECKS «checks | length»u
#define NO_MEMORY 77 /* the exit status that CTest reports as skipped */

static const check_t checks[] = {
/*% for part, crc in checks %*/
/*% set stem = r.tensor_stems[part.tensor_id] %*/
    {(uint32_t)«stem»_REGION, «stem»_OFFSET, «stem»_SIZE, «crc»u},
/*% else %*/
    {0u, 0u, 0u, 0u},
/*% endfor %*/
};

/* The program links only with objects of the same plan. */
static const uint32_t *const plan_symbol = &«P»_PLAN_SYMBOL;

static int failed(const char *what, unsigned long number) {
    printf("FAILED: %s %lu\n", what, number);
    return 1;
}

static int constants_match(void) {
    unsigned count = CHECKS; /* a variable, because compilers warn about `k < 0u` */
    for (unsigned k = 0; k < count; k++) {
        const uint8_t *arena = «p»_arena_buffers[checks[k].region];
        if («p»_crc32(arena + (size_t)checks[k].offset, checks[k].size) != checks[k].crc) {
            return 0;
        }
    }
    return 1;
}

/* Allocate and bind an arena that has no address. Return 0 if there is not enough memory. */
static int bind_arena(unsigned region) {
    size_t alignment = (size_t)«p»_region_alignment[region];
    size_t size = (size_t)«p»_region_size[region];
    uint8_t *memory;
    if («p»_arena_buffers[region] != NULL) {
        return 1;
    }
    if («p»_region_size[region] > (uint64_t)(SIZE_MAX - alignment)) {
        return 0;
    }
    memory = (uint8_t *)calloc(size + alignment, 1);
    if (memory == NULL) {
        return 0;
    }
    memory += (alignment - (uintptr_t)memory % alignment) % alignment;
    return «p»_bind((«p»_region_t)region, memory) == «P»_OK;
}

int main(void) {
    «p»_status_t status;
    unsigned regions = (unsigned)«P»_REGION_COUNT;
    unsigned tensors = (unsigned)«P»_TENSOR_COUNT;
    if (*plan_symbol != «P»_PLAN_HASH_32) {
        return failed("plan hash", 0);
    }
    for (unsigned region = 0; region < regions; region++) {
        if (!bind_arena(region)) {
            printf("SKIPPED: not enough memory for region %u, %llu bytes\n", region,
                   (unsigned long long)«p»_region_size[region]);
            return NO_MEMORY;
        }
        if ((uintptr_t)«p»_arena_buffers[region] % (uintptr_t)«p»_region_alignment[region] != 0u) {
            return failed("alignment of region", region);
        }
        printf("region %u: %llu bytes\n", region, (unsigned long long)«p»_region_size[region]);
    }
    /* If no constants were exported, a staged region has no source, and ERROR_UNBOUND is the correct result. */
    status = «p»_hydrate_constants();
    if (status != «P»_OK && (CHECKS != 0u || status != «P»_ERROR_UNBOUND)) {
        return failed("hydration, status", (unsigned long)status);
    }
    if (!constants_match()) {
        return failed("constants after hydration", 0);
    }
    for (unsigned k = 0; k < tensors; k++) {
        uint64_t size = «p»_region_size[«p»_tensors[k].region];
        if («p»_tensors[k].offset > size || «p»_tensors[k].size > size - «p»_tensors[k].offset) {
            return failed("bounds of tensor", k);
        }
        if («p»_address(«p»_arena_buffers, k) !=
            «p»_arena_buffers[«p»_tensors[k].region] + (size_t)«p»_tensors[k].offset) {
            return failed("address of tensor", k);
        }
    }
    /* Fill each writable arena with a value that depends on its region id, then check that no two arenas overlap. */
    for (unsigned region = 0; region < regions; region++) {
        if («p»_is_written((«p»_region_t)region)) {
            memset(«p»_arena_buffers[region], (int)(0x5au ^ (region & 0xffu)),
                   (size_t)«p»_region_size[region]);
        }
    }
    for (unsigned region = 0; region < regions; region++) {
        const uint8_t *arena = «p»_arena_buffers[region];
        uint64_t size = «p»_is_written((«p»_region_t)region) ? «p»_region_size[region] : 0u;
        for (uint64_t k = 0; k < size; k++) {
            if (arena[(size_t)k] != (uint8_t)(0x5au ^ (region & 0xffu))) {
                return failed("bytes of region", region);
            }
        }
    }
    if (!constants_match()) {
        return failed("constants after writing every arena", 0);
    }
    printf("constants: %u checked\ntensors: %u\nplan %s\nOK\n", CHECKS, tensors, «p»_plan_hash);
    return 0;
}
