//! The distribution of latencies as a file.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use hdrhistogram::Histogram;

/// Writes the cumulative distribution of latencies in nanoseconds as CSV: latencies in
/// milliseconds, and the share of results with at most this latency.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if the file cannot be written.
pub(super) fn write_cdf(path: &Path, nanos: &Histogram<u64>) -> Result<()> {
    fs::write(path, cdf(nanos)).map_err(|error| {
        let what = format!("cannot write the latencies to {}", path.display());
        Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint("give the path of a file that can be written (--cdf)")
    })
}

fn cdf(nanos: &Histogram<u64>) -> String {
    let (mut text, mut passed) = ("latency_ms,share\n".to_string(), 0);
    for value in nanos.iter_recorded() {
        passed += value.count_at_value();
        let ms = value.value_iterated_to() as f64 / 1e6;
        let share = passed as f64 / nanos.len() as f64;
        // Writing into a string does not fail.
        let _ = writeln!(text, "{ms:.4},{share:.6}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nanoseconds;

    #[test]
    fn each_latency_has_the_share_of_results_up_to_it() {
        let mut nanos = nanoseconds().unwrap();
        assert_eq!(cdf(&nanos), "latency_ms,share\n");
        for (ns, count) in [(1_000_000, 3), (2_000_000, 1)] {
            nanos.record_n(ns, count).unwrap();
        }
        let text = cdf(&nanos);
        let shares: Vec<f64> = text
            .lines()
            .skip(1)
            .map(|line| line.split_once(',').unwrap().1.parse().unwrap())
            .collect();
        assert_eq!(shares, [0.75, 1.0]);
        assert!(text.lines().nth(1).unwrap().starts_with("1.0"), "{text}");
        assert!(write_cdf(Path::new("/no/such/folder/cdf"), &nanos).is_err());
    }
}
