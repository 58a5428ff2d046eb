/* The part of the fake library for fields, NVLinks and the fabric. */

/* ---- a GPU: fields by number ---- */

enum { EFFECTIVE_BER = 220, SYMBOL_BER = 222, NO_BIT_ERROR = 15 << 8 | 255 }; /* a rate of 15e-255 */

static int link_field(int gpu, unsigned link, unsigned field, Wide *out)
{
    Wide count, version = 4;
    char key[48];
    TRY(number(gpu, "nvlinks", &count));
    number(gpu, "nvlink_version", &version);
    if (version < 5)
        return NOT_SUPPORTED;
    if (link >= count)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink %u field %u", link, field);
    *out = field == EFFECTIVE_BER || field == SYMBOL_BER ? NO_BIT_ERROR : 0;
    return find(gpu, key) ? number(gpu, key, out) : SUCCESS;
}

typedef struct {
    unsigned id, scope;
    int64_t timestamp, latency_us;
    unsigned type;
    int status;
    union { double real; unsigned narrow; Wide wide; } value;
} FieldValue;

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, FIRST_LINK_FIELD = 206, LAST_LINK_FIELD = 222 };

static const struct { unsigned id; const char *key; } NAMED[] = {
    {29, "retired_pages_single_bit"}, {30, "retired_pages_double_bit"}, {230, "recovery_action"},
};

/* `field 29 = 2` sets any field; some fields also have names. */
static int field_value(int gpu, const FieldValue *field, Wide *out)
{
    char key[48];
    snprintf(key, sizeof key, "field %u", field->id);
    for (size_t i = 0; !find(gpu, key) && i < sizeof NAMED / sizeof *NAMED; i++)
        if (NAMED[i].id == field->id)
            return number(gpu, NAMED[i].key, out);
    if (find(gpu, key) || field->id < FIRST_LINK_FIELD || field->id > LAST_LINK_FIELD)
        return number(gpu, key, out);
    return link_field(gpu, field->scope, field->id, out);
}

int nvmlDeviceGetFieldValues(Device device, int count, FieldValue *fields)
{
    BEGIN(INDEX(device));
    for (FieldValue *field = fields; field < fields + count; field++) {
        field->value.wide = 0;
        field->type = field->id == 230 ? UNSIGNED_INT : UNSIGNED_LONG_LONG;
        field->status = field_value(INDEX(device), field, &field->value.wide);
    }
    return SUCCESS;
}

/* ---- a GPU: NVLink and the fabric ---- */

/* `nvlinks` is their number; `nvlink 5 = inactive` or `= error …` sets one. */
int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active)
{
    Wide count;
    char key[32];
    BEGIN(INDEX(device));
    TRY(number(INDEX(device), "nvlinks", &count));
    if (link >= count)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink %u", link);
    const char *state = find(INDEX(device), key);
    if (state)
        TRY(status_of(state));
    *active = !state || strcmp(state, "inactive");
    return SUCCESS;
}

/* Replay, recovery, CRC … of a link: zero, or `nvlink 5 errors 1 = 12` by NVML's number of the counter.
   From `nvlink_version = 5` on there are only fields: zero, or `nvlink 5 field 214 = 2`. */
int nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned link, unsigned counter, Wide *out)
{
    Wide count, version = 4;
    char key[48];
    BEGIN(INDEX(device));
    TRY(number(INDEX(device), "nvlinks", &count));
    number(INDEX(device), "nvlink_version", &version);
    if (version >= 5)
        return NOT_SUPPORTED;
    if (link >= count)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink %u errors %u", link, counter);
    *out = 0;
    return find(INDEX(device), key) ? number(INDEX(device), key, out) : SUCCESS;
}

typedef struct { unsigned char uuid[16]; int status; unsigned clique, state; } Fabric;
typedef struct { unsigned version; Fabric fabric; unsigned health_mask; } FabricV2;
typedef struct { FabricV2 v2; unsigned char health_summary; } FabricV3;

static int fabric(int gpu, Fabric *out)
{
    Wide state, status = 0, clique = 0;
    TRY(number(gpu, "fabric_state", &state));
    number(gpu, "fabric_status", &status);
    number(gpu, "fabric_clique", &clique);
    *out = (Fabric){.status = (int)status, .clique = (unsigned)clique, .state = (unsigned)state};
    const char *digit = find(gpu, "fabric_cluster_uuid");
    for (int i = 0; digit && digit[0] && digit[1] && i < 16; digit += *digit == '-' ? 1 : (i++, 2))
        if (*digit != '-')
            sscanf(digit, "%2hhx", &out->uuid[i]);
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfo(Device device, Fabric *out) { BEGIN(INDEX(device)); return fabric(INDEX(device), out); }

/* `fabric_version = 2` makes it a driver without the third version. */
int nvmlDeviceGetGpuFabricInfoV(Device device, FabricV3 *out)
{
    int gpu = INDEX(device);
    Wide newest = 3, mask = 0, summary = 0;
    BEGIN(gpu);
    number(gpu, "fabric_version", &newest);
    unsigned asked = out->v2.version >> 24, size = out->v2.version & 0xffffff;
    if (asked < 2 || asked > newest || size != (asked == 2 ? sizeof(FabricV2) : sizeof(FabricV3)))
        return VERSION_MISMATCH;
    TRY(fabric(gpu, &out->v2.fabric));
    number(gpu, "fabric_health_mask", &mask);
    number(gpu, "fabric_health_summary", &summary);
    out->v2.health_mask = (unsigned)mask;
    if (asked == 3)
        out->health_summary = (unsigned char)summary;
    return SUCCESS;
}
