#ifdef __cplusplus
#define «P»_ALIGNAS(bytes) alignas(bytes)
#else
#define «P»_ALIGNAS(bytes) _Alignas(bytes)
#endif
#if defined(__GNUC__) && defined(__ELF__)
#define «P»_SECTION(name) __attribute__((section(name)))
#else
#define «P»_SECTION(name)
#endif
