//! The policy for damage of an input as a whole.

use serde::Deserialize;

/// The policy for an input that can't be read to its end.
///
/// An input is damaged if the container of its records is: compressed data that ends early or has a wrong checksum, a
/// file that shrinks or breaks off while it is read, a header that is none, a connection that breaks. Single records
/// that can't be decoded are no damage; [`OnError`](ardea_core::OnError) decides about those.
///
/// In settings it is `fail` or `keep`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDamage {
    /// The job fails, and says how much was read.
    #[default]
    Fail,
    /// The records before the damage are kept. The damage is counted, said on standard error, and becomes a dead letter.
    /// The source goes on with its next input, if there is one.
    Keep,
}
