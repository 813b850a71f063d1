// What Go alone cannot do about its own process: see process.go. Both return 0
// or an errno.
#ifndef ROADMAP_PROCESS_H
#define ROADMAP_PROCESS_H
#ifdef __cplusplus
extern "C" {
#endif

// Ends the process with the code at the second of the signals that this was
// called for, and hands all of them on to Go.
int process_count_signal(int signal, int code);

// Ends the process with a line at a SIGBUS in a mapped file.
int process_explain_sigbus(void);

#ifdef __cplusplus
}
#endif
#endif
