//! The policy for damaged inputs.

use serde::Deserialize;

/// The policy for an input that cannot be read to its end.
///
/// Damage is compressed data that ends early or has a wrong checksum, a file that shrinks or cannot
/// be read further, an invalid header, or a broken connection. Single records that cannot be
/// decoded are subject to [`OnError`](ardea_core::OnError) instead.
///
/// The value in settings is `fail` or `keep`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDamage {
    /// The job fails. The error contains how much of the input was read.
    #[default]
    Fail,
    /// The records before the damage are retained. The damage is counted, is reported on standard
    /// error, and becomes a dead letter. The source continues with its next input, if any.
    Keep,
}
