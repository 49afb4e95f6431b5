//! Names of metrics.

use std::fmt;
use std::sync::Arc;

/// The name of a metric, such as `ardea_records_in_total`. Cheap to clone.
///
/// As in Prometheus, a name consists of letters, digits, `_` and `:`, and does not start with a
/// digit. Other characters become `_`.
///
/// ```
/// use ardea_metrics::MetricName;
///
/// assert_eq!(MetricName::new("carts.open (now)").as_str(), "carts_open__now_");
/// assert_eq!(MetricName::new("2xx").as_str(), "_2xx");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricName(Arc<str>);

impl MetricName {
    /// Creates a name, replacing invalid characters.
    pub fn new(name: &str) -> Self {
        MetricName(fitted(name, true))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for MetricName {
    fn from(name: &str) -> Self {
        MetricName::new(name)
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// Converts a text to a valid name of a metric or, without colons, of a label.
pub(crate) fn fitted(text: &str, colons: bool) -> Arc<str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    let starts_well = text.chars().next().is_some_and(|c| !c.is_ascii_digit());
    if starts_well && text.chars().all(fits) {
        return Arc::from(text);
    }
    let mut name = String::with_capacity(text.len() + 1);
    if !starts_well {
        name.push('_');
    }
    name.extend(text.chars().map(|c| if fits(c) { c } else { '_' }));
    Arc::from(name)
}
