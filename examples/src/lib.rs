//! Example jobs that a person would want.
#![forbid(unsafe_code)]
