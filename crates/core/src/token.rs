//! The shared secret by which processes of a cluster authenticate each other.

use std::fmt;

/// A secret shared by all processes of a cluster. It is never displayed, and compared in constant
/// time.
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
    /// Creates a token from a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Token(secret.into())
    }

    /// Returns true if `other` is the same secret. The time does not depend on the position of a
    /// difference.
    pub fn is(&self, other: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.as_bytes());
        let differences = ours
            .iter()
            .zip(theirs)
            .fold(0, |found, (our, their)| found | (our ^ their));
        ours.len() == theirs.len() && differences == 0
    }

    /// Returns the secret, for authentication with a peer.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
