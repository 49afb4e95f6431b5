//! The address of a host's REST interface.

use std::fmt;

use ardea_core::{Error, ErrorCode, Result};
use axum::http::Uri;

/// The host and port of a REST interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Endpoint {
    /// Host name or address; an IPv6 address without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// True if connections use TLS.
    pub(super) is_encrypted: bool,
}

impl Endpoint {
    /// Parses a URL such as `http://10.0.0.7:7400`. A path in the URL is ignored.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            let what = format!("{text:?} is not the address of a cluster's interface: {why}");
            Error::new(ErrorCode::InvalidConfig, what)
                .hint("write http://HOST:PORT, or https://HOST:PORT")
        };
        let uri: Uri = text.parse().map_err(|_| invalid("it is not a URL"))?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(invalid("its scheme is neither http nor https")),
            None => return Err(invalid("it has no scheme")),
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(invalid("it names no host"));
        }
        Ok(Endpoint {
            host: host.to_string(),
            port: uri
                .port_u16()
                .unwrap_or(if is_encrypted { 443 } else { 80 }),
            is_encrypted,
        })
    }

    /// Formats host and port as in a `Host` header.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_written() {
        for text in ["http://127.0.0.1:7400", "http://[::1]:80", "https://a.b:1"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("http://a/b?c").unwrap().port, 80);
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "not a URL"),
            ("127.0.0.1:7400", "no scheme"),
            ("localhost:7400", "no scheme"),
            ("ftp://a:1", "neither http nor"),
            ("/v1", "no scheme"),
            ("http://", "not a URL"),
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
