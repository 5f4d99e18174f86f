/* Generated from a memory plan: the arenas, their binding, and the loading of constants. */
#include "«p»_memory.h"

#include <string.h>

/* 0: the writable arenas are the static arrays below. 1: the caller binds each of them with «p»_bind. */
#ifndef «P»_EXTERNAL_ARENAS
#define «P»_EXTERNAL_ARENAS «'0' if fits_image else '1'»
#endif

/*% include 'sections.h' %*/
#if defined(__GNUC__)
#define «P»_WEAK __attribute__((weak))
#else
#define «P»_WEAK
#endif

#if «P»_EXTERNAL_ARENAS
#define «P»_ARENA(buffer) NULL
#else
#define «P»_ARENA(buffer) buffer
/*% for arena, name in regions if arena.has_buffer %*/
/* «arena.role | comment» in «arena.memory | comment» */
alignas(«name.stem»_ALIGNMENT) «P»_SECTION(".bss.«name.symbol»")
uint8_t «name.symbol»[«[arena.size, 1] | max»u];
/*% endfor %*/
#endif

uint8_t *«p»_arena_buffers[] = {
/*% for arena, name in regions %*/
/*% if arena.has_buffer %*/
    «P»_ARENA(«name.symbol»),
/*% else %*/
    «'(uint8_t *)' ~ name.symbol if arena.region_id in r.blob_of else 'NULL'»,
/*% endif %*/
/*% else %*/
    NULL,
/*% endfor %*/
};

/* By region id: the bytes of a constant region, from which a staged region is copied. */
static const uint8_t *sources[] = {
/*% for arena, name in regions %*/
    «name.blob if arena.region_id in r.blob_of else 'NULL'»,
/*% else %*/
    NULL,
/*% endfor %*/
};

typedef struct {
    uint8_t is_constant;
    uint8_t is_staged;
    uint8_t has_digest;
    uint8_t digest[32];
} region_info_t;

static const region_info_t region_info[] = {
/*% for arena, _ in regions %*/
    {«(arena.role == 'constant') | int»u, «arena.is_staged | int»u, «(arena.region_id in r.blob_of) | int»u, «r.blob_of[arena.region_id].sha256 | c_bytes if arena.region_id in r.blob_of else '{0}'»},
/*% else %*/
    {0u, 0u, 0u, {0}},
/*% endfor %*/
};

/* A function, because compilers warn about `region >= 0` if the constant is 0. */
static unsigned region_count(void) {
    return (unsigned)«P»_REGION_COUNT;
}

«p»_status_t «p»_bind(«p»_region_t region, void *base) {
    if ((unsigned)region >= region_count()) {
        return «P»_ERROR_REGION;
    }
    if ((uintptr_t)base % (uintptr_t)«p»_region_alignment[region] != 0u) {
        return «P»_ERROR_ALIGNMENT;
    }
    «p»_arena_buffers[region] = (uint8_t *)base;
    return «P»_OK;
}

«p»_status_t «p»_bind_source(«p»_region_t region, const void *source) {
    if ((unsigned)region >= region_count() || !region_info[region].is_staged) {
        return «P»_ERROR_REGION;
    }
    sources[region] = (const uint8_t *)source;
    return «P»_OK;
}

int «p»_is_written(«p»_region_t region) {
    return !region_info[region].is_constant;
}

«P»_WEAK «p»_status_t «p»_hydrate_constants(void) {
    for (unsigned region = 0; region < region_count(); region++) {
        uint8_t *arena = «p»_arena_buffers[region];
        const uint8_t *source = region_info[region].is_staged ? sources[region] : arena;
        if (!region_info[region].is_constant) {
            continue;
        }
        if (arena == NULL || source == NULL) {
            return «P»_ERROR_UNBOUND;
        }
        if (region_info[region].has_digest) {
            uint8_t digest[32];
            «p»_sha256(source, «p»_region_size[region], digest);
            if (memcmp(digest, region_info[region].digest, sizeof digest) != 0) {
                return «P»_ERROR_BLOB_HASH;
            }
        }
        if (region_info[region].is_staged) {
            memcpy(arena, source, (size_t)«p»_region_size[region]);
        }
    }
    return «P»_OK;
}

/* SHA-256 (FIPS 180-4). */
static const uint32_t round_constants[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

static uint32_t rotate_right(uint32_t word, unsigned bits) {
    return (word >> bits) | (word << (32u - bits));
}

static void sha256_block(uint32_t state[8], const uint8_t block[64]) {
    uint32_t w[64];
    uint32_t v[8];
    for (unsigned k = 0; k < 16u; k++) {
        w[k] = ((uint32_t)block[4u * k] << 24) | ((uint32_t)block[4u * k + 1u] << 16) |
               ((uint32_t)block[4u * k + 2u] << 8) | (uint32_t)block[4u * k + 3u];
    }
    for (unsigned k = 16; k < 64u; k++) {
        uint32_t low = rotate_right(w[k - 15u], 7) ^ rotate_right(w[k - 15u], 18) ^ (w[k - 15u] >> 3);
        uint32_t high = rotate_right(w[k - 2u], 17) ^ rotate_right(w[k - 2u], 19) ^ (w[k - 2u] >> 10);
        w[k] = w[k - 16u] + low + w[k - 7u] + high;
    }
    memcpy(v, state, sizeof v);
    for (unsigned k = 0; k < 64u; k++) {
        uint32_t t1 = v[7] + (rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25)) +
                      ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[k] + w[k];
        uint32_t t2 = (rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22)) +
                      ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(&v[1], &v[0], 7u * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (unsigned k = 0; k < 8u; k++) {
        state[k] += v[k];
    }
}

void «p»_sha256(const void *data, uint64_t size, uint8_t digest[32]) {
    uint32_t state[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                         0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    const uint8_t *next = (const uint8_t *)data;
    uint8_t padded[128];
    uint64_t remaining = size;
    unsigned padded_size;
    for (; remaining >= 64u; remaining -= 64u, next += 64) {
        sha256_block(state, next);
    }
    memset(padded, 0, sizeof padded);
    if (remaining != 0u) {
        memcpy(padded, next, (size_t)remaining);
    }
    padded[remaining] = 0x80u;
    padded_size = remaining < 56u ? 64u : 128u;
    for (unsigned k = 0; k < 8u; k++) {
        padded[padded_size - 1u - k] = (uint8_t)((size << 3) >> (8u * k));
    }
    sha256_block(state, padded);
    if (padded_size == 128u) {
        sha256_block(state, padded + 64);
    }
    for (unsigned k = 0; k < 32u; k++) {
        digest[k] = (uint8_t)(state[k / 4u] >> (24u - 8u * (k % 4u)));
    }
}
