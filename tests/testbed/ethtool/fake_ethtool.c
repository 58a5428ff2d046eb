/* Preloaded into every program of a fake node: what drivers count of its interfaces, as files of that name tell.
 *
 * The interfaces of a fake node's /sys are none of the kernel's: their statistics cannot be asked of it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOLDER "/run/fake-ethtool" /* a folder for each interface, with a file for each counter */

static int is_counter(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int value(const char *folder, const char *name, unsigned long long *out)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    int found = file ? fscanf(file, "%llu", out) : 0;
    if (file)
        fclose(file);
    return found == 1 ? 0 : -1;
}

static int answer(const char *folder, struct dirent **entries, int count, void *data)
{
    struct ethtool_sset_info *sets = data;
    struct ethtool_gstrings *names = data;
    struct ethtool_stats *values = data;
    unsigned long long number;
    switch (*(unsigned int *)data) {
    case ETHTOOL_GSSET_INFO:
        sets->data[0] = (unsigned int)count;
        return 0;
    case ETHTOOL_GSTRINGS:
        for (int place = 0; place < count; place++)
            strncpy((char *)names->data + place * ETH_GSTRING_LEN, entries[place]->d_name, ETH_GSTRING_LEN);
        return 0;
    case ETHTOOL_GSTATS:
        for (int place = 0; place < count; place++) {
            if (value(folder, entries[place]->d_name, &number))
                return -EIO;
            values->data[place] = number;
        }
        return 0;
    }
    return -EOPNOTSUPP;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    char folder[128];
    struct dirent **entries;
    struct ifreq *interface = argument;
    int count = -1;
    if (request == SIOCETHTOOL) {
        snprintf(folder, sizeof folder, FOLDER "/%.*s", IFNAMSIZ, interface->ifr_name);
        count = scandir(folder, &entries, is_counter, alphasort);
    }
    if (count < 0)
        return (int)syscall(SYS_ioctl, fd, request, argument);
    int failed = answer(folder, entries, count, interface->ifr_data);
    while (count--)
        free(entries[count]);
    free(entries);
    errno = failed ? -failed : errno;
    return failed ? -1 : 0;
}
