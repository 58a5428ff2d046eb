/* crashes NUMBER: crashes so often, as an unprivileged user, each time in a process of another name. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int *volatile nowhere;

int main(int words, char **word) {
    int crashes = words > 1 ? atoi(word[1]) : 0;
    struct rlimit no_core = {0, 0};
    if (setrlimit(RLIMIT_CORE, &no_core) || setuid(65534)) return 1;
    for (int number = 0; number < crashes; number++) {
        pid_t child = fork();
        if (child < 0) return 1;
        if (!child) {
            char name[16]; /* whatever the user likes */
            snprintf(name, sizeof name, "EXT4-fs-%04x", number & 0xffff);
            prctl(PR_SET_NAME, name);
            return *nowhere;
        }
        if (wait(NULL) != child) return 1;
    }
    return 0;
}
