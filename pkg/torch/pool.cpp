// Memory for tensors on the CPU. The C library gives a large block back to the
// system when it is freed and fetches another, page by page and zeroed, for the
// next tensor: a tenth to a third of the processor time of a training step. Here
// its pages are kept and used again.
//
// What a step frees seldom has the sizes that it wants next, so a block for
// which no idle one is large enough is put together from the pages of several:
// mremap moves pages to other addresses without copying. New pages are asked
// for only when none is idle. So the process holds no more than its tensors
// needed at one time, and nothing is lost between blocks.
//
// Measured beside what could stand in its place: BenchmarkStep of package
// backbones, channels last, on two cores busy with other work, in turns, the
// least of two passes (one for the last four in float32); processor seconds a step, and the process's largest memory:
//
//                                 ResNet-50, 32 at 224 pixels      convnet,
//                                 bfloat16          float32        128 at 28
//   this file                     5.3 s  2.12 GB    9.1 s  3.38 GB    130 ms  264 MB
//   glibc 2.36                    8.2    2.52       11.5   3.98       141     386
//   glibc, mmap_max=0, trim_threshold=1TiB, top_pad=64MiB
//                                 7.4    3.32       9.3    5.09       129     424
//   the same with arena_max=1     10.9   3.40       9.2    4.62       130     429
//   jemalloc 5.3                  7.7    2.13       12.2   3.40       182     282
//   jemalloc, dirty_decay_ms and muzzy_decay_ms -1, oversize_threshold 0
//                                 5.6    2.25       9.5    3.64       127     299
//   mimalloc 2.0.9                8.2    2.14       13.3   3.44       170     292
//   mimalloc, page_reset=0, reset_delay=100000
//                                 6.4    2.25       13.7   3.55       180     298
//
// So glibc takes half as much time again or half as much memory again. jemalloc
// with its pages kept comes within 6 % of the time and takes 6 to 13 % more
// memory; it would have to be loaded before libtorch, with these settings.
#include "pool.h"

#include <algorithm>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <unordered_map>
#include <utility>

namespace {

constexpr size_t least = 1 << 20;   // smaller blocks are the C library's
constexpr size_t grain = 64 << 10;  // sizes are multiples of it
constexpr size_t most_seams = 8192; // a process may have 65,530 mappings

class Pool final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t n) override {
    void *p = n < least || n > PTRDIFF_MAX ? nullptr : take((n + grain - 1) / grain * grain);
    if (p == nullptr) p = rest->raw_allocate(n); // or it says that there is no memory
    return {p, p, &give, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void *to, const void *from, size_t n) const override { default_copy_data(to, from, n); }

  pool::Stats stats() {
    std::lock_guard<std::mutex> lock(mutex);
    return {used, idle, most};
  }
  void reset_most() {
    std::lock_guard<std::mutex> lock(mutex);
    most = used;
  }
  void release() {
    std::lock_guard<std::mutex> lock(mutex);
    release_idle();
  }

private:
  using Address = uintptr_t;
  static void *pointer(Address at) { return reinterpret_cast<void *>(at); }

  c10::Allocator *const rest = c10::GetDefaultCPUAllocator();
  std::mutex mutex;
  size_t used = 0, idle = 0, most = 0;
  std::unordered_map<Address, size_t> blocks; // in use
  std::map<Address, size_t> by_address;       // idle; no two touch
  std::set<std::pair<size_t, Address>> by_size;
  std::set<Address> seams; // where a mapping begins: mremap does not move across

  // take returns a block of n bytes, NULL if there is no memory.
  void *take(size_t n) {
    std::lock_guard<std::mutex> lock(mutex);
    Address at;
    auto fit = by_size.lower_bound({n, 0});
    if (fit != by_size.end()) {
      at = fit->second;
      split(at, n);
    } else {
      at = map(n);
      if (at != 0 && !gather(at, n)) {
        release_idle();
        at = map(n);
      }
      if (at == 0) return nullptr;
    }
    blocks[at] = n;
    used += n;
    most = std::max(most, used);
    return pointer(at);
  }

