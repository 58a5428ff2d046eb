"""The whole output of `nvidia-smi -q` on a node with two GPUs, one of which is lost."""

from __future__ import annotations

FULL = """\
    ==============NVSMI LOG==============

    Timestamp                                 : Thu Mar 14 20:46:07 2024
    Driver Version                            : 550.90.07
    CUDA Version                              : 12.4

    Attached GPUs                             : 2
    GPU 00000000:53:00.0
        Product Name                          : NVIDIA H100 80GB HBM3
        Persistence Mode                      : Enabled
        MIG Mode
            Current                           : Disabled
        Serial Number                         : 1650523020001
        GPU UUID                              : GPU-aaaa
        VBIOS Version                         : 96.00.99.00.01
        GPU Reset Status
            Reset Required                    : {reset}
            Drain and Reset Recommended       : No
        PCI
            Bus Id                            : 00000000:53:00.0
            GPU Link Info
                PCIe Generation
                    Max                       : 5
                    Current                   : 1
                Link Width
                    Max                       : 16x
                    Current                   : 8x
            Replays Since Reset               : 3
        Clocks Event Reasons
            Idle                              : Active
            SW Power Cap                      : Not Active
            HW Slowdown                       : Active
                HW Thermal Slowdown           : Active
                HW Power Brake Slowdown       : Not Active
            SW Thermal Slowdown               : Not Active
        FB Memory Usage
            Total                             : 81559 MiB
            Used                              : 4 MiB
        Compute Mode                          : Exclusive_Process
        Utilization
            Gpu                               : 12 %
        ECC Mode
            Current                           : Enabled
        ECC Errors
            Volatile
                SRAM Correctable              : 1
                SRAM Uncorrectable Parity     : 2
                SRAM Uncorrectable SEC-DED    : 3
                DRAM Correctable              : 4
                DRAM Uncorrectable            : {dram}
            Aggregate
                SRAM Uncorrectable Parity     : 6
                SRAM Uncorrectable SEC-DED    : 7
                DRAM Uncorrectable            : 0
                SRAM Threshold Exceeded       : Yes
        Retired Pages
            Single Bit ECC                    : N/A
            Pending Page Blacklist            : N/A
        Remapped Rows
            Correctable Error                 : 1
            Uncorrectable Error               : 2
            Pending                           : Yes
            Remapping Failure Occurred        : No
            Bank Remap Availability Histogram
                Max                           : 2558 bank(s)
                High                          : 1 bank(s)
                Partial                       : 0 bank(s)
                Low                           : 1 bank(s)
                None                          : 0 bank(s)
        Temperature
            GPU Current Temp                  : 41 C
            GPU T.Limit Temp                  : 46 C
        GPU Power Readings
            Current Power Limit               : 600.00 W
            Default Power Limit               : 700.00 W
        Module Power Readings
            Current Power Limit               : N/A
        Fabric
            State                             : In Progress
            Status                            : Success
            CliqueId                          : 1
            Health
                Bandwidth                     : Degraded
                Route Unhealthy               : False
        Processes
            GPU instance ID                   : N/A
            Process ID                        : 4711
                Type                          : C
                Name                          : /usr/bin/python3.10 train.py
                Used GPU Memory               : 900 MiB
            Process ID                        : 12
                Type                          : G
                Name                          : /usr/lib/xorg/Xorg
                Used GPU Memory               : 4 MiB

    GPU 00000000:64:00.0
        Product Name                          : NVIDIA H100 80GB HBM3
        FB Memory Usage
            Total                             : GPU is lost
    """
