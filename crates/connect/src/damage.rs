//! The policy for damage of an input as a whole.

use std::fmt;
use std::str::FromStr;

/// The policy for an input that can't be read to its end.
///
/// An input is damaged if the container of its records is: compressed data that ends early or has a wrong checksum, a
/// file that shrinks or breaks off while it is read, a header that is none, a connection that breaks. Single records
/// that can't be decoded are no damage; [`OnError`](ardea_core::OnError) decides about those.
///
/// ```
/// use ardea_connect::OnDamage;
///
/// assert_eq!("keep".parse(), Ok(OnDamage::Keep));
/// assert_eq!(OnDamage::default().to_string(), "fail");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDamage {
    /// The job fails, and says how much was read.
    #[default]
    Fail,
    /// The records before the damage are kept. The damage is counted, said on standard error, and becomes a dead letter.
    /// The source goes on with its next input, if there is one.
    Keep,
}

impl fmt::Display for OnDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnDamage::Fail => "fail",
            OnDamage::Keep => "keep",
        })
    }
}

impl FromStr for OnDamage {
    type Err = String;

    /// Reads `fail` or `keep`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fail" => Ok(OnDamage::Fail),
            "keep" => Ok(OnDamage::Keep),
            other => Err(format!("{other:?} is neither fail nor keep")),
        }
    }
}