  // give takes a block back, or hands what is not of the pool to whose it is.
  static void give(void *p);

  bool put_back(void *p) {
    if (reinterpret_cast<Address>(p) % 4096 != 0) return false; // as those of the C library mostly are
    std::lock_guard<std::mutex> lock(mutex);
    auto block = blocks.find(reinterpret_cast<Address>(p));
    if (block == blocks.end()) return false;
    used -= block->second;
    add_idle(block->first, block->second);
    blocks.erase(block);
    return true;
  }

  // map reserves n bytes of new addresses, 0 if the system refuses. Pages come
  // with their first use.
  Address map(size_t n) {
    for (bool again : {true, false}) {
      void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p != MAP_FAILED) {
        seams.insert(reinterpret_cast<Address>(p));
        return reinterpret_cast<Address>(p);
      }
      if (again) release_idle();
    }
    return 0;
  }

  // gather moves idle pages to the n bytes at an address, as far as they last;
  // false, the address gone, if the system refuses.
  bool gather(Address at, size_t n) {
    const Address start = at, end = at + n;
    if (seams.size() > most_seams) release_idle();
    while (at < end && !by_size.empty()) {
      auto [size, from] = *by_size.rbegin();
      const size_t wanted = std::min<size_t>(size, end - at);
      split(from, wanted);
      for (const Address stop = from + wanted; from < stop;) {
        auto seam = seams.upper_bound(from);
        const size_t part = (seam == seams.end() ? stop : std::min(stop, *seam)) - from;
        if (mremap(pointer(from), part, part, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(at)) == MAP_FAILED) {
          // The system may have taken [at, at + part) away before it refused, and have given it
          // to another thread since: all but that goes back.
          munmap(pointer(from), stop - from);
          seams.erase(seams.lower_bound(from), seams.lower_bound(stop));
          mark(stop);
          munmap(pointer(start), at - start);
          munmap(pointer(at + part), end - at - part);
          seams.erase(seams.lower_bound(start), seams.lower_bound(end));
          mark(end);
          return false;
        }
        seams.erase(from);
        seams.insert(at);
        from += part, at += part;
      }
      mark(from);
    }
    if (at < end) seams.insert(at);
    return true;
  }

  // mark notes that the mapping before an address is gone, so that one begins
  // there if the address is the pool's.
  void mark(Address at) {
    if (blocks.count(at) || by_address.count(at)) seams.insert(at);
  }

  // split takes the first n bytes from an idle block.
  void split(Address at, size_t n) {
    auto block = by_address.find(at);
    size_t size = block->second;
    by_size.erase({size, at});
    by_address.erase(block);
    idle -= size;
    if (size > n) add_idle(at + n, size - n);
  }

  void add_idle(Address at, size_t n) {
    idle += n;
    auto next = by_address.lower_bound(at);
    if (next != by_address.end() && next->first == at + n) {
      n += next->second;
      by_size.erase({next->second, next->first});
      next = by_address.erase(next);
    }
    if (next != by_address.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == at) {
        by_size.erase({before->second, before->first});
        at = before->first, n += before->second;
        by_address.erase(before);
      }
    }
    by_address[at] = n;
    by_size.insert({n, at});
  }

  void release_idle() {
    for (auto [at, n] : by_address) {
      munmap(pointer(at), n);
      seams.erase(seams.lower_bound(at), seams.lower_bound(at + n));
      if (blocks.count(at + n)) seams.insert(at + n);
    }
    by_address.clear();
    by_size.clear();
    idle = 0;
  }
};

Pool &the_pool() {
  static Pool *p = new Pool; // for ever: tensors outlive main
  return *p;
}

void Pool::give(void *p) {
  if (!the_pool().put_back(p)) the_pool().rest->raw_deallocate(p);
}

const bool installed = (c10::SetCPUAllocator(&the_pool()), true);

} // namespace

namespace pool {

Stats stats() { return the_pool().stats(); }
void reset_most() { the_pool().reset_most(); }
void release() { the_pool().release(); }

} // namespace pool
