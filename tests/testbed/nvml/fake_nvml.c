/* Replaces libnvidia-ml.so.1 in tests: the functions that nvidia-ml-py calls. */
#define _GNU_SOURCE
#include <stddef.h>

#include "values.h"

#define MIB (1024ULL * 1024ULL)
#define NO_VALUE UINT64_MAX

/* ---- the library and the system ---- */

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    TRY(read_file());
    initialized = 1;
    BEGIN(SYSTEM);
    initialized = !find(SYSTEM, "init") || status_of(find(SYSTEM, "init")) == SUCCESS;
    return initialized ? SUCCESS : status_of(find(SYSTEM, "init"));
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    BEGIN(SYSTEM);
    initialized = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    static char words[64];
    snprintf(words, sizeof words, "%s", code ? "unknown error" : "success");
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (ERRORS[i].code == code)
            snprintf(words, sizeof words, "%s", ERRORS[i].name);
    for (char *c = words; *c; c++)
        *c = *c == '_' ? ' ' : (char)tolower((unsigned char)*c);
    return words;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { BEGIN(SYSTEM); return text(SYSTEM, "driver", out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { BEGIN(SYSTEM); return text(SYSTEM, "nvml", out, size); }

int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    Wide value;
    BEGIN(SYSTEM);
    TRY(number(SYSTEM, "cuda", &value));
    *out = (int)value;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    Wide value = (Wide)gpu_count;
    BEGIN(SYSTEM);
    if (find(SYSTEM, "count"))
        TRY(number(SYSTEM, "count", &value));
    *out = (unsigned)value;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out)
{
    BEGIN((int)index);
    if ((int)index >= gpu_count)
        return INVALID_ARGUMENT;
    if (find((int)index, "handle"))
        TRY(status_of(find((int)index, "handle")));
    *out = (Device)(intptr_t)(index + 1);
    return SUCCESS;
}

/* ---- a GPU: one value per call ---- */

#define TEXT(function, key) \
    int function(Device device, char *out, unsigned size) { BEGIN(INDEX(device)); return text(INDEX(device), key, out, size); }
#define NUMBER(function, key, type, factor) \
    int function(Device device, type *out) \
    { \
        Wide value; \
        BEGIN(INDEX(device)); \
        TRY(number(INDEX(device), key, &value)); \
        *out = (type)(value * factor); \
        return SUCCESS; \
    }
/* A mode now and after the next reset: the same, unless `KEY_pending` says otherwise. */
#define MODES(function, key) \
    int function(Device device, unsigned *current, unsigned *pending) \
    { \
        Wide value; \
        BEGIN(INDEX(device)); \
        TRY(number(INDEX(device), key, &value)); \
        *current = (unsigned)value; \
        if (find(INDEX(device), key "_pending")) \
            TRY(number(INDEX(device), key "_pending", &value)); \
        *pending = (unsigned)value; \
        return SUCCESS; \
    }

/* Functions that only return an error. */
#define CHECK(function, key) \
    int function(Device device) \
    { \
        Wide value; \
        BEGIN(INDEX(device)); \
        return number(INDEX(device), key, &value); \
    }
/* A clock by type; only the graphics clock is known. */
#define CLOCK(function, key) \
    int function(Device device, unsigned kind, unsigned *out) \
    { \
        Wide value; \
        BEGIN(INDEX(device)); \
        if (kind) \
            return NOT_SUPPORTED; \
        TRY(number(INDEX(device), key, &value)); \
        *out = (unsigned)value; \
        return SUCCESS; \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")
CHECK(nvmlDeviceValidateInforom, "inforom_valid")
MODES(nvmlDeviceGetEccMode, "ecc_enabled")
MODES(nvmlDeviceGetMigMode, "mig_mode")
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending", unsigned, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", unsigned, 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", unsigned, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", unsigned, 1)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", unsigned, 1)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays", unsigned, 1)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons", Wide, 1)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons", Wide, 1)
NUMBER(nvmlDeviceGetPowerUsage, "power_w", unsigned, 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_w", unsigned, 1000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_w", unsigned, 1000)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence_mode", unsigned, 1)
CLOCK(nvmlDeviceGetClockInfo, "clock_mhz")
CLOCK(nvmlDeviceGetMaxClockInfo, "clock_max_mhz")
CLOCK(nvmlDeviceGetApplicationsClock, "app_clock_mhz")
CLOCK(nvmlDeviceGetDefaultApplicationsClock, "app_clock_default_mhz")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", unsigned, 1)

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out)
{
    Wide value;
    BEGIN(INDEX(device));
    if (sensor)
        return INVALID_ARGUMENT;
    TRY(number(INDEX(device), "temperature_c", &value));
    *out = (unsigned)value;
    return SUCCESS;
}

