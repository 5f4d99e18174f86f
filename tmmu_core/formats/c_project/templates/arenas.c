/* Generated from a memory plan: the arenas, their binding, and the loading of constants. */
#include "«p»_memory.h"

#include <string.h>

/* 0: the writable arenas are the static arrays below. 1: the caller binds each writable arena with «p»_bind. */
#ifndef «P»_EXTERNAL_ARENAS
#define «P»_EXTERNAL_ARENAS «'0' if is_static else '1'»
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

/* By region id: the address of a constant region's bytes. The bytes of a staged region are copied to its arena. */
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
    uint8_t has_crc;
    uint32_t crc;
} region_info_t;

static const region_info_t region_info[] = {
/*% for arena, _ in regions %*/
/*% set blob = r.blob_of.get(arena.region_id) %*/
    {«(arena.role == 'constant') | int»u, «arena.is_staged | int»u, «1 if blob else 0»u, «blob.crc32 if blob else 0»u},
/*% else %*/
    {0u, 0u, 0u, 0u},
/*% endfor %*/
};

/* A function: if the count is the constant 0, compilers warn that `region >= 0` is always true. */
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
        if (region_info[region].has_crc &&
            «p»_crc32(source, «p»_region_size[region]) != region_info[region].crc) {
            return «P»_ERROR_BLOB_HASH;
        }
        if (region_info[region].is_staged) {
            memcpy(arena, source, (size_t)«p»_region_size[region]);
        }
    }
    return «P»_OK;
}

uint32_t «p»_crc32(const void *data, uint64_t size) {
    const uint8_t *bytes = (const uint8_t *)data;
    uint32_t crc = 0xffffffffu;
    for (size_t k = 0; k < (size_t)size; k++) {
        crc ^= bytes[k];
        for (unsigned bit = 0; bit < 8u; bit++) {
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}
