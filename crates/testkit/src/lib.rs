//! Drives any processor through hostile schedules and checks its contract.
