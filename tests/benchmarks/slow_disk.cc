// A disk of so many bytes a second for files whose path holds a given text, by taking the place of pread (LD_PRELOAD).
//
//   SLOW_DISK_PATH   text that paths of slow files hold
//   SLOW_DISK_RATE   bytes a second of all processes together
//   SLOW_DISK_CLOCK  a file of 8 bytes, which they share: when the disk is free again, nanoseconds of CLOCK_MONOTONIC
//
// A read takes as long as the disk needs for its bytes, the page cache notwithstanding.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Pread = ssize_t (*)(int, void*, size_t, off_t);

Pread real_pread = nullptr;
std::atomic<uint64_t>* free_at = nullptr;
const char* slow_path = nullptr;
double bytes_per_ns = 0;

__attribute__((constructor)) void begin() {
  real_pread = reinterpret_cast<Pread>(dlsym(RTLD_NEXT, "pread"));
  const char* clock_file = getenv("SLOW_DISK_CLOCK");
  const char* rate = getenv("SLOW_DISK_RATE");
  slow_path = getenv("SLOW_DISK_PATH");
  if (!clock_file || !rate || !slow_path) return;
  const int file = open(clock_file, O_RDWR);
  void* page = file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    perror(clock_file);
    abort();
  }
  close(file);
  bytes_per_ns = atof(rate) / 1e9;
  free_at = static_cast<std::atomic<uint64_t>*>(page);
}

bool is_slow(int file) {
  char link[32], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = 0;
  return strstr(path, slow_path) != nullptr;
}

}  // namespace

extern "C" ssize_t pread(int file, void* buffer, size_t count, off_t offset) {
  const ssize_t got = real_pread(file, buffer, count, offset);
  if (got <= 0 || !free_at || !is_slow(file)) return got;
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const uint64_t now = time.tv_sec * uint64_t{1000000000} + time.tv_nsec;
  uint64_t before = free_at->load(), until;
  do until = std::max(before, now) + static_cast<uint64_t>(got / bytes_per_ns);
  while (!free_at->compare_exchange_weak(before, until));
  time.tv_sec = until / 1000000000;
  time.tv_nsec = until % 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr)) {
  }
  return got;
}

extern "C" ssize_t pread64(int file, void* buffer, size_t count, off_t offset) { return pread(file, buffer, count, offset); }
