#include "tile.h"

#if X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern "C" {

int knn_processor(void) {
#if X86
  static const int level = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return static_cast<int>(KNN_BASELINE);
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
      return static_cast<int>(KNN_AVX2);
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const long request = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM: the kernel makes room for the tiles
    const bool tiles = (d >> 24 & 1) && (d >> 25 & 1); // amx-tile, amx-int8
    return static_cast<int>(tiles && syscall(SYS_arch_prctl, request, tile_data) == 0 ? KNN_AMX : KNN_AVX512);
  }();
  return level;
#else
  return KNN_BASELINE;
#endif
}

void *knn_allocate(int64_t bytes) { return aligned_alloc(64, static_cast<size_t>((bytes + 64) / 64 * 64)); }

} // extern "C"