/* ---- a GPU: memory errors ---- */

static int ecc(int gpu, unsigned uncorrected, unsigned aggregate, const char *where, Wide *out)
{
    Wide enabled;
    char key[80];
    if (number(gpu, "ecc_enabled", &enabled) == SUCCESS && !enabled)
        return NOT_SUPPORTED;
    snprintf(key, sizeof key, "ecc_%s%s_%s", aggregate ? "aggregate_" : "",
             uncorrected ? "uncorrected" : "corrected", where);
    return number(gpu, key, out);
}

int nvmlDeviceGetMemoryErrorCounter(Device device, unsigned uncorrected, unsigned aggregate, unsigned where, Wide *out)
{
    BEGIN(INDEX(device));
    if (where != 2 && where != 7)
        return NOT_SUPPORTED;
    return ecc(INDEX(device), uncorrected, aggregate, where == 2 ? "dram" : "sram", out);
}

/* The total is the sum of its parts unless the file has it. */
int nvmlDeviceGetTotalEccErrors(Device device, unsigned uncorrected, unsigned aggregate, Wide *out)
{
    Wide dram, sram;
    BEGIN(INDEX(device));
    int status = ecc(INDEX(device), uncorrected, aggregate, "total", out);
    if (status != NOT_SUPPORTED)
        return status;
    TRY(ecc(INDEX(device), uncorrected, aggregate, "dram", &dram));
    TRY(ecc(INDEX(device), uncorrected, aggregate, "sram", &sram));
    *out = dram + sram;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    Wide aggregate_parity, aggregate_secded, aggregate_corrected, parity, secded, corrected, sources[5];
    unsigned threshold_exceeded;
} SramStatus;

int nvmlDeviceGetSramEccErrorStatus(Device device, SramStatus *out)
{
    int gpu = INDEX(device);
    Wide exceeded;
    BEGIN(gpu);
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    TRY(number(gpu, "sram_threshold_exceeded", &exceeded));
    memset(&out->aggregate_parity, 0, sizeof *out - offsetof(SramStatus, aggregate_parity));
    TRY(ecc(gpu, 1, 1, "sram", &out->aggregate_secded));
    TRY(ecc(gpu, 1, 0, "sram", &out->secded));
    out->threshold_exceeded = (unsigned)exceeded;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    static const char *const KEYS[] = {"remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failed"};
    unsigned *out[] = {corrected, uncorrected, pending, failed};
    BEGIN(INDEX(device));
    for (int i = 0; i < 4; i++) {
        Wide value;
        TRY(number(INDEX(device), KEYS[i], &value));
        *out[i] = (unsigned)value;
    }
    return SUCCESS;
}

int nvmlDeviceGetRowRemapperHistogram(Device device, unsigned out[5])
{
    const char *value = find(INDEX(device), "remap_banks");
    BEGIN(INDEX(device));
    TRY(status_of(value));
    return sscanf(value, "%u %u %u %u %u", out, out + 1, out + 2, out + 3, out + 4) == 5 ? SUCCESS : UNKNOWN;
}

