/* A GPU's reports on repairs of its memory and processors. */

typedef struct { unsigned version, unrepairable; } UnrepairableMemory;

int nvmlDeviceGetUnrepairableMemoryFlag_v1(Device device, UnrepairableMemory *out)
{
    Wide unrepairable;
    BEGIN(INDEX(device));
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    TRY(number(INDEX(device), "memory_unrepairable", &unrepairable));
    out->unrepairable = (unsigned)unrepairable;
    return SUCCESS;
}

typedef struct { unsigned version, channel_pending, tpc_pending; } RepairStatus;

int nvmlDeviceGetRepairStatus(Device device, RepairStatus *out)
{
    Wide channel, tpc;
    BEGIN(INDEX(device));
    if (out->version != (sizeof *out | 1u << 24))
        return VERSION_MISMATCH;
    TRY(number(INDEX(device), "channel_repair_pending", &channel));
    TRY(number(INDEX(device), "tpc_repair_pending", &tpc));
    out->channel_pending = (unsigned)channel;
    out->tpc_pending = (unsigned)tpc;
    return SUCCESS;
}
