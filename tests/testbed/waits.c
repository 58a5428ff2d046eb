/* Waits for what a program polls for in a loop: libfabric's TCP provider never waits, and takes a processor. */
#define _GNU_SOURCE
#include <poll.h>
#include <time.h>

enum { AT_LEAST_MS = 10 };

int poll(struct pollfd *files, nfds_t count, int timeout_ms)
{
    int wait_ms = timeout_ms == 0 ? AT_LEAST_MS : timeout_ms;
    struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
    return ppoll(files, count, wait_ms < 0 ? NULL : &wait, NULL);
}
