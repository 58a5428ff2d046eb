/* Time passes in /proc/stat: every read finds a later time. The file is overwritten in place so that no read finds it
   half empty. /usr/lib/testbed/times has what each twentieth of a second adds. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 10, WIDTH = 15 };

int main(void)
{
    const struct timespec pause = {0, 50 * 1000 * 1000};
    long each[COLUMNS];
    int stat = open("/proc/stat", O_WRONLY);
    FILE *times = fopen("/usr/lib/testbed/times", "r");
    for (int column = 0; column < COLUMNS; column++)
        if (!times || fscanf(times, "%ld", &each[column]) != 1)
            return 1;
    fclose(times);
    for (long tick = 1;; tick++) {
        char line[8 + COLUMNS * WIDTH];
        int length = sprintf(line, "cpu");
        for (int column = 0; column < COLUMNS; column++)
            length += sprintf(line + length, " %014ld", each[column] * tick);
        line[length++] = '\n';
        if (pwrite(stat, line, length, 0) != length)
            return 1;
        nanosleep(&pause, NULL);
    }
}
