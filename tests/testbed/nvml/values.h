/* The fake NVML library's answers, and how it is made to misbehave.
 *
 * The file has `key = value` lines, first for the system, then for each `[gpu N]`. A later line overrides an
 * earlier one, so faults can be appended. A value is a number, a boolean (true/false), text, or
 * `error NAME` with NVML's own name for it; `running` is a running counter of nanoseconds.
 * Missing keys are NOT_SUPPORTED. A replaced file is read at the next call.
 *
 *   without = nvmlDeviceGetMigMode,...  these functions are not in this driver
 *   hang = memory_info,...              sleeps for ever in that call (in a GPU's section: for that GPU)
 *   hang_on = /path                     and first writes to that file, which may never come back
 *   slow = init 6                       answers that call after so many seconds
 *   lost_after = 0                      of a GPU: gives its handle, answers so many calls, then is lost for good
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VALUES_FILE "/run/fake-nvml.txt"
#define SYSTEM (-1)
#define MAX_LINES 8192
#define MAX_GPUS 64

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, VERSION_MISMATCH = 25, UNKNOWN = 999 };

static const struct { int code; const char *name; } ERRORS[] = {
    {1, "UNINITIALIZED"}, {2, "INVALID_ARGUMENT"}, {3, "NOT_SUPPORTED"}, {4, "NO_PERMISSION"},
    {5, "ALREADY_INITIALIZED"}, {6, "NOT_FOUND"}, {7, "INSUFFICIENT_SIZE"}, {8, "INSUFFICIENT_POWER"},
    {9, "DRIVER_NOT_LOADED"}, {10, "TIMEOUT"}, {11, "IRQ_ISSUE"}, {12, "LIBRARY_NOT_FOUND"},
    {13, "FUNCTION_NOT_FOUND"}, {14, "CORRUPTED_INFOROM"}, {15, "GPU_IS_LOST"}, {16, "RESET_REQUIRED"},
    {17, "OPERATING_SYSTEM"}, {18, "LIB_RM_VERSION_MISMATCH"}, {19, "IN_USE"}, {20, "MEMORY"},
    {21, "NO_DATA"}, {22, "VGPU_ECC_NOT_SUPPORTED"}, {23, "INSUFFICIENT_RESOURCES"},
    {24, "FREQ_NOT_SUPPORTED"}, {25, "ARGUMENT_VERSION_MISMATCH"}, {26, "DEPRECATED"}, {27, "NOT_READY"},
    {28, "GPU_NOT_FOUND"}, {29, "INVALID_STATE"}, {30, "RESET_TYPE_NOT_SUPPORTED"}, {999, "UNKNOWN"},
};
#define ERROR_COUNT (sizeof ERRORS / sizeof *ERRORS)

typedef void *Device; /* the index of a GPU plus one */
typedef unsigned long long Wide;

static struct { int gpu; char *key, *value; } lines[MAX_LINES];
static int line_count, gpu_count, initialized, asked[MAX_GPUS];

/* ---- the file ---- */

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

static int read_file(void)
{
    FILE *file = fopen(VALUES_FILE, "r");
    if (!file)
        return DRIVER_NOT_LOADED;
    char *line = NULL;
    size_t size = 0;
    int gpu = SYSTEM;
    line_count = gpu_count = 0;
    while (getline(&line, &size, file) >= 0 && line_count < MAX_LINES) {
        char *text = trimmed(line), *equals = strchr(text, '=');
        if (sscanf(text, "[gpu %d]", &gpu) == 1) {
            if (gpu >= gpu_count)
                gpu_count = gpu + 1;
        } else if (*text && *text != '#' && equals) {
            *equals = '\0';
            lines[line_count].gpu = gpu;
            lines[line_count].key = strdup(trimmed(text));
            lines[line_count++].value = strdup(trimmed(equals + 1));
        }
    }
    free(line);
    fclose(file);
    return SUCCESS;
}

