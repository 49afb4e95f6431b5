//! Reading PEM files, and detecting changes.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::tls::TlsConfig;

/// The contents of the files.
pub(crate) struct PemFiles {
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl PemFiles {
    pub(crate) fn read(config: &TlsConfig) -> Result<PemFiles> {
        Ok(PemFiles {
            authorities: certificates(&config.authority)?,
            chain: certificates(&config.certificate)?,
            key: key(&config.key)?,
        })
    }
}

/// Reads the authorities in a PEM file, for clients of servers outside the cluster.
///
/// # Errors
/// `ReadFailed` if the file can't be read, `InvalidConfig` if it holds no certificate, or one that
/// can't be used.
pub fn authorities(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            let what = format!("a certificate in {} can't be used", path.display());
            Error::new(ErrorCode::InvalidConfig, what).because(error)
        })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| {
            let what = format!("{} is not a PEM file", path.display());
            Error::new(ErrorCode::InvalidConfig, what)
                .because(error.to_string())
                .hint("a certificate stands between BEGIN CERTIFICATE and END CERTIFICATE")
        })?;
    if found.is_empty() {
        let what = format!("{} holds no certificate", path.display());
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("a certificate stands between BEGIN CERTIFICATE and END CERTIFICATE"));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        // The parser's error is not shown, because the file contains a key.
        let what = format!("{} holds no private key as PEM", path.display());
        Error::new(ErrorCode::InvalidConfig, what).hint(
            "an unencrypted key stands between BEGIN PRIVATE KEY and END PRIVATE KEY; openssl pkey writes one",
        )
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| {
        let user = rustix::process::geteuid();
        Error::new(
            ErrorCode::ReadFailed,
            format!("cannot read {}", path.display()),
        )
        .because(error)
        .hint(format!(
            "the user that this process runs as, number {}, has to be able to read it",
            user.as_raw()
        ))
    })
}

/// The identity of a file's contents, by inode, size and modification time; `None` if it doesn't
/// exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileStamp(Option<(u64, u64, i64, i64)>);

impl FileStamp {
    /// Returns the stamps of the three files.
    pub(crate) fn of(config: &TlsConfig) -> [FileStamp; 3] {
        [&config.authority, &config.certificate, &config.key].map(|path| {
            let stamp = |meta: Metadata| (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
            FileStamp(fs::metadata(path).ok().map(stamp))
        })
    }
}
