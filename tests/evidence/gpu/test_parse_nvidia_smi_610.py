"""nvidia-smi since driver 610, which has other names for its version, the thermal margin and the power limits."""

from __future__ import annotations

import pytest

from tests.captures.captured import gpus_in, output_of

OF_610 = """\
    ==============NVSMI LOG==============

    Driver Version            : 610.57.04 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]
    CUDA Version              : 13.3 [Deprecated; will be removed in CUDA 14.0. Use CUDA UMD Version instead]
    KMD Version               : 610.57.04
    CUDA UMD Version          : 13.3

    Attached GPUs             : 1
    GPU 00000000:53:00.0
        Temperature
            GPU Current Temp                  : 83 C
            GPU Current T.Limit Temp          : 4 C
            GPU Slowdown T.Limit Temp Specification : -2 C
        GPU Power Readings
            Instantaneous Power Draw          : 650.89 W
            GPU Ceiling Power Limit
                Current Power Limit           : 600.00 W
                Requested Power Limit         : 700.00 W
                Default Power Limit           : 700.00 W
            GPU Base Power
                Current Base Power            : N/A
    """


def test_driver_610_has_other_names_for_its_version_the_margin_and_the_power_limits() -> None:
    collector = output_of(OF_610)["nvml"]
    assert (collector["driver"], collector["cuda"]) == ("610.57.04", 13030)
    assert collector["gpus"] == [
        {
            "lost": None,
            "index": 0,
            "pci": "0000:53:00.0",
            "temperature_c": 83.0,
            "temperature_margin_c": 4.0,
            "power_w": 650.89,
            "power_limit_w": 600.0,
            "power_limit_default_w": 700.0,
        }
    ]


@pytest.mark.parametrize(
    "limit", ["<{0}>600.00 W</{0}>", "<gpu_ceiling_power_limit><{0}>600.00 W</{0}></gpu_ceiling_power_limit>"]
)
def test_xml_of_any_driver_has_the_power_limit(limit: str) -> None:
    readings = limit.format("current_power_limit") + limit.format("default_power_limit")
    gpu = f"<gpu id='00000000:53:00.0'><gpu_power_readings>{readings}</gpu_power_readings></gpu>"
    (read,) = gpus_in(f"<nvidia_smi_log><attached_gpus>1</attached_gpus>{gpu}</nvidia_smi_log>")
    assert (read["power_limit_w"], read["power_limit_default_w"]) == (600.0, 600.0)


def test_the_table_of_driver_610_names_its_version_otherwise() -> None:
    text = """\
        +-----------------------------------------------------------------------------------------+
        | NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |
        +-----------------------------------------+------------------------+----------------------+
        | GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
        | Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
        |                                         |                        |               MIG M. |
        |=========================================+========================+======================|
        |   0  NVIDIA B200                    On  |   00000000:63:00.0 Off |                    0 |
        | N/A   26C    P0            139W / 1000W |       0MiB / 183359MiB |      0%      Default |
        |                                         |                        |             Disabled |
        +-----------------------------------------+------------------------+----------------------+
    """
    assert output_of(text)["nvml"]["driver"] == "610.43.02"


def test_nvidia_smi_of_driver_610_names_its_version_otherwise() -> None:
    text = """\
        NVIDIA-SMI version  : 610.57.04
        NVML version        : 610.57
        DRIVER version      : Deprecated, see "KMD version" instead
        CUDA version        : Deprecated, see "CUDA UMD version" instead
        KMD version         : 610.57.04
        CUDA UMD version    : 13.3
    """
    assert output_of(text) == {"nvml": {"init": None, "driver": "610.57.04"}}
