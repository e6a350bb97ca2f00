"""The options for devices, which several commands share."""

from dataclasses import dataclass

from vimco.training.devices import offer_cpu_devices


@dataclass(frozen=True)
class Layout:
    """The devices on which a command computes."""

    devices: int = 1
    """Devices that share the work. A CPU is one device, and can be divided into several."""

    def take(self) -> int:
        """Divide a CPU into the devices, before anything is computed; return their number."""
        offer_cpu_devices(self.devices)
        return self.devices
