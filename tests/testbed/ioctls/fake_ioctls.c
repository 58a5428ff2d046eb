/* Preloaded into every program of a fake node: drivers' answers about its interfaces and disks, from files.
 *
 * The kernel does not know the interfaces and controllers in a fake node's /sys, so it cannot be asked about them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/ioctl.h>
#include <linux/nvme_ioctl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNTERS "/run/fake-ethtool" /* a folder for each interface, with a file for each counter */
#define PAGES "/run/fake-nvme"       /* a file for each controller: its log page 0xD0 */
#define GET_LOG_PAGE 2
#define INVALID_LOG_PAGE 0x109

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

static int counted(const char *folder, struct dirent **entries, int count, void *data)
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

/* An interface's answer; 1 if the node has no such interface. */
static int of_interface(struct ifreq *interface)
{
    char folder[128];
    struct dirent **entries;
    snprintf(folder, sizeof folder, COUNTERS "/%.*s", IFNAMSIZ, interface->ifr_name);
    int count = scandir(folder, &entries, is_counter, alphasort);
    if (count < 0)
        return 1;
    int failed = counted(folder, entries, count, interface->ifr_data);
    while (count--)
        free(entries[count]);
    free(entries);
    return failed;
}

/* The status in a controller's answer, or less than 0. */
static int of_controller(int fd, struct nvme_admin_cmd *command)
{
    char link[64], device[128], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, device, sizeof device - 1);
    if (length < 0)
        return -EIO;
    device[length] = '\0';
    snprintf(path, sizeof path, PAGES "%s", strrchr(device, '/'));
    uint32_t words = command->cdw10 >> 16, page = command->cdw10 & 0xff;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -EIO;
    ssize_t size = 0;
    if (command->opcode == GET_LOG_PAGE && page == 0xd0 && 4 * (words + 1) == command->data_len)
        size = read(file, (void *)(uintptr_t)command->addr, command->data_len);
    close(file);
    return size > 0 ? 0 : INVALID_LOG_PAGE;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    int answer = 1;
    if (request == NVME_IOCTL_ADMIN_CMD)
        answer = of_controller(fd, argument);
    else if (request != SIOCETHTOOL || (answer = of_interface(argument)) > 0)
        return (int)syscall(SYS_ioctl, fd, request, argument);
    if (answer >= 0)
        return answer;
    errno = -answer;
    return -1;
}
