// The host's memory for tensors: see pool.cpp.
#ifndef ROADMAP_TORCH_POOL_H
#define ROADMAP_TORCH_POOL_H
#include <cstddef>

namespace pool {

struct Stats {
  size_t used; // bytes of large tensors now
  size_t idle; // bytes kept for the next ones
  size_t most; // bytes of large tensors at once, so far
};

Stats stats();
void reset_most();
void release(); // gives the idle memory back to the system

} // namespace pool
#endif
