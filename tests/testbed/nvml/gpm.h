/* The part of the fake library for GPM: a GPU with `gpm = true` has metric 2 as `gpm 2 = 45.5`.
 *
 * There is room for only three samples: a caller that does not free them gets an error.
 */

typedef struct { int gpu, is_taken; } *Sample;
typedef struct { unsigned version, is_supported; } GpmSupport;
typedef struct { unsigned id; int status; double value; const char *info[3]; } Metric;
typedef struct { unsigned version, count; Sample before, now; Metric metrics[]; } MetricsGet;

enum { INSUFFICIENT_RESOURCES = 23, GPM_VERSION = 1 };

static int samples;

static int has_gpm(int gpu)
{
    Wide has = 0;
    return number(gpu, "gpm", &has) == SUCCESS && has;
}

int nvmlGpmQueryDeviceSupport(Device device, GpmSupport *out)
{
    BEGIN(INDEX(device));
    out->is_supported = (unsigned)has_gpm(INDEX(device));
    return out->version == GPM_VERSION ? SUCCESS : VERSION_MISMATCH;
}

int nvmlGpmSampleAlloc(Sample *out)
{
    BEGIN(SYSTEM);
    if (samples >= 3)
        return INSUFFICIENT_RESOURCES;
    samples++;
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

int nvmlGpmSampleFree(Sample sample)
{
    BEGIN(SYSTEM);
    samples--;
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(Device device, Sample sample)
{
    BEGIN(INDEX(device));
    if (!has_gpm(INDEX(device)))
        return NOT_SUPPORTED;
    sample->gpu = INDEX(device);
    sample->is_taken = 1;
    return SUCCESS;
}

int nvmlGpmMetricsGet(MetricsGet *asked)
{
    BEGIN(SYSTEM);
    if (asked->version != GPM_VERSION)
        return VERSION_MISMATCH;
    if (!asked->before->is_taken || !asked->now->is_taken || asked->before->gpu != asked->now->gpu)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++) {
        char key[48];
        snprintf(key, sizeof key, "gpm %u", asked->metrics[i].id);
        const char *value = find(asked->now->gpu, key);
        asked->metrics[i].status = status_of(value);
        asked->metrics[i].value = value ? atof(value) : 0.0;
    }
    return SUCCESS;
}
