"""The OpenCL platforms and devices that a program sees, as JSON on standard output. Uses the loader and nothing else,
so it runs where no other OpenCL program is installed: without divvy or through `divvy run`."""

import ctypes
import ctypes.util
import json
import sys

SUCCESS = 0
PLATFORM = {"name": 0x0902, "vendor": 0x0903, "version": 0x0901}
TEXTS = {"name": 0x102B, "vendor": 0x102C, "driver": 0x102D, "version": 0x102F, "c_version": 0x103D,
         "extensions": 0x1030}
NUMBERS = {"type": 0x1000, "compute_units": 0x1002, "clock_mhz": 0x100C, "memory_bytes": 0x101F,
           "allocation_bytes": 0x1010, "local_bytes": 0x1023, "work_group_items": 0x1004,
           "timer_ns": 0x1025, "unified": 0x1035}
TYPES = ((1 << 2, "GPU"), (1 << 3, "accelerator"), (1 << 1, "CPU"), (1 << 4, "custom"))
ALL_DEVICES = 0xFFFFFFFF


class Loader:
    def __init__(self):
        self.library = ctypes.CDLL(ctypes.util.find_library("OpenCL") or "libOpenCL.so.1")

    def handles(self, function, *before):
        """What clGetPlatformIDs or clGetDeviceIDs lists."""
        count = ctypes.c_uint32()
        if function(*before, 0, None, ctypes.byref(count)) != SUCCESS:
            return []
        found = (ctypes.c_void_p * count.value)()
        if function(*before, count, found, None) != SUCCESS:
            return []
        return [ctypes.c_void_p(handle) for handle in found]

    def platforms(self):
        return self.handles(self.library.clGetPlatformIDs)

    def devices(self, platform):
        return self.handles(self.library.clGetDeviceIDs, platform, ctypes.c_uint64(ALL_DEVICES))

    @staticmethod
    def info(function, handle, parameter):
        """The bytes of an answer; empty if there is none."""
        size = ctypes.c_size_t()
        if function(handle, parameter, ctypes.c_size_t(0), None, ctypes.byref(size)) != SUCCESS:
            return b""
        answer = ctypes.create_string_buffer(size.value)
        if function(handle, parameter, size, answer, None) != SUCCESS:
            return b""
        return answer.raw

    def text(self, function, handle, parameter):
        return self.info(function, handle, parameter).split(b"\0")[0].decode(errors="replace").strip()

    def describe_device(self, device):
        ask = self.library.clGetDeviceInfo
        found = {key: self.text(ask, device, parameter) for key, parameter in TEXTS.items()}
        found.update({key: int.from_bytes(self.info(ask, device, parameter), sys.byteorder)
                      for key, parameter in NUMBERS.items()})
        found["type"] = next((word for bit, word in TYPES if found["type"] & bit), "unknown")
        return found

    def describe(self):
        ask = self.library.clGetPlatformInfo
        return [{**{key: self.text(ask, platform, parameter) for key, parameter in PLATFORM.items()},
                 "devices": [self.describe_device(device) for device in self.devices(platform)]}
                for platform in self.platforms()]


if __name__ == "__main__":
    try:
        json.dump(Loader().describe(), sys.stdout)
    except OSError as problem:
        sys.exit(f"there is no OpenCL loader: {problem}")
