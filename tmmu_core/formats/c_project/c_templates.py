"""Templates of a C project, with placeholders (``@NAME@``) for the parts that depend on the plan."""

from __future__ import annotations

ARENAS_C = """\
/* Generated from a memory plan: the arenas, and what is done before the first run. */
#include "@prefix@_memory.h"

#include <string.h>

/* 1: the program keeps no room for arenas; the caller binds each of them. */
#ifndef @PREFIX@_EXTERNAL_ARENAS
#define @PREFIX@_EXTERNAL_ARENAS @EXTERNAL_DEFAULT@
#endif

#ifdef __cplusplus
#define @PREFIX@_ALIGNAS(bytes) alignas(bytes)
#else
#define @PREFIX@_ALIGNAS(bytes) _Alignas(bytes)
#endif
#if defined(__GNUC__) && defined(__ELF__)
#define @PREFIX@_SECTION(name) __attribute__((section(name)))
#else
#define @PREFIX@_SECTION(name)
#endif
#if defined(__GNUC__)
#define @PREFIX@_WEAK __attribute__((weak))
#else
#define @PREFIX@_WEAK
#endif

#if @PREFIX@_EXTERNAL_ARENAS
#define @PREFIX@_OWN(buffer) NULL
#else
#define @PREFIX@_OWN(buffer) buffer
@ROOM@
#endif

uint8_t *@prefix@_arena_buffers[] = {
@BUFFERS@
};

static const uint8_t *sources[] = {
@SOURCES@
};

typedef struct {
    uint8_t is_constant;
    uint8_t is_staged;
    uint8_t has_digest;
    uint8_t digest[32];
} facts_t;

static const facts_t facts[] = {
@FACTS@
};

static unsigned regions(void) {
    return (unsigned)@PREFIX@_REGION_COUNT;
}

@prefix@_status_t @prefix@_bind(@prefix@_region_t region, void *base) {
    if ((unsigned)region >= regions()) {
        return @PREFIX@_ERROR_REGION;
    }
    if ((uintptr_t)base % (uintptr_t)@prefix@_region_alignment[region] != 0u) {
        return @PREFIX@_ERROR_ALIGNMENT;
    }
    @prefix@_arena_buffers[region] = (uint8_t *)base;
    return @PREFIX@_OK;
}

@prefix@_status_t @prefix@_bind_source(@prefix@_region_t region, const void *source) {
    if ((unsigned)region >= regions() || !facts[region].is_staged) {
        return @PREFIX@_ERROR_REGION;
    }
    sources[region] = (const uint8_t *)source;
    return @PREFIX@_OK;
}

int @prefix@_is_written(@prefix@_region_t region) {
    return !facts[region].is_constant;
}

@PREFIX@_WEAK @prefix@_status_t @prefix@_hydrate_constants(void) {
    for (unsigned region = 0; region < regions(); region++) {
        uint8_t *arena = @prefix@_arena_buffers[region];
        const uint8_t *stored = facts[region].is_staged ? sources[region] : arena;
        if (!facts[region].is_constant) {
            continue;
        }
        if (arena == NULL || stored == NULL) {
            return @PREFIX@_ERROR_UNBOUND;
        }
        if (facts[region].has_digest) {
            uint8_t digest[32];
            @prefix@_sha256(stored, @prefix@_region_size[region], digest);
            if (memcmp(digest, facts[region].digest, sizeof digest) != 0) {
                return @PREFIX@_ERROR_BLOB_HASH;
            }
        }
        if (facts[region].is_staged) {
            memcpy(arena, stored, (size_t)@prefix@_region_size[region]);
        }
    }
    return @PREFIX@_OK;
}

/* SHA-256, as FIPS 180-4 writes it. */
static const uint32_t rounds[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

static uint32_t turned(uint32_t word, unsigned by) {
    return (word >> by) | (word << (32u - by));
}

static void sha256_block(uint32_t state[8], const uint8_t block[64]) {
    uint32_t w[64];
    uint32_t v[8];
    for (unsigned k = 0; k < 16u; k++) {
        w[k] = ((uint32_t)block[4u * k] << 24) | ((uint32_t)block[4u * k + 1u] << 16) |
               ((uint32_t)block[4u * k + 2u] << 8) | (uint32_t)block[4u * k + 3u];
    }
    for (unsigned k = 16; k < 64u; k++) {
        uint32_t low = turned(w[k - 15u], 7) ^ turned(w[k - 15u], 18) ^ (w[k - 15u] >> 3);
        uint32_t high = turned(w[k - 2u], 17) ^ turned(w[k - 2u], 19) ^ (w[k - 2u] >> 10);
        w[k] = w[k - 16u] + low + w[k - 7u] + high;
    }
    memcpy(v, state, sizeof v);
    for (unsigned k = 0; k < 64u; k++) {
        uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) +
                       ((v[4] & v[5]) ^ (~v[4] & v[6])) + rounds[k] + w[k];
        uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) +
                       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(&v[1], &v[0], 7u * sizeof v[0]);
        v[4] += one;
        v[0] = one + two;
    }
    for (unsigned k = 0; k < 8u; k++) {
        state[k] += v[k];
    }
}

void @prefix@_sha256(const void *data, uint64_t size, uint8_t digest[32]) {
    uint32_t state[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                         0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    const uint8_t *next = (const uint8_t *)data;
    uint8_t last[128];
    uint64_t left = size;
    unsigned tail;
    for (; left >= 64u; left -= 64u, next += 64) {
        sha256_block(state, next);
    }
    memset(last, 0, sizeof last);
    if (left != 0u) {
        memcpy(last, next, (size_t)left);
    }
    last[left] = 0x80u;
    tail = left < 56u ? 64u : 128u;
    for (unsigned k = 0; k < 8u; k++) {
        last[tail - 1u - k] = (uint8_t)((size << 3) >> (8u * k));
    }
    sha256_block(state, last);
    if (tail == 128u) {
        sha256_block(state, last + 64);
    }
    for (unsigned k = 0; k < 32u; k++) {
        digest[k] = (uint8_t)(state[k / 4u] >> (24u - 8u * (k % 4u)));
    }
}
"""

