/* Generated from a memory plan. */
#include "«p»_memory.h"

/*# C has no empty arrays: an array without regions or tensors has one unused entry. #*/
/*% for column in ('size', 'alignment') %*/
const uint64_t «p»_region_«column»[] = {
/*% for _, name in regions %*/
    «name.stem»_«column | upper»,
/*% else %*/
    0,
/*% endfor %*/
};

/*% endfor %*/
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
