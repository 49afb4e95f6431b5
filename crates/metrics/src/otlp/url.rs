//! The URL of a collector.

use std::fmt;

use ardea_core::{Error, ErrorCode, Result};

/// The default path of metrics.
const PATH: &str = "/v1/metrics";

/// The URL of a collector: `http://HOST:PORT/PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CollectorUrl {
    /// Host and port.
    pub(super) authority: String,
    pub(super) path: String,
}

impl CollectorUrl {
    /// Parses a URL. The port is 4318 and the path `/v1/metrics` if not given.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let invalid = |why: &str| {
            let what = format!("{url:?} is not the URL of a collector: {why}");
            let error = Error::new(ErrorCode::InvalidConfig, what);
            error.hint("write http://HOST:4318/v1/metrics; a collector on the same machine can forward metrics over https")
        };
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| invalid("it does not begin with http://"))?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, PATH),
        };
        let is_plain = |text: &str| text.chars().all(|it| it.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_plain(rest) {
            return Err(invalid("its host is missing or has other signs"));
        }
        // An IPv6 address is in brackets.
        let port = authority
            .rsplit_once(':')
            .filter(|(_, it)| !it.ends_with(']'));
        let authority = match port {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                authority.to_string()
            }
            Some(_) => return Err(invalid("its port is no number up to 65535")),
            None => format!("{authority}:4318"),
        };
        let path = if path == "/" { PATH } else { path };
        Ok(CollectorUrl {
            authority,
            path: path.to_string(),
        })
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_path_have_defaults_and_invalid_urls_are_refused() {
        let parsed = |url| CollectorUrl::parse(url).map(|it| it.to_string());
        for (url, expected) in [
            ("http://collector", "http://collector:4318/v1/metrics"),
            ("http://10.0.0.7:9/", "http://10.0.0.7:9/v1/metrics"),
            ("http://[::1]/otlp", "http://[::1]:4318/otlp"),
            ("http://[::1]:80/otlp", "http://[::1]:80/otlp"),
        ] {
            assert_eq!(parsed(url).unwrap(), expected);
        }
        for wrong in [
            "",
            "collector:4318",
            "https://a",
            "http://",
            "http://a:b",
            "http://a b",
            "http://u@a",
            "http://:1",
        ] {
            let error = parsed(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
        }
    }
}