SELFTEST_C = """\
/* Generated from a memory plan: hydrates, and checks every constant's bytes and every bound. 0: all is as planned. */
#include "@prefix@_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t region;
    uint64_t offset;
    uint64_t size;
    uint8_t digest[32];
} check_t;

#define CHECKS @COUNT@u
#define NO_ROOM 77

static const check_t checks[] = {
@CHECKS@
};

/* The plan that these arenas were made for: a symbol of that very name, or no linking. */
static const uint32_t *const made_for = &@PREFIX@_PLAN_SYMBOL;

static int failed(const char *what, unsigned long which) {
    printf("FAILED: %s %lu\\n", what, which);
    return 1;
}

static int constants_are_right(void) {
    unsigned count = CHECKS;
    for (unsigned k = 0; k < count; k++) {
        const uint8_t *arena = @prefix@_arena_buffers[checks[k].region];
        uint8_t digest[32];
        @prefix@_sha256(arena + (size_t)checks[k].offset, checks[k].size, digest);
        if (memcmp(digest, checks[k].digest, sizeof digest) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Arenas that are the caller's to bind get memory of their own here. */
static int bound(unsigned region) {
    size_t alignment = (size_t)@prefix@_region_alignment[region];
    size_t size = (size_t)@prefix@_region_size[region];
    uint8_t *room;
    if (@prefix@_arena_buffers[region] != NULL) {
        return 1;
    }
    if (@prefix@_region_size[region] > (uint64_t)(SIZE_MAX - alignment)) {
        return 0;
    }
    room = (uint8_t *)calloc(size + alignment, 1);
    if (room == NULL) {
        return 0;
    }
    room += (alignment - (uintptr_t)room % alignment) % alignment;
    return @prefix@_bind((@prefix@_region_t)region, room) == @PREFIX@_OK;
}

int main(void) {
    @prefix@_status_t status;
    unsigned regions = (unsigned)@PREFIX@_REGION_COUNT;
    unsigned tensors = (unsigned)@PREFIX@_TENSOR_COUNT;
    if (*made_for != @PREFIX@_PLAN_HASH_32) {
        return failed("plan hash", 0);
    }
    for (unsigned region = 0; region < regions; region++) {
        if (!bound(region)) {
            printf("SKIPPED: no room for region %u, %llu bytes\\n", region,
                   (unsigned long long)@prefix@_region_size[region]);
            return NO_ROOM;
        }
        if ((uintptr_t)@prefix@_arena_buffers[region] % (uintptr_t)@prefix@_region_alignment[region] != 0u) {
            return failed("alignment of region", region);
        }
        printf("region %u: %llu bytes\\n", region, (unsigned long long)@prefix@_region_size[region]);
    }
    status = @prefix@_hydrate_constants();
    if (status != @PREFIX@_OK && (CHECKS != 0u || status != @PREFIX@_ERROR_UNBOUND)) {
        return failed("hydration, status", (unsigned long)status);
    }
    if (!constants_are_right()) {
        return failed("constants after hydration", 0);
    }
    for (unsigned k = 0; k < tensors; k++) {
        uint64_t size = @prefix@_region_size[@prefix@_tensors[k].region];
        if (@prefix@_tensors[k].offset > size || @prefix@_tensors[k].size > size - @prefix@_tensors[k].offset) {
            return failed("bounds of tensor", k);
        }
        if (@prefix@_address(@prefix@_arena_buffers, k) !=
            @prefix@_arena_buffers[@prefix@_tensors[k].region] + (size_t)@prefix@_tensors[k].offset) {
            return failed("address of tensor", k);
        }
    }
    /* Every byte of what the model writes is filled, arena by arena; the constants and every other arena stay. */
    for (unsigned region = 0; region < regions; region++) {
        if (@prefix@_is_written((@prefix@_region_t)region)) {
            memset(@prefix@_arena_buffers[region], (int)(0x5au ^ (region & 0xffu)),
                   (size_t)@prefix@_region_size[region]);
        }
    }
    for (unsigned region = 0; region < regions; region++) {
        const uint8_t *arena = @prefix@_arena_buffers[region];
        uint64_t size = @prefix@_region_size[region];
        if (@prefix@_is_written((@prefix@_region_t)region)) {
            for (uint64_t k = 0; k < size; k++) {
                if (arena[(size_t)k] != (uint8_t)(0x5au ^ (region & 0xffu))) {
                    return failed("bytes of region", region);
                }
            }
        }
    }
    if (!constants_are_right()) {
        return failed("constants after writing every arena", 0);
    }
    printf("constants: %u checked\\ntensors: %u\\nplan %s\\nOK\\n", CHECKS, tensors, @prefix@_plan_hash);
    return 0;
}
"""

CMAKE = """\
# Generated from a memory plan.
cmake_minimum_required(VERSION 3.13)
project(@prefix@_memory LANGUAGES @LANGUAGES@)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

@NEEDS@
add_library(@prefix@_memory STATIC @prefix@_memory.c @prefix@_arenas.c@BLOBS@)
target_include_directories(@prefix@_memory PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")

include(CTest)
if(BUILD_TESTING)
    add_executable(@prefix@_selftest @prefix@_selftest.c)
    target_link_libraries(@prefix@_selftest PRIVATE @prefix@_memory)
    add_test(NAME @prefix@_selftest COMMAND @prefix@_selftest)
    set_tests_properties(@prefix@_selftest PROPERTIES SKIP_RETURN_CODE 77)
endif()
"""
