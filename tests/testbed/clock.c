/* Shifts the wall clock by the seconds in /run/clock-offset; monotonic clocks are unchanged. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void)
{
    char text[32] = "";
    int file = open("/run/clock-offset", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0)
            text[0] = '\0';
        close(file);
    }
    return (time_t)atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return failed;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
