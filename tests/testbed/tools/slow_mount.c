/* Serves a FUSE file system whose device is standard input: an empty folder that takes long to report its sizes. */
#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (256 * 1024)
#define DELAY_US 1000000

static void answer(unsigned long of, int error, const void *data, size_t bytes)
{
    char whole[512];
    struct fuse_out_header head = {.len = sizeof head + bytes, .error = error, .unique = of};

    memcpy(whole, &head, sizeof head);
    if (bytes)
        memcpy(whole + sizeof head, data, bytes);
    if (write(0, whole, head.len) < 0)
        perror("slow_mount");
}

int main(void)
{
    static char request[BYTES];
    const struct fuse_in_header *head = (void *)request;

    while (read(0, request, sizeof request) >= (ssize_t)sizeof *head) {
        switch (head->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
                                        .max_write = 4096};
            answer(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr = {.ino = FUSE_ROOT_ID, .mode = S_IFDIR | 0755, .nlink = 2}};
            answer(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_STATFS: {
            struct fuse_statfs_out out = {.st = {.blocks = 1 << 20, .bfree = 1 << 19, .bavail = 1 << 19, .files = 1 << 20,
                                                 .ffree = 1 << 19, .bsize = 4096, .frsize = 4096, .namelen = 255}};
            usleep(DELAY_US);
            answer(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPENDIR: {
            struct fuse_open_out out = {0};
            answer(head->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READDIR:
        case FUSE_RELEASEDIR:
            answer(head->unique, 0, NULL, 0);
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            break; /* nobody waits for an answer */
        default:
            answer(head->unique, -ENOSYS, NULL, 0);
        }
    }
    return 0;
}
