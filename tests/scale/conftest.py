"""Eight devices, cut from the CPU before JAX looks at it: these tests are a process of their own."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
