/* An instance metadata service: answers HTTP on a free port of loopback from the files of FOLDER, and writes the
 * address to /etc/environment, as AWS's SDKs expect. The file `http-tokens` contains required, optional,
 * `refused` (nobody gets a token) or `silent` (nobody gets an answer). */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define FOLDER "/usr/lib/testbed/imds"
#define TOKEN "AQAEAtoken=="

static void answer(int client, int status, const char *body)
{
    char text[16384];
    int length = snprintf(text, sizeof text, "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          status, strlen(body), body);
    if (write(client, text, (size_t)length) < 0)
        perror("imds");
}

static const char *file(const char *name, char *text, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    FILE *found = fopen(path, "r");
    if (!found)
        return NULL;
    text[fread(text, 1, size - 1, found)] = 0;
    fclose(found);
    return text;
}

static void serve(int client)
{
    char request[4096] = "", method[16] = "", path[256] = "", tokens[64] = "required", body[8192];
    size_t got = 0;
    ssize_t more;
    while (!strstr(request, "\r\n\r\n") && (more = read(client, request + got, sizeof request - 1 - got)) > 0)
        request[got += (size_t)more] = 0;
    if (sscanf(request, "%15s %255s", method, path) != 2 || strstr(path, ".."))
        return;
    file("http-tokens", tokens, sizeof tokens);
    if (!strncmp(tokens, "silent", 6)) {
        while (read(client, request, sizeof request) > 0)
            ;
        return;
    }
    if (!strcmp(method, "PUT") && !strcmp(path, "/latest/api/token"))
        answer(client, strncmp(tokens, "refused", 7) ? 200 : 403, TOKEN);
    else if (!strstr(request, "X-aws-ec2-metadata-token: " TOKEN) && strncmp(tokens, "optional", 8))
        answer(client, 401, "");
    else if (file(path + 1, body, sizeof body))
        answer(client, 200, body);
    else
        answer(client, 404, "");
}

int main(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int service = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(service, (struct sockaddr *)&here, size) || listen(service, 16) ||
        getsockname(service, (struct sockaddr *)&here, &size)) {
        perror("imds");
        return 1;
    }
    FILE *environment = fopen("/etc/environment", "a"), *pid = fopen("/run/imds.pid", "w");
    fprintf(environment, "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:%d\n", ntohs(here.sin_port));
    fclose(environment);
    fprintf(pid, "%d\n", getpid());
    fclose(pid);
    for (;;) {
        int client = accept(service, NULL, NULL);
        serve(client);
        close(client);
    }
}