#include "links.h"
#include "repair.h"
#include "gpm.h"

/* ---- a GPU: location, temperature, memory use, processes ---- */

typedef struct { char legacy_id[16]; unsigned domain, bus, device, ids, subsystem_ids; char id[32]; } PciInfo;

int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *out)
{
    unsigned domain, bus, slot;
    Wide ids = 0x233010DE;
    const char *value = find(INDEX(device), "pci");
    BEGIN(INDEX(device));
    TRY(status_of(value));
    if (sscanf(value, "%x:%x:%x.0", &domain, &bus, &slot) != 3)
        return UNKNOWN;
    number(INDEX(device), "pci_ids", &ids);
    *out = (PciInfo){.domain = domain, .bus = bus, .device = slot, .ids = (unsigned)ids};
    snprintf(out->legacy_id, sizeof out->legacy_id, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, slot & 0x1f);
    snprintf(out->id, sizeof out->id, "%08X:%02X:%02X.0", domain, bus & 0xff, slot & 0x1f);
    return SUCCESS;
}

typedef struct { unsigned version, sensor; int celsius; } Temperature;
typedef struct { unsigned version; int celsius; } Margin;

int nvmlDeviceGetTemperatureV(Device device, Temperature *out)
{
    BEGIN(INDEX(device));
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    return nvmlDeviceGetTemperature(device, out->sensor, (unsigned *)&out->celsius);
}

int nvmlDeviceGetMarginTemperature(Device device, Margin *out)
{
    Wide value;
    BEGIN(INDEX(device));
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    TRY(number(INDEX(device), "temperature_margin_c", &value));
    out->celsius = (int)value;
    return SUCCESS;
}

typedef struct { Wide total, free, used; } Memory;
typedef struct { unsigned version; Wide total, reserved, free, used; } MemoryV2;

static int memory(int gpu, MemoryV2 *out)
{
    Wide total, used, reserved = 0;
    TRY(number(gpu, "memory_total_mib", &total));
    TRY(number(gpu, "memory_used_mib", &used));
    number(gpu, "memory_reserved_mib", &reserved);
    out->total = total * MIB, out->used = used * MIB, out->reserved = reserved * MIB;
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}

/* The first version counts the driver's reserved memory as used. */
int nvmlDeviceGetMemoryInfo(Device device, Memory *out)
{
    MemoryV2 known;
    BEGIN(INDEX(device));
    TRY(memory(INDEX(device), &known));
    *out = (Memory){.total = known.total, .free = known.free, .used = known.used + known.reserved};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *out)
{
    BEGIN(INDEX(device));
    return out->version == (sizeof *out | 2u << 24) ? memory(INDEX(device), out) : VERSION_MISMATCH;
}

int nvmlDeviceGetUtilizationRates(Device device, unsigned out[2])
{
    Wide gpu_percent, memory_percent = 0;
    BEGIN(INDEX(device));
    TRY(number(INDEX(device), "utilization_percent", &gpu_percent));
    number(INDEX(device), "utilization_memory_percent", &memory_percent);
    out[0] = (unsigned)gpu_percent, out[1] = (unsigned)memory_percent;
    return SUCCESS;
}

typedef struct { unsigned pid; Wide memory; unsigned gpu_instance, compute_instance; } Process;

/* `processes = 1234:900,1300:-` is PID:MiB each, `-` where the driver does not know. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *out)
{
    const char *value = find(INDEX(device), "processes");
    BEGIN(INDEX(device));
    TRY(status_of(value));
    unsigned found = 0;
    for (const char *at = value; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        unsigned pid;
        Wide mib;
        int parts = sscanf(at, "%u:%llu", &pid, &mib);
        if (out && parts && found < *count)
            out[found] = (Process){pid, parts == 2 ? mib * MIB : NO_VALUE, ~0u, ~0u};
        found++;
    }
    int fits = found <= *count && (out || !found);
    *count = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, Process *out)
{
    BEGIN(INDEX(device));
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}
