/* Preloaded into every program of a fake node: says that it may lock as much memory as a file tells.
 *
 * A limit above this machine's own cannot really be set in a container or an unprivileged machine. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define VALUE_FILE "/run/fake-memlock.txt"

int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *new, struct rlimit64 *old)
{
    int result = (int)syscall(SYS_prlimit64, pid, resource, new, old);
    if (result || !old || resource != RLIMIT_MEMLOCK)
        return result;
    unsigned long long bytes;
    FILE *file = fopen(VALUE_FILE, "re");
    if (!file)
        return result;
    old->rlim_cur = fscanf(file, "%llu", &bytes) == 1 ? bytes : RLIM64_INFINITY;
    old->rlim_max = old->rlim_cur;
    fclose(file);
    return result;
}

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit) { return prlimit64(0, resource, NULL, limit); }
int getrlimit(__rlimit_resource_t resource, struct rlimit *limit) { return getrlimit64(resource, (struct rlimit64 *)limit); }

int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *new, struct rlimit *old)
{
    return prlimit64(pid, resource, (const struct rlimit64 *)new, (struct rlimit64 *)old);
}
