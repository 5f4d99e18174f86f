/* Generated from a memory plan. Do not edit. */
#ifndef «P»_MEMORY_H
#define «P»_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define «P»_ASSERT(condition, message) static_assert(condition, message)
extern "C" {
#else
#define «P»_ASSERT(condition, message) _Static_assert(condition, message)
#endif

#define «P»_PLAN_HASH "«r.plan_hash»"
#define «P»_PLAN_HASH_32 0x«r.plan_hash[:8]»u

typedef enum {
/*% for arena, name in regions %*/
    «name.stem» = «arena.region_id»,
/*% endfor %*/
    «P»_REGION_COUNT = «regions | length»
} «p»_region_t;

/*% for arena, name in regions %*/
/* «arena.role | comment» in «arena.memory | comment»«(', staged from ' ~ arena.source_memory if arena.is_staged else '') | comment» */
#define «name.stem»_SIZE UINT64_C(«arena.size»)
#define «name.stem»_ALIGNMENT UINT64_C(«arena.alignment»)
«P»_ASSERT((«name.stem»_ALIGNMENT & («name.stem»_ALIGNMENT - 1u)) == 0u, "«name.stem»: alignment");
/*% endfor %*/

/*% for tensor, stem in tensors %*/
/*% set region = r.region_names[tensor.region_id].stem %*/
/* «tensor.tensor_id | comment» */
#define «stem»_REGION «region»
#define «stem»_OFFSET UINT64_C(«tensor.offset»)
#define «stem»_SIZE UINT64_C(«tensor.size»)
«P»_ASSERT(«stem»_OFFSET + «stem»_SIZE <= «region»_SIZE, "«stem»: past its region");
«P»_ASSERT(«stem»_OFFSET % UINT64_C(«tensor.alignment») == 0u, "«stem»: alignment");
/*% endfor %*/

typedef struct {
    uint32_t region;
    uint64_t offset;
    uint64_t size;
} «p»_slot_t;

#define «P»_TENSOR_COUNT «tensors | length»
extern const uint64_t «p»_region_size[];
extern const uint64_t «p»_region_alignment[];
extern const «p»_slot_t «p»_tensors[];
extern const char «p»_plan_hash[];

/* The symbol's name contains the hashes of the plan: code that uses the symbol links only with objects of this plan. */
#define «P»_PLAN_SYMBOL «plan_symbol»
extern const uint32_t «plan_symbol»;

/* Return the address of tensor `index`; `bases` has the address of each region, by region id.
   NULL for an invalid index, and for a region without an address. */
void *«p»_address(uint8_t *const bases[], size_t index);

typedef enum {
    «P»_OK = 0,
    «P»_ERROR_REGION = 1,
    «P»_ERROR_UNBOUND = 2,
    «P»_ERROR_ALIGNMENT = 3,
    «P»_ERROR_BLOB_HASH = 4
} «p»_status_t;

/* Address of each region, by region id; NULL if the caller must bind it. Do not write constants that are not staged. */
extern uint8_t *«p»_arena_buffers[];
/*% for region in r.blob_of %*/
extern const uint8_t «r.region_names[region].blob»[];
/*% endfor %*/

/* bind: set the address of a region. bind_source: set the address of the bytes to copy to a staged region. */
«p»_status_t «p»_bind(«p»_region_t region, void *base);
«p»_status_t «p»_bind_source(«p»_region_t region, const void *source);

/* Return whether the model writes the region: 0 for constants. */
int «p»_is_written(«p»_region_t region);

/* Check the CRC-32 of each constant region whose bytes were exported, and copy the staged constants.
   Call this function before the first run. */
«p»_status_t «p»_hydrate_constants(void);
uint32_t «p»_crc32(const void *data, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif /* «P»_MEMORY_H */
