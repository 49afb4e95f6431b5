//! The secret by which the processes of a cluster know each other.

use std::fmt;

/// A secret that all processes of a cluster know. It is never shown, and compared in a time that says nothing of it.
///
/// ```
/// use ardea_core::Token;
///
/// let token = Token::new("open sesame");
/// assert!(token.is("open sesame") && !token.is("open barley"));
/// assert_eq!(format!("{token:?}"), "Token(…)");
/// ```
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// This secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Token(secret.into())
    }

    /// Whether this is the same secret. Takes the same time wherever the difference is.
    pub fn is(&self, other: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.as_bytes());
        let differences = ours
            .iter()
            .zip(theirs)
            .fold(0, |found, (our, their)| found | (our ^ their));
        ours.len() == theirs.len() && differences == 0
    }

    /// The secret itself, to send it to somebody who may ask for it.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
