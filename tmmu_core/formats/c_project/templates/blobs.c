/* Generated from a memory plan: the constants' bytes. */
#include "«p»_memory.h"

/*% include 'sections.h' %*/
