//! Validation of the text settings of a run in this process.

use ardea_config::Resolved;
use ardea_core::{Error, Result};
use ardea_metrics::MetricsSinks;

use super::dead_letters;

/// The setting with the list of metrics sinks.
pub(crate) const SINKS: &str = "metrics.sinks";

/// The setting with the URL of an OpenTelemetry collector.
pub(crate) const OTLP: &str = "metrics.otlp";

/// Checks the metrics sinks and the destination of dead letters.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for the first invalid setting, with the
/// place where it is set and the valid values.
pub(super) fn check(resolved: &Resolved, sinks: &MetricsSinks) -> Result<()> {
    checked(resolved, SINKS, |list| {
        sinks.check_names(list)?;
        sinks.check(list)
    })?;
    checked(resolved, OTLP, |url| sinks.check_otlp(url))?;
    dead_letters::check(resolved)
}

/// Applies `check` to the setting `key`. Returns `Ok` if the schema has no such setting, as in
/// benchmarks.
pub(crate) fn checked(
    resolved: &Resolved,
    key: &str,
    check: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    if resolved.value(key).is_none() {
        return Ok(());
    }
    check(resolved.text(key)?).map_err(|error| refused(resolved, key, &error))
}

/// Turns an error about a setting's value into one that names the setting and the place where it is
/// set.
pub(crate) fn refused(resolved: &Resolved, key: &str, why: &Error) -> Error {
    let error = resolved.refuse(key, why.message());
    match why.hint_text() {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
