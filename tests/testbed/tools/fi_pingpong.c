/* Serves, or asks, over TCP in the place of an EFA device, and prints fi_pingpong's table.
 *
 * The file of speeds has `efa DOMAIN MB/s`, `efa DOMAIN silent` for a device through which nothing comes back, and
 * `efa DOMAIN broken` for one that the server cannot open. Shared memory is not switched off: that is no test of EFA.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *option(char **words, const char *name)
{
    while (*words && strcmp(*words, name))
        words++;
    return *words ? words[1] : NULL;
}

static int ended(int status, const char *error)
{
    fprintf(stderr, "%s\n", error);
    return status;
}

int main(int count, char **words)
{
    const char *port = option(words, "-B"), *shared = getenv("FI_EFA_ENABLE_SHM_TRANSFER");
    const int serves = port != NULL, end = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char row[256], domain[128], value[64], speed[64] = "10921.34";
    FILE *rows = fopen("/usr/lib/testbed/speeds", "r");
    int talk = end;

    if (count < 2 || !rows)
        return ended(2, "no file of speeds");
    while (fgets(row, sizeof row, rows))
        if (sscanf(row, "efa %127s %63s", domain, value) == 2 && !strcmp(domain, option(words, "-d")))
            strcpy(speed, value);
    if (!shared || strcmp(shared, "0"))
        return ended(1, "[error] shared memory is used");
    if (serves && !strcmp(speed, "broken"))
        return ended(61, "fi_getinfo: -61 (No data available)");
    here.sin_port = htons(atoi(serves ? port : option(words, "-P")));
    if (serves) {
        setsockopt(end, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(end, (void *)&here, sizeof here) || listen(end, 1) || (talk = accept(end, NULL, NULL)) < 0)
            return ended(1, "the server cannot listen");
    } else if (connect(end, (void *)&here, sizeof here)) {
        return ended(1, "the client cannot connect");
    }
    if (!strcmp(speed, "silent"))
        return ended(5, "[error] util/pingpong.c:1234: fi_cq_sread: -5 (Input/output error)");
    if (write(talk, "x", 1) != 1 || read(talk, row, 1) != 1)
        return ended(1, "the other end is gone");
    puts("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec");
    printf("1m      200     =200     400m        0.04s  %8s      96.01       0.01\n", speed);
    return 0;
}
