//! The named tokens that a host accepts, and the creation of tokens.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::{PoisonError, RwLock};

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{NewTokenView, TokenRequest, TokenView};

/// Length of a secret in bytes. A secret is random, so a plain digest of it cannot be reversed.
const SECRET_BYTES: usize = 32;

/// Maximum length of a token's name.
const MAX_NAME: usize = 64;

/// Maximum number of named tokens of a cluster.
pub const MAX_TOKENS: usize = 1_000;

/// A named token as stored: the digest of its secret instead of the secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredToken {
    /// The token.
    #[serde(flatten)]
    pub token: TokenView,
    /// SHA-256 of the secret, in hexadecimal digits.
    pub digest: String,
}

/// Creates a token with a random secret at this time, in milliseconds since 1970. Returns the part
/// to store, and the response for the caller.
///
/// # Errors
/// [`ErrorCode::BadRequest`] if the name or the time of expiry is invalid;
/// [`ErrorCode::ReadFailed`] if the system has no random numbers.
pub fn create_token(request: TokenRequest, now_ms: u64) -> Result<(StoredToken, NewTokenView)> {
    check_name(&request.name)?;
    let expires_ms = match request.expires_in_s {
        None => None,
        Some(0) => {
            let what = "a token that expires at once is of no use";
            return Err(Error::new(ErrorCode::BadRequest, what).hint("give it at least a second"));
        }
        Some(seconds) => Some(now_ms.saturating_add(seconds.saturating_mul(1_000))),
    };
    let mut random = [0; SECRET_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    read.map_err(|error| {
        let what = "cannot read random numbers for a token from /dev/urandom";
        Error::new(ErrorCode::ReadFailed, what).because(error)
    })?;
    let secret = format!("ardea_{}", hexadecimal(&random));
    let token = TokenView {
        name: request.name,
        role: request.role,
        may_upload: request.may_upload,
        created_ms: now_ms,
        expires_ms,
    };
    let stored = StoredToken {
        token: token.clone(),
        digest: digest(&secret),
    };
    Ok((stored, NewTokenView { token, secret }))
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_name = (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_plain);
    if is_name {
        return Ok(());
    }
    let what = "the name of a token has 1 to 64 letters, digits, '-', '_' and '.'";
    Err(Error::new(ErrorCode::BadRequest, what))
}

fn digest(secret: &str) -> String {
    hexadecimal(&Sha256::digest(secret.as_bytes()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The result of a check of a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenCheck {
    /// The secret of this token.
    Valid(TokenView),
    /// The secret of this token, which has expired.
    Expired(TokenView),
    /// No token has this secret.
    Unknown,
}

/// The named tokens that a host accepts at present.
#[derive(Default, Debug)]
pub struct TokenRegistry(RwLock<HashMap<String, TokenView>>);

impl TokenRegistry {
    /// Replaces all tokens.
    pub fn replace(&self, tokens: impl IntoIterator<Item = StoredToken>) {
        let tokens = tokens.into_iter().map(|it| (it.digest, it.token));
        let tokens = tokens.collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Checks a secret at this time, in milliseconds since 1970. The search is by the digest, so
    /// its time reveals nothing about other secrets.
    pub fn check(&self, secret: &str, now_ms: u64) -> TokenCheck {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match tokens.get(&digest(secret)) {
            None => TokenCheck::Unknown,
            Some(token) if token.has_expired(now_ms) => TokenCheck::Expired(token.clone()),
            Some(token) => TokenCheck::Valid(token.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessRole;

    fn request(name: &str, expires_in_s: Option<u64>) -> TokenRequest {
        TokenRequest {
            name: name.into(),
            role: AccessRole::Viewer,
            may_upload: false,
            expires_in_s,
        }
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked_and_its_secret_is_not_stored() {
        let (stored, new) = create_token(request("ci", Some(10)), 1_000).unwrap();
        let text = serde_json::to_string(&stored).unwrap();
        assert!(!text.contains(&new.secret), "{text}");
        let registry = TokenRegistry::default();
        assert_eq!(registry.check(&new.secret, 1_000), TokenCheck::Unknown);
        registry.replace([serde_json::from_str(&text).unwrap()]);
        let token = new.token.clone();
        assert_eq!(
            registry.check(&new.secret, 10_999),
            TokenCheck::Valid(token.clone())
        );
        assert_eq!(
            registry.check(&new.secret, 11_000),
            TokenCheck::Expired(token)
        );
        for wrong in ["", "ardea_", &new.secret[..20], &stored.digest] {
            assert_eq!(registry.check(wrong, 1_000), TokenCheck::Unknown, "{wrong}");
        }
        registry.replace([]);
        assert_eq!(registry.check(&new.secret, 1_000), TokenCheck::Unknown);
    }

    #[test]
    fn two_tokens_have_different_secrets() {
        let secret = || create_token(request("ci", None), 0).unwrap().1.secret;
        assert_ne!(secret(), secret());
        assert_eq!(secret().len(), "ardea_".len() + 2 * SECRET_BYTES);
    }

    #[test]
    fn names_that_are_no_names_and_tokens_without_a_life_are_refused() {
        let long = "x".repeat(65);
        for name in ["", "two words", "a/b", "ü", &long] {
            let error = create_token(request(name, None), 0).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRequest, "{name}");
        }
        assert!(create_token(request("ci", Some(0)), 0).is_err());
        assert!(create_token(request("ci", Some(u64::MAX)), 5).is_ok());
    }
}
