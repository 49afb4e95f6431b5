//! Example jobs that a person would want.
