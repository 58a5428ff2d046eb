"""AWS without AWS: moto's server over real HTTP, behind a proxy that can deny, throttle, delay and rewrite."""
