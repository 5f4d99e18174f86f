/* Generated from a memory plan. */
#include "«p»_memory.h"

/*# C has no empty arrays: an array without regions or tensors has one unused entry. #*/
const uint64_t «p»_region_size[] = {
/*% for _, name in regions %*/
    «name.stem»_SIZE,
/*% else %*/
    0,
/*% endfor %*/
};

const uint64_t «p»_region_alignment[] = {
/*% for _, name in regions %*/
    «name.stem»_ALIGNMENT,
/*% else %*/
    0,
/*% endfor %*/
};

const «p»_slot_t «p»_tensors[] = {
/*% for _, stem in tensors %*/
    {(uint32_t)«stem»_REGION, «stem»_OFFSET, «stem»_SIZE},
/*% else %*/
    {0u, 0u, 0u},
/*% endfor %*/
};

const char «p»_plan_hash[] = «P»_PLAN_HASH;
const uint32_t «plan_symbol» = «P»_PLAN_HASH_32;

void *«p»_address(uint8_t *const bases[], size_t index) {
/*% if tensors %*/
    if (index >= (size_t)«P»_TENSOR_COUNT || bases[«p»_tensors[index].region] == NULL) {
        return NULL;
    }
    return bases[«p»_tensors[index].region] + (size_t)«p»_tensors[index].offset;
/*% else %*/
    (void)bases;
    (void)index;
    return NULL;
/*% endif %*/
}