/* A replaced file is read again, so that GPUs can change while they are watched. */
static void read_again(void)
{
    static ino_t known;
    struct stat now;
    if (stat(VALUES_FILE, &now))
        return;
    if (known && known != now.st_ino)
        read_file(); /* earlier values stay in memory: a call may hold one */
    known = now.st_ino;
}

static const char *find(int gpu, const char *key)
{
    for (int i = line_count - 1; i >= 0; i--)
        if (lines[i].gpu == gpu && !strcmp(lines[i].key, key))
            return lines[i].value;
    return NULL;
}

/* The call's return code for `value`: SUCCESS for a value, else an error. */
static int status_of(const char *value)
{
    if (!value)
        return NOT_SUPPORTED;
    if (strncmp(value, "error ", 6))
        return SUCCESS;
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (!strcmp(ERRORS[i].name, value + 6))
            return ERRORS[i].code;
    return UNKNOWN;
}

static Wide now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (Wide)now.tv_sec * 1000000000 + (Wide)now.tv_nsec;
}

static int number(int gpu, const char *key, Wide *out)
{
    const char *value = find(gpu, key);
    int status = status_of(value);
    if (status == SUCCESS)
        *out = !strcmp(value, "true") ? 1 : !strcmp(value, "false") ? 0
             : !strcmp(value, "running") ? now_ns() : strtoull(value, NULL, 0);
    return status;
}

static int text(int gpu, const char *key, char *out, unsigned size)
{
    const char *value = find(gpu, key);
    int status = status_of(value);
    if (status != SUCCESS)
        return status;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* ---- misbehaving ---- */

/* nvmlDeviceGetMemoryInfo_v2 and memory_info, as people write it, both become "memoryinfo". */
static void call_word(const char *name, char *out, size_t size)
{
    static const char *const FRONT[] = {"nvml", "Device", "System", "Get"};
    for (size_t i = 0; i < 4; i++)
        if (!strncmp(name, FRONT[i], strlen(FRONT[i])))
            name += strlen(FRONT[i]);
    const char *end = name + strlen(name), *back = strstr(name, "_v");
    if (back && isdigit((unsigned char)back[2]))
        end = back;
    if ((back = strstr(name, "WithFlags")))
        end = back;
    size_t n = 0;
    for (; name < end && n + 1 < size; name++)
        if (*name != '_')
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

static int names(const char *list, const char *call, int exactly)
{
    char copy[1024], word[128], wanted[128], *rest = copy, *name;
    snprintf(copy, sizeof copy, "%s", list ? list : "");
    call_word(call, wanted, sizeof wanted);
    while ((name = strsep(&rest, ", "))) {
        call_word(name, word, sizeof word);
        if (*name && (exactly ? !strcmp(name, call) : !strcmp(word, wanted)))
            return 1;
    }
    return 0;
}

static void hang(int gpu)
{
    const char *path = find(gpu, "hang_on");
    if (path) {
        int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        if (file >= 0 && write(file, "\n", 1) < 0)
            close(file);
    }
    for (;;)
        pause();
}

static int is_lost(const char *call, int gpu)
{
    const char *after = find(gpu, "lost_after");
    if (!after || gpu < 0 || gpu >= MAX_GPUS || strstr(call, "GetHandle"))
        return 0;
    return ++asked[gpu] > atoi(after);
}

static int begin(const char *call, int gpu)
{
    if (initialized)
        read_again();
    if (names(find(SYSTEM, "without"), call, 1))
        return FUNCTION_NOT_FOUND;
    if (names(find(gpu, "hang"), call, 0))
        hang(gpu);
    const char *slow = find(gpu, "slow");
    if (names(slow, call, 0))
        usleep((useconds_t)(1e6 * atof(strchr(slow, ' ') ? strchr(slow, ' ') : "0")));
    if (is_lost(call, gpu))
        return GPU_IS_LOST;
    return initialized ? SUCCESS : UNINITIALIZED;
}

#define BEGIN(gpu) do { int refusal = begin(__func__, gpu); if (refusal) return refusal; } while (0)
#define TRY(call) do { int failure = (call); if (failure) return failure; } while (0)
#define INDEX(device) ((int)(intptr_t)(device) - 1)
