//! The web page: the built files of the folder `ui`, embedded into the program.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Forbids inline scripts and styles, other sites' content, and frames of other sites.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

const FILES: [PageFile; 4] = [
    PageFile {
        path: "/ui/",
        kind: "text/html; charset=utf-8",
        content: include_bytes!("../../page/index.html"),
    },
    PageFile {
        path: "/ui/app.js",
        kind: "text/javascript; charset=utf-8",
        content: include_bytes!("../../page/app.js"),
    },
    PageFile {
        path: "/ui/style.css",
        kind: "text/css; charset=utf-8",
        content: include_bytes!("../../page/style.css"),
    },
    PageFile {
        path: "/ui/icon.svg",
        kind: "image/svg+xml",
        content: include_bytes!("../../page/icon.svg"),
    },
];

/// A file as it is sent.
struct Encoded {
    gzip: Option<Vec<u8>>,
    tag: String,
}

static ENCODED: LazyLock<[Encoded; FILES.len()]> =
    LazyLock::new(|| std::array::from_fn(|index| encoded(&FILES[index])));

/// Returns true if the path is that of a file of the page, or leads there.
pub(super) fn is_part_of_page(path: &str) -> bool {
    matches!(path, "/" | "/ui") || FILES.iter().any(|file| file.path == path)
}

/// Returns the routes of the page.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for (index, file) in FILES.iter().enumerate() {
        let serve = move |headers: HeaderMap| async move { response(index, &headers) };
        router = router.route(file.path, get(serve));
    }
    let to_page = || async { (StatusCode::FOUND, [(LOCATION, "ui/")]) };
    router.route("/", get(to_page)).route("/ui", get(to_page))
}

fn response(index: usize, headers: &HeaderMap) -> Response {
    let (file, encoded) = (&FILES[index], &ENCODED[index]);
    let mut response = match value(headers, IF_NONE_MATCH) {
        Some(tags) if tags.split(',').any(|tag| tag.trim() == encoded.tag) => {
            StatusCode::NOT_MODIFIED.into_response()
        }
        _ => match &encoded.gzip {
            Some(gzip) if accepts_gzip(headers) => {
                ([(CONTENT_ENCODING, "gzip")], gzip.as_slice()).into_response()
            }
            _ => file.content.into_response(),
        },
    };
    let fixed = [
        (CONTENT_TYPE, file.kind),
        // A browser asks for each file whether it has changed, because its name is fixed.
        (CACHE_CONTROL, "no-cache"),
        (VARY, "accept-encoding"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    for (name, text) in fixed {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(text));
    }
    if let Ok(tag) = HeaderValue::from_str(&encoded.tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = value(headers, ACCEPT_ENCODING).unwrap_or_default();
    let mut codings = accepted.split(',');
    codings.any(|coding| coding.split(';').next().map(str::trim) == Some("gzip"))
}

fn value(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn encoded(file: &PageFile) -> Encoded {
    let mut hasher = DefaultHasher::new();
    file.content.hash(&mut hasher);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory can't fail; without a result the file is sent as it is.
    let written = encoder.write_all(file.content);
    Encoded {
        gzip: written.and_then(|()| encoder.finish()).ok(),
        tag: format!("\"{:016x}\"", hasher.finish()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_names_no_other_site() {
        let sizes = ENCODED
            .iter()
            .map(|it| it.gzip.as_ref().map_or(0, Vec::len));
        let total: usize = sizes.sum();
        assert!(total < 80_000, "{total} bytes");
        for file in &FILES {
            let text = std::str::from_utf8(file.content).unwrap();
            for (at, _) in text.match_indices("://") {
                let rest = &text[at..(at + 20).min(text.len())];
                // The names of XML's namespaces are no addresses.
                assert!(rest.starts_with("://www.w3.org/"), "{}: {rest}", file.path);
            }
        }
    }

    #[test]
    fn gzip_is_used_only_if_it_is_accepted() {
        let accepts = |text: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))]);
            accepts_gzip(&headers)
        };
        assert!(accepts("gzip, deflate, br"));
        assert!(accepts("br;q=1.0, gzip;q=0.8"));
        assert!(!accepts("br"));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
