//! Floats that JSON cannot hold.

/// The treatment of a float that is NaN or infinite by a format that has no such numbers.
///
/// ```
/// use ardea_connectors::format::{Encode, JsonLines, NonFinite};
///
/// let mut out = Vec::new();
/// assert!(JsonLines.encode(&f64::NAN, &mut out).is_err());
/// JsonLines.non_finite(NonFinite::Null).encode(&f64::NAN, &mut out)?;
/// JsonLines.non_finite(NonFinite::Text).encode(&f64::NEG_INFINITY, &mut out)?;
/// assert_eq!(out, b"null\n\"-Infinity\"\n");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NonFinite {
    /// The record is set aside, as one that cannot be written.
    #[default]
    DeadLetter,
    /// Written as `null`. It does not read back as a float.
    Null,
    /// Written as the text `"NaN"`, `"Infinity"` or `"-Infinity"`. It does not read back as a float
    /// unless the reader expects a text.
    Text,
}

impl NonFinite {
    /// Returns the text of a float that is not finite.
    pub(super) fn text(value: f64) -> &'static str {
        match (value.is_nan(), value.is_sign_positive()) {
            (true, _) => "NaN",
            (false, true) => "Infinity",
            (false, false) => "-Infinity",
        }
    }
}
