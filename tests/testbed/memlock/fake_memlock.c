/* Preloaded into every program of a fake node: resource limits and the clock's quality, from files.
 *
 * A limit above this machine's own cannot really be set in a container or an unprivileged machine; and the kernel's
 * clock is the same for all nodes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/types.h>
#include <unistd.h>

#define LIMITS_FILE "/run/fake-limits.txt" /* a line for each resource: its number, its limit or "unlimited" */
#define CLOCK_FILE "/run/fake-clock.txt"   /* the status and the largest error in microseconds */

int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *new, struct rlimit64 *old)
{
    int result = (int)syscall(SYS_prlimit64, pid, resource, new, old);
    FILE *file = result || !old ? NULL : fopen(LIMITS_FILE, "re");
    if (!file)
        return result;
    int number;
    char word[24];
    unsigned long long limit;
    while (fscanf(file, "%d %23s", &number, word) == 2)
        if (number == (int)resource)
            old->rlim_cur = old->rlim_max = sscanf(word, "%llu", &limit) == 1 ? limit : RLIM64_INFINITY;
    fclose(file);
    return result;
}

int adjtimex(struct timex *clock)
{
    int result = (int)syscall(SYS_adjtimex, clock);
    FILE *file = fopen(CLOCK_FILE, "re");
    if (!file)
        return result;
    if (fscanf(file, "%d %ld", &clock->status, &clock->maxerror) == 2)
        result = clock->status & STA_UNSYNC ? TIME_ERROR : TIME_OK;
    fclose(file);
    return result;
}

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit) { return prlimit64(0, resource, NULL, limit); }
int getrlimit(__rlimit_resource_t resource, struct rlimit *limit) { return getrlimit64(resource, (struct rlimit64 *)limit); }

int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *new, struct rlimit *old)
{
    return prlimit64(pid, resource, (const struct rlimit64 *)new, (struct rlimit64 *)old);
}
