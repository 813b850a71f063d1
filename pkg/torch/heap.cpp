// One heap for all threads. glibc would give each thread that allocates one of
// its own, and memory that a step frees in one is no use to the next step in
// another. Go moves its work from thread to thread, so that costs a training
// step up to a third more memory, and the time to fetch it from the system.

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>

namespace {

struct OneHeap {
  OneHeap() {
    if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, 1);
  }
} one_heap;

} // namespace
#endif
