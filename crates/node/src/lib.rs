//! Plumbing that services share: clock, tokens, HTTP shell, telemetry, draining.
