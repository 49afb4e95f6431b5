//! A registry of package stores by the scheme of their URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::artifacts::{DirectoryStore, HttpStore, PackageStore, StoreOptions};

type Maker = Arc<dyn Fn(&str, &StoreOptions) -> Result<Arc<dyn PackageStore>> + Send + Sync>;

/// The kinds of package stores by the scheme of their URLs: `file:///var/lib/ardea/packages`,
/// `http://10.0.0.7:7070/packages`.
///
/// A custom kind is added with its scheme and a factory. The factory gets the whole URL of a store.
///
/// ```
/// use ardea_scheduler::artifacts::{DirectoryStore, PackageStores, StoreOptions};
///
/// let stores = PackageStores::builtin().with("shared", |url, options| {
///     let name = url.trim_start_matches("shared://");
///     Ok(std::sync::Arc::new(DirectoryStore::new(format!("/mnt/{name}"), options)))
/// });
/// let store = stores.open("shared://team-a", &StoreOptions::default())?;
/// assert_eq!(store.place(), "file:///mnt/team-a");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PackageStores(BTreeMap<String, Maker>);

impl PackageStores {
    /// Returns the kinds of this crate: `file` and `http`.
    pub fn builtin() -> Self {
        PackageStores(BTreeMap::new())
            .with("file", |url, options| {
                let path = url.trim_start_matches("file:");
                let path = path.strip_prefix("//").unwrap_or(path);
                if !Path::new(path).is_absolute() {
                    return Err(invalid(url, "its directory is not absolute"));
                }
                Ok(Arc::new(DirectoryStore::new(path, options)))
            })
            .with("http", |url, options| {
                Ok(Arc::new(HttpStore::new(url, options)?))
            })
    }

    /// Adds a kind of store, or replaces the kind of this scheme.
    pub fn with(
        mut self,
        scheme: impl Into<String>,
        maker: impl Fn(&str, &StoreOptions) -> Result<Arc<dyn PackageStore>> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(scheme.into(), Arc::new(maker));
        self
    }

    /// Opens the store at this URL. Does not connect to it yet.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) if `url` is invalid or its scheme is unknown.
    pub fn open(&self, url: &str, options: &StoreOptions) -> Result<Arc<dyn PackageStore>> {
        let scheme = url.split_once(':').map(|(scheme, _)| scheme);
        let maker = scheme
            .and_then(|scheme| self.0.get(scheme))
            .ok_or_else(|| {
                let schemes: Vec<_> = self.0.keys().map(String::as_str).collect();
                invalid(url, &format!("its kind is none of {}", schemes.join(", ")))
            })?;
        maker(url, options)
    }
}

impl Default for PackageStores {
    fn default() -> Self {
        PackageStores::builtin()
    }
}

impl fmt::Debug for PackageStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Creates the error for an invalid store URL.
pub(crate) fn invalid(url: &str, why: &str) -> Error {
    Error::new(
        ErrorCode::InvalidConfig,
        format!("{url:?} is no package store: {why}"),
    )
    .hint("write file:///DIRECTORY or http://HOST:PORT/PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_store_is_refused_with_the_reason() {
        let stores = PackageStores::builtin();
        for (url, why) in [
            ("/var/packages", "none of file, http"),
            ("s3://bucket", "none of file, http"),
            ("file://packages", "not absolute"),
            ("http:///packages", "no URL"),
            ("http://a:99999/", "no URL"),
            ("http://a/?x=1", "? or #"),
        ] {
            let error = stores.open(url, &StoreOptions::default()).expect_err(url);
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(error.to_string().contains(why), "{url}: {error}");
        }
        for (url, place) in [
            ("file:/a/b", "file:///a/b"),
            ("file:///a/b", "file:///a/b"),
            ("http://a", "http://a:80"),
            ("http://a:7/b/", "http://a:7/b"),
        ] {
            let store = stores.open(url, &StoreOptions::default()).expect(url);
            assert_eq!(store.place(), place);
        }
    }
}
