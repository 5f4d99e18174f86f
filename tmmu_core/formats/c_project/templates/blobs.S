/* Generated from a memory plan: the constants' bytes, from the .bin files in this folder. */
/*% for arena, name in regions if arena.region_id in r.blob_of %*/
/*% set blob = r.blob_of[arena.region_id] %*/
    .section .rodata.«name.blob»,"a",%progbits
    .balign «arena.alignment»
    .global «name.blob»
    .type «name.blob», %object
«name.blob»:
    .incbin "«blob.sidecar_filename»"
    .size «name.blob», «blob.size»
/*% endfor %*/
#ifdef __linux__
    .section .note.GNU-stack,"",%progbits
#endif
