#include <stdalign.h>

#if defined(__GNUC__) && defined(__ELF__)
#define «P»_SECTION(name) __attribute__((section(name)))
#else
#define «P»_SECTION(name)
#endif
