"""The options that several commands share: on how many devices they run."""

from dataclasses import dataclass

from vimco.training.devices import offer_cpu_devices


@dataclass(frozen=True)
class Layout:
    """Where a command computes."""

    devices: int = 1
    """Devices that share the work. Cores of a CPU count as one, and can be cut into several."""

    def take(self) -> int:
        """Make the devices that a CPU is cut into, before anything is computed; return the number asked for."""
        offer_cpu_devices(self.devices)
        return self.devices
