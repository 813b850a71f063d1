#include "process.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace {

// Handlers may call nothing that takes a lock, so output is put together here.
void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return; // nobody to tell
}

struct sigaction before[NSIG]; // Go's handlers
std::atomic<int> signals{0};
int exit_code = 1;

void hand_on(int number, siginfo_t *info, void *context) {
  const struct sigaction &go = before[number];
  if (go.sa_flags & SA_SIGINFO) {
    go.sa_sigaction(number, info, context);
  } else if (go.sa_handler == SIG_DFL) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

void count(int number, siginfo_t *info, void *context) {
  if (signals.fetch_add(1) > 0) _exit(exit_code);
  const int error = errno;
  hand_on(number, info, context);
  errno = error;
}

// Go wants handlers on the thread's alternate stack, and system calls restarted.
int install(int number, void (*handler)(int, siginfo_t *, void *)) {
  struct sigaction now = {};
  now.sa_sigaction = handler;
  now.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&now.sa_mask);
  return sigaction(number, &now, &before[number]) == 0 ? 0 : errno;
}

// Maps reads /proc/self/maps a byte at a time.
struct Maps {
  int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char buffer[4096];
  ssize_t at = 0, end = 0;

  int next() {
    if (at == end) {
      at = 0;
      end = file < 0 ? 0 : read(file, buffer, sizeof buffer);
      if (end <= 0) return end = 0, -1;
    }
    return buffer[at++];
  }

  uintptr_t hex(int until) {
    uintptr_t n = 0;
    for (int c; (c = next()) != until && c >= 0;) n = n * 16 + uintptr_t(c <= '9' ? c - '0' : c - 'a' + 10);
    return n;
  }

  // find gives the path of the file that an address is mapped from, "" for none.
  void find(uintptr_t address, char *path, size_t size) {
    for (;;) {
      const uintptr_t from = hex('-'), to = hex(' ');
      if (to == 0) break;
      size_t n = 0;
      bool in_path = false;
      int c;
      while ((c = next()) != '\n' && c >= 0) {
        in_path = in_path || c == '/';
        if (in_path && n + 1 < size) path[n++] = char(c);
      }
      path[n] = 0;
      if (from <= address && address < to) return;
    }
    path[0] = 0;
  }
};

void explain(int number, siginfo_t *info, void *context) {
  static char path[4096];
  Maps().find(reinterpret_cast<uintptr_t>(info->si_addr), path, sizeof path);
  if (path[0] == 0) return hand_on(number, info, context);
  say("roadmap: ");
  say(path);
  say(" was shortened, or cannot be read any more, while it was in use; put it back whole and start again\n");
  _exit(1);
}

// Runs before any library is started: oneMKL, in libtorch, ends the process
// with a line about itself where there is no working directory.
void check_working_directory(int, char **, char **) {
  static char path[4096];
  if (getcwd(path, sizeof path) != nullptr || errno != ENOENT) return;
  say("roadmap: the working directory has been deleted; change to one that is there\n");
  _exit(2);
}

__attribute__((section(".preinit_array"), used)) void (*const first)(int, char **, char **) = check_working_directory;

} // namespace

int process_count_signal(int number, int code) {
  exit_code = code;
  return install(number, count);
}

int process_explain_sigbus(void) { return install(SIGBUS, explain); }
