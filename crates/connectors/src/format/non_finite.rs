//! Floats that JSON cannot represent.

/// The treatment of a NaN or infinite float by a format that does not support them.
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
    /// The record is refused and handled like any record that cannot be written.
    #[default]
    DeadLetter,
    /// The float is written as `null`, which does not read back as a float.
    Null,
    /// The float is written as the text `"NaN"`, `"Infinity"` or `"-Infinity"`. A reader must
    /// accept a text in its place.
    Text,
}

impl NonFinite {
    /// Returns the text of a non-finite float.
    pub(super) fn text(value: f64) -> &'static str {
        match (value.is_nan(), value.is_sign_positive()) {
            (true, _) => "NaN",
            (false, true) => "Infinity",
            (false, false) => "-Infinity",
        }
    }
}
